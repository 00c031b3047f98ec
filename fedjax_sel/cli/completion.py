"""Shell completion of commands, flags and flag values, through the optional package argcomplete.

The shell requests completions by running the command with the variable `_ARGCOMPLETE` set. The registries' names are
duplicated here, because reading the registries imports JAX, which is too slow for the TAB key. A test compares the two.
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
    """Print completions and exit if a shell requests them; otherwise do nothing.

    Args:
        make_first: factory of the top-level parser.
        commands: the command names.
        make_parser: factory of a command's parser, by command name.
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    line = os.environ.get("COMP_LINE", "")
    skipped = int(os.environ["_ARGCOMPLETE"]) - 1  # words before the program name, such as python -m
    words = line[: int(os.environ.get("COMP_POINT", len(line)))].split(" ")
    before = [word for word in words[:-1] if word][skipped:]
    if len(before) > 1 and before[1] in commands:
        os.environ["_ARGCOMPLETE"] = str(skipped + 2)  # argcomplete then counts the command as part of the program name
        parser = make_parser(before[1])
    else:
        parser = make_first()
        parser.add_argument("command", choices=list(commands))
    offer(parser)
    argcomplete.autocomplete(parser, always_complete_options="long")


def offer(parser: argparse.ArgumentParser) -> None:
    """Attach completers to the flags whose values argparse does not know."""
    for action in parser._actions:
        found = names().get(_LIKE.get(action.dest, action.dest)) or _listed(action.metavar)
        if found and not hasattr(action, "completer"):
            action.completer = lambda found=found, **_: found  # pyright: ignore[reportAttributeAccessIssue]


def names() -> dict[str, tuple[str, ...]]:
    """Return the known values of flags: flag -> names."""
    from fedjax_sel.papers import PRESETS

    return {**NAMES, "preset": tuple(PRESETS)}


def _listed(metavar: Any) -> tuple[str, ...]:
    """Return the values in a metavar of the form `{a,b}`."""
    text = metavar if isinstance(metavar, str) else ""
    return tuple(text[1:-1].split(",")) if text.startswith("{") else ()
