"""`python -m studies leaderboard`: every strategy on several tasks, with tuned learning rates."""

from collections.abc import Sequence

from studies.boards import command
from studies.boards.command import Study

DESCRIPTION = """Runs every strategy on gray images, color features, text, many clients and CNNs. The learning rates are
tuned for random selection first. The protocol is the first part of studies/leaderboard/protocol.py."""
EPILOG = """examples:
  python -m studies leaderboard --list                  all parts
  python -m studies leaderboard gray-2labels            the learning rates of a setting, then its rows
  python -m studies leaderboard gray color many         groups of parts
  python -m studies leaderboard gray-2labels --seeds 2 --scale 0.1 --out runs/look
                                                        a quick trial

color needs runs/cifar10_features.npz:
  python examples/frozen_features.py --dataset cifar10 --out runs/cifar10_features.npz

DIR/PART holds curves.csv.gz and about.json. Finished rows are reused: repeat an interrupted command to resume it.
"""


STUDY = Study("leaderboard", DESCRIPTION, EPILOG, "studies.leaderboard.protocol", "studies.leaderboard.page")


def main(arguments: Sequence[str]) -> int:
    """Run the command; see `boards.command.main`."""
    return command.main(STUDY, arguments)
