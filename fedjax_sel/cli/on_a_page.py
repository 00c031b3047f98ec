"""A command as a committed page shows it: without where things lie on the machine that ran it."""

import shlex
from collections.abc import Sequence

PLACES = {"--data-dir": "DATA", "--runs": "RUNS"}


def command(name: str, arguments: Sequence[str]) -> str:
    """Return a command that others can repeat once they have put in folders of their own.

    Args:
        name: of the command, such as "leaderboard".
        arguments: as they were given.
    """
    shown: list[str] = []
    left = iter(arguments)
    for argument in left:
        flag, given, _ = argument.partition("=")
        if flag not in PLACES:
            shown.append(argument)
            continue
        shown += [flag, PLACES[flag]]
        if not given:
            next(left, None)
    return f"fedjax-sel {name} {shlex.join(shown)}"
