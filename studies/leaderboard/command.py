"""`python -m studies leaderboard`: every strategy under the same settings, and what their information costs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from fedjax_sel.cli import on_a_page, paragraphs
from fedjax_sel.cli.parser import Parser
from fedjax_sel.core.names import one_of
from fedjax_sel.errors import UserError
from studies import flags as grid_flags

DESCRIPTION = """Runs every strategy under the same settings and says what can be told from chance: accuracy, rounds and
megabytes to a target, accuracy at equal megabytes, the worst-served clients, the time of selection."""
EPILOG = """examples:
  python -m studies leaderboard --list                      the parts, and what each takes on two free cores
  python -m studies leaderboard fmnist                      Fashion-MNIST in all its settings
  python -m studies leaderboard fmnist-2spc mnist           a part, and a group of parts
  python -m studies leaderboard fmnist-2spc --seeds 2 --scale 0.1 --out runs/look
                                                               a look: two seeds, a tenth of the rounds
  python -m studies leaderboard --pages --out results/leaderboard
                                                               pages, tables and pictures anew; nothing is run

DIR/PART then holds curves.csv.gz (accuracy and bytes of every round), and what is made of it: README.md, table.csv
(means), seeds.csv (one line a seed), pairs.csv (what is told from chance), a picture; DIR the summary of all parts. The
runs' own folders, which are large, go to --runs. What DIR/PART or --runs holds is not run again, and every finished run
is kept at once: an interrupted command goes on when it is repeated. --jobs hands the runs to processes of this machine,
--scheduler to the workers of a Dask cluster, which see the same --runs.

Exit codes: 0 done, or stopped by SIGTERM; 1 an error of the program's own; 2 something to mend; 3 some run failed (the
others are in the tables); 129 the terminal was closed, 130 interrupted.
"""


_OF_RUNS = ("algos", "seeds", "rounds", "scale", "runs", "data_dir", "jobs", "scheduler")


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

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
        raise UserError("no part is named; --list shows them all")
    if flags.parts and flags.pages:
        raise UserError("--pages: it runs nothing, and writes the pages of all parts; leave the PARTs out")
    if flags.pages and (idle := [name for name in _OF_RUNS if getattr(flags, name) != parser.get_default(name)]):
        flag = "--" + idle[0].replace("_", "-")
        raise UserError(f"{flag}: this changes nothing with --pages, which runs nothing; leave it out")
    chosen = grids.chosen(flags.parts)
    from fedjax_sel.runs.interruption import exit_code
    from studies.leaderboard import pages, running
    from studies.leaderboard.settings import ALGOS

    scale = grid_flags.scale_of(flags)
    algos = None if flags.algos is None else {one_of("--algos", name, ALGOS) for name in flags.algos}
    workers = grid_flags.workers_of(flags)
    runs = flags.out if flags.runs is None else flags.runs  # in a folder `runs` there
    failed, written = False, [] if chosen else pages.write(flags.out)
    for grid in chosen:
        command = on_a_page.command("python -m studies leaderboard", arguments)
        done = running.run(grid, flags.out, runs, scale, command, _say, algos, flags.data_dir, workers)
        written = pages.write(flags.out)
        if done.stopped:
            _say(f"Interrupted: {done.rows} of {len(grid.rows)} rows of {grid.name} are in {flags.out / grid.name}; "
                 "the same command goes on")  # fmt: skip
            return exit_code(done.stopped_by)
        for name, why in done.failed.items():
            _say(f"failed: {grid.name}, {name}: {why}")
        failed = failed or bool(done.failed)
    if not written:
        raise UserError(f"--pages: {flags.out} holds no part's curves; give the --out of an earlier command")
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
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    what = parser.add_argument_group("what to run")
    what.add_argument("parts", nargs="*", metavar="PART", help="settings such as fmnist-2spc, or groups such as fmnist")
    what.add_argument("--list", action="store_true", help="show every part, and what it takes")
    what.add_argument("--pages", action="store_true", help="write pages and pictures anew, without any run")
    what.add_argument(
        "--algos", nargs="+", metavar="ALGO", help="some strategies now, others with a later command (default: all)"
    )
    grid_flags.add(parser, "the part's", Path("runs/leaderboard"), "results")
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
            print(paragraphs.fill(text, "    "))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
