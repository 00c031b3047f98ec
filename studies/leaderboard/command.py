"""`python -m studies leaderboard`: accuracy and communication cost of every strategy under the same settings."""

import sys
from collections.abc import Sequence
from pathlib import Path

from fedjax_sel import UserError
from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.core.parsing import one_of
from studies import flags as grid_flags

DESCRIPTION = """Runs every strategy under the same settings and reports statistically significant differences in
accuracy, rounds and megabytes to a target, accuracy at an equal communication budget, accuracy on the worst-served
clients, and selection time."""
EPILOG = """examples:
  python -m studies leaderboard --list                      all parts, with their run time on two free cores
  python -m studies leaderboard fmnist                      Fashion-MNIST in all its settings
  python -m studies leaderboard fmnist-2spc mnist           a part, and a group of parts
  python -m studies leaderboard fmnist-2spc --seeds 2 --scale 0.1 --out runs/look
                                                     a quick trial: two seeds, a tenth of the rounds
  python -m studies leaderboard --pages --out results/leaderboard
                                                     rewrite pages, tables and plots without any run

DIR/PART then holds curves.csv.gz (accuracy and bytes of every round) and the files derived from it: README.md,
table.csv (means), seeds.csv (one line per seed), pairs.csv (significance tests) and a plot. DIR holds the summary of
all parts. The run folders, which are large, go to --runs. Runs found in DIR/PART or --runs are reused, and every run is
saved when it finishes: repeat an interrupted command to resume it. --jobs distributes the runs to processes on this
machine, --scheduler to the workers of a Dask cluster. Dask workers must see the same --runs folder.

Exit codes: 0 done, or stopped by SIGTERM; 1 unexpected error; 2 invalid input or environment; 3 some runs failed (the
others are in the tables); 129 terminal closed; 130 interrupted.
"""


_OF_RUNS = ("algos", "seeds", "rounds", "scale", "runs", "data_dir", "jobs", "scheduler")


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: the command-line arguments, without the program name.

    Returns:
        The exit code.
    """
    parser = make_parser()
    flags = parser.parse_args(arguments)
    from studies.leaderboard import grids

    if flags.list:
        _list()
        return 0
    if not flags.parts and not flags.pages:
        raise UserError("missing PART; --list shows all parts")
    if flags.parts and flags.pages:
        raise UserError("--pages: rewrites the pages of all parts and runs nothing; remove the PARTs")
    if flags.pages and (idle := [name for name in _OF_RUNS if getattr(flags, name) != parser.get_default(name)]):
        flag = "--" + idle[0].replace("_", "-")
        raise UserError(f"{flag}: has no effect with --pages, which runs nothing; remove it")
    chosen = grids.chosen(flags.parts)
    from fedjax_sel.runs.terminal import exit_code
    from studies.leaderboard import pages, running

    scale = grid_flags.scale_of(flags)
    algos = None if flags.algos is None else {one_of("--algos", name, grids.algos()) for name in flags.algos}
    workers = grid_flags.workers_of(flags)
    runs = flags.out if flags.runs is None else flags.runs  # in a folder `runs` there
    changed = None if flags.pages else [grid.name for grid in chosen]
    failed = False
    for grid in chosen:
        command = command_line.quoted_command("python -m studies leaderboard", arguments)
        done = running.run(grid, flags.out, runs, scale, command, _say, algos, flags.data_dir, workers)
        if done.stopped:
            pages.write(flags.out, changed)
            _say(f"Interrupted: {done.rows} of {len(grid.rows)} rows of {grid.name} are in {flags.out / grid.name}; "
                 "the same command resumes")  # fmt: skip
            return exit_code(done.stopped_by)
        for name, why in done.failed.items():
            _say(f"failed: {grid.name}, {name}: {why}")
        failed = failed or bool(done.failed)
    written = pages.write(flags.out, changed)
    if not written:
        raise UserError(f"--pages: {flags.out} contains no curves.csv.gz of any part; give the --out of an earlier run")
    print(f"Written to {flags.out} (README.md, PNGs; {', '.join(written)})")
    return grid_flags.SOME_FAILED if failed else 0


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = Parser(
        prog="python -m studies leaderboard",
        usage="python -m studies leaderboard PART ... [flags]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    what = parser.add_argument_group("what to run")
    what.add_argument("parts", nargs="*", metavar="PART", help="settings such as fmnist-2spc, or groups such as fmnist")
    what.add_argument("--list", action="store_true", help="list all parts with their run time, and exit")
    what.add_argument(
        "--pages", action="store_true", help="rewrite pages, tables and plots of all parts without any run"
    )
    what.add_argument(
        "--algos", nargs="+", metavar="ALGO", help="strategies to run now; later commands add others (default: all)"
    )
    grid_flags.add(parser, "the part's", Path("runs/leaderboard"), "results folder")
    return parser


def _list() -> None:
    from studies.leaderboard.grids import GRIDS

    for name, grid in GRIDS.items():
        first = next(iter(grid.rows.values())).run
        amount = (
            f"{len(grid.rows)} runs of {len(first.seeds)} seeds and {first.rounds} rounds; about {grid.minutes:.0f} "
            "minutes on two free cores"
        )
        print(name)
        for text in (grid.title, amount):
            print(command_line.fill(text, "    "))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
