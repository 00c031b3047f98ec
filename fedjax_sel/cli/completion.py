"""What the TAB key offers, through the optional package argcomplete: commands, flags, and the values of flags.

A shell asks by starting the command with the variable `_ARGCOMPLETE`. The names of what JAX has to be imported for are
written down here a second time, since TAB has no second to wait; a test holds them against the tables.
"""

import argparse
import os
from collections.abc import Callable, Iterable
from typing import Any

NAMES = {
    "algo": (
        "random", "fedgp", "fedcor", "gpfl", "fl_dp3s", "afl", "pow_d", "fedsae", "clustered", "divfl", "oort",
    ),
    "optimizer": ("fedavg", "fedprox", "fednova", "scaffold", "fedavgm", "fedadagrad", "fedadam", "fedyogi"),
    "dataset": ("digits", "synthetic", "mnist", "fashion_mnist", "cifar10", "cifar100"),
    "task": ("classification", "multilabel", "next_token", "regression"),
}  # fmt: skip
_LIKE = {"algos": "algo", "optimizers": "optimizer", "presets": "preset"}


def complete(
    make_first: Callable[[], argparse.ArgumentParser],
    commands: Iterable[str],
    make_parser: Callable[[str], argparse.ArgumentParser],
) -> None:
    """Answer a shell that asks what could come next, and end; do nothing where none asks.

    Args:
        make_first: makes the parser of what stands before a command.
        commands: their names.
        make_parser: makes the parser of a command.
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    line = os.environ.get("COMP_LINE", "")
    skipped = int(os.environ["_ARGCOMPLETE"]) - 1  # words in front of the program's name, such as python -m
    words = line[: int(os.environ.get("COMP_POINT", len(line)))].split(" ")
    before = [word for word in words[:-1] if word][skipped:]
    if len(before) > 1 and before[1] in commands:
        os.environ["_ARGCOMPLETE"] = str(skipped + 2)  # the command's name belongs to the program's
        parser = make_parser(before[1])
    else:
        parser = make_first()
        parser.add_argument("command", choices=list(commands))
    offer(parser)
    argcomplete.autocomplete(parser, always_complete_options="long")


def offer(parser: argparse.ArgumentParser) -> None:
    """Tell argcomplete which values flags have, where the parser itself does not say it."""
    for action in parser._actions:
        found = names().get(_LIKE.get(action.dest, action.dest)) or _listed(action.metavar)
        if found and not hasattr(action, "completer"):
            action.completer = lambda found=found, **_: found  # pyright: ignore[reportAttributeAccessIssue]


def names() -> dict[str, tuple[str, ...]]:
    """Return the names that flags take, by flag."""
    from fedjax_sel.papers import PRESETS

    return {**NAMES, "preset": tuple(PRESETS)}


def _listed(metavar: Any) -> tuple[str, ...]:
    """Return the values of a flag whose help says `{a,b}`."""
    text = metavar if isinstance(metavar, str) else ""
    return tuple(text[1:-1].split(",")) if text.startswith("{") else ()
