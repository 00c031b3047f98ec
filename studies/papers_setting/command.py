"""`python -m studies papers-setting`: every strategy in FedCor's setting, whose learning rate was not tuned."""

from collections.abc import Sequence

from studies.boards import command
from studies.boards.command import Study

DESCRIPTION = """Runs every strategy in FedCor's setting, with its dropout and its learning rate, and reports
statistically significant differences in accuracy, rounds and megabytes to a target, accuracy at an equal communication
budget, accuracy on the worst-served clients, and selection time. `leaderboard` has tuned rates and other tasks."""
EPILOG = """examples:
  python -m studies papers-setting --list                      all parts
  python -m studies papers-setting fmnist                      Fashion-MNIST in all its settings
  python -m studies papers-setting fmnist-2spc mnist           a part, and a group of parts
  python -m studies papers-setting fmnist-2spc --seeds 2 --scale 0.1 --out runs/look
                                                     a quick trial: two seeds, a tenth of the rounds
  python -m studies papers-setting --pages --out results/papers_setting
                                                     rewrite pages, tables and plots without any run
  python -m studies papers-setting --check --out results/papers_setting
                                                     compare them with their curves

DIR/PART then holds curves.csv.gz (accuracy and bytes of every round) and the files derived from it: README.md,
table.csv (means), seeds.csv (one line per seed), pairs.csv (significance tests) and a plot. DIR holds the summary of
all parts. The run folders, which are large, go to --runs. Runs found in DIR/PART or --runs are reused, and every run is
saved when it finishes: repeat an interrupted command to resume it. --jobs distributes the runs to processes on this
machine, --scheduler to the workers of a Dask cluster. Dask workers must see the same --runs folder.

Exit codes: 0 done, or stopped by SIGTERM; 1 unexpected error; 2 invalid input or environment; 3 some runs failed (the
others are in the tables); 129 terminal closed; 130 interrupted.
"""


STUDY = Study("papers-setting", DESCRIPTION, EPILOG, "studies.papers_setting.grids", "studies.papers_setting.pages")


def main(arguments: Sequence[str]) -> int:
    """Run the command; see `boards.command.main`."""
    return command.main(STUDY, arguments)
