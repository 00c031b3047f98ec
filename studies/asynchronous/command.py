"""`python -m studies asynchronous`: rounds that wait, and rounds that do not, at equal seconds."""

from collections.abc import Sequence

from studies.boards import command
from studies.boards.command import Study

DESCRIPTION = """Runs strategies in synchronous and asynchronous rounds, and compares them at equal simulated seconds.
The protocol is the first part of studies/asynchronous/protocol.py."""
EPILOG = """examples:
  python -m studies asynchronous --list                 all parts
  python -m studies asynchronous tiers                  the server's learning rates, then a world
  python -m studies asynchronous tiers --algos random --seeds 2 --out runs/look
                                                        a quick trial

DIR/PART holds curves.csv.gz and about.json. Finished rows are reused: repeat an interrupted command to resume it.
"""


STUDY = Study("asynchronous", DESCRIPTION, EPILOG, "studies.asynchronous.protocol", "studies.asynchronous.page")


def main(arguments: Sequence[str]) -> int:
    """Run the command; see `boards.command.main`."""
    return command.main(STUDY, arguments)
