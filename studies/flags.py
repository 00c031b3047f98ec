"""The flags that commands share which run many runs: how much of them, where, and by whom."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line
from fedjax_sel.cli.parser import Parser
from fedjax_sel.core import parsing

if TYPE_CHECKING:
    from studies.grid import Workers
    from studies.papers.entry import Scale

SOME_FAILED = 3  # exit code


def add(parser: Parser, what: str, out: Path, out_help: str) -> None:
    """Add the flags to a parser.

    Args:
        parser: of the command.
        what: that is run, as "the entry's".
        out: the default of --out.
        out_help: what lies there.
    """
    much = parser.add_argument_group("how much of it", f"less than {what} tells less, and the page says so")
    much.add_argument("--seeds", nargs="+", metavar="N", help=f"a count or a list (default: {what})")
    much.add_argument("--rounds", type=int, metavar="N", help=f"of training (default: {what})")
    much.add_argument("--scale", type=float, default=1.0, metavar="SHARE", help=f"of {what} rounds (default: 1)")
    place = parser.add_argument_group("where")
    place.add_argument("--out", type=command_line.path, default=out, metavar="DIR", help=f"{out_help} (default: {out})")
    place.add_argument(
        "--runs", type=command_line.path, metavar="DIR", help="the runs' own folders go to DIR/runs (default: OUT)"
    )
    place.add_argument(
        "--data-dir",
        metavar="DIR",
        help="folder of prepared data, as for the train command (default: the cache, or a download)",
    )
    place.add_argument(
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="processes of this machine that take the runs (default: 0, this one)",
    )
    place.add_argument(
        "--scheduler", metavar="ADDRESS", help="a Dask scheduler whose workers take them (default: none)"
    )


def scale_of(flags: argparse.Namespace) -> "Scale":
    """Return how much is to be run.

    Raises:
        UserError: a value is out of its range.
    """
    from studies.papers.entry import Scale

    seeds = None if flags.seeds is None else parsing.seeds(" ".join(flags.seeds))
    return Scale(seeds, flags.rounds, flags.scale)


def workers_of(flags: argparse.Namespace) -> "Workers | None":
    """Return who takes the runs; None: this process.

    Raises:
        UserError: there cannot be so many.
    """
    from studies import grid

    return grid.workers(flags.jobs, flags.scheduler)
