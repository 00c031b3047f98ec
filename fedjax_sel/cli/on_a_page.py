"""Commands as committed pages quote them, without the local paths of the machine that ran them."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedjax_sel.core import texts

PLACES = {"--data-dir": "DATA", "--runs": "RUNS", "--out": "OUT"}


def command(program: str, arguments: Sequence[str]) -> str:
    """Return a command line with placeholders for local folders.

    Args:
        program: the command, such as "fedjax-sel compare".
        arguments: the command's arguments.
    """
    shown: list[str] = []
    left = iter(arguments)
    for argument in left:
        flag, given, value = argument.partition("=")
        if flag not in PLACES:
            shown.append(argument)
            continue
        value = value if given else next(left, "")
        of_project = flag == "--out" and not Path(value).is_absolute()  # shows the results' place in the repository
        shown += [flag, value if of_project else PLACES[flag]]
    return f"{program} {shlex.join(map(texts.without_folders, shown))}"  # --config has a path, too
