"""`python -m studies privacy`: what noise for privacy leaves of a strategy's gain."""

from collections.abc import Sequence

from studies.boards import command
from studies.boards.command import Study

DESCRIPTION = """Runs strategies with a privacy budget for the answers of each client, and compares them with random
selection. The protocol is the first part of studies/privacy/protocol.py. Run it from the repository, whose
results/leaderboard has the rows without noise."""
EPILOG = """examples:
  python -m studies privacy --list                      all parts
  python -m studies privacy gray-2labels                a part
  python -m studies privacy gray-2labels --algos fed_cbs --seeds 2 --scale 0.1 --out runs/look
                                                        a quick trial

DIR/PART holds curves.csv.gz and about.json. Finished rows are reused: repeat an interrupted command to resume it.
"""


STUDY = Study("privacy", DESCRIPTION, EPILOG, "studies.privacy.protocol", "studies.privacy.page")


def main(arguments: Sequence[str]) -> int:
    """Run the command; see `boards.command.main`."""
    return command.main(STUDY, arguments)
