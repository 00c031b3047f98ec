"""A command as a committed page shows it: without where things lie on the machine that ran it."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedjax_sel.core import texts

PLACES = {"--data-dir": "DATA", "--runs": "RUNS", "--out": "OUT"}


def command(program: str, arguments: Sequence[str]) -> str:
    """Return a command that others can repeat once they have put in folders of their own.

    Args:
        program: the command itself, such as "fedjax-sel compare".
        arguments: as they were given.
    """
    shown: list[str] = []
    left = iter(arguments)
    for argument in left:
        flag, given, value = argument.partition("=")
        if flag not in PLACES:
            shown.append(argument)
            continue
        value = value if given else next(left, "")
        of_project = flag == "--out" and not Path(value).is_absolute()  # says where in it the results lie
        shown += [flag, value if of_project else PLACES[flag]]
    return f"{program} {shlex.join(map(texts.without_folders, shown))}"  # a --config lies somewhere, too
