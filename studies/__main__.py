"""`python -m studies COMMAND ...`: reproduce, leaderboard, papers-setting, privacy, asynchronous."""

import sys
from collections.abc import Sequence
from importlib import import_module

from fedjax_sel.cli import command_line
from fedjax_sel.core.parsing import one_of

COMMANDS = {
    "reproduce": "studies.papers",
    "leaderboard": "studies.leaderboard",
    "papers-setting": "studies.papers_setting",
    "privacy": "studies.privacy",
    "asynchronous": "studies.asynchronous",
}
USAGE = """usage: python -m studies COMMAND [flags]

  reproduce       run the papers' tables and figures again, each claim judged by a rule
  leaderboard     run every strategy on several tasks, with tuned learning rates
  papers-setting  run every strategy in FedCor's setting, with its learning rate
  privacy         what noise for privacy leaves of a strategy's gain
  asynchronous    rounds that wait, and rounds that do not, at equal seconds

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
    return import_module(f"{COMMANDS[one_of('COMMAND', name, COMMANDS)]}.command").main(rest)


if __name__ == "__main__":
    sys.exit(command_line.guarded(main))
