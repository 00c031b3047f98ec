"""`python -m studies COMMAND ...`: reproduce, leaderboard, tasks."""

import sys
from collections.abc import Sequence

from fedjax_sel import UserError
from fedjax_sel.cli import command_line
from fedjax_sel.core.parsing import did_you_mean

USAGE = """usage: python -m studies COMMAND [flags]

  reproduce    run the papers' tables and figures again, each claim judged by a rule
  leaderboard  run every strategy under the same settings
  tasks        run every strategy on several tasks, with tuned learning rates

python -m studies COMMAND --help lists a command's flags.
"""


def main(arguments: Sequence[str]) -> int:
    """Run a command.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    name, *rest = arguments
    if name == "reproduce":
        from studies.papers import command
    elif name == "leaderboard":
        from studies.leaderboard import command
    elif name == "tasks":
        from studies.tasks import command
    else:
        raise UserError(f"{name!r} is not a command; {did_you_mean(name, ('reproduce', 'leaderboard', 'tasks'))}")
    return command.main(rest)


if __name__ == "__main__":
    sys.exit(command_line.guarded(main))
