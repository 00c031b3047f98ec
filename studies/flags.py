"""The flags shared by all studies: amount of work, folders and workers."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.core import parsing

if TYPE_CHECKING:
    from studies.grid import Workers
    from studies.papers.entry import Scale

SOME_FAILED = 3  # exit code


def add(parser: Parser, what: str, out: Path, out_help: str) -> None:
    """Add the flags to a parser.

    Args:
        parser: the command's parser.
        what: the owner of the default amounts, as a possessive: "the entry's".
        out: the default of --out.
        out_help: the help text of --out, without its default.
    """
    much = parser.add_argument_group(
        "amount of work", f"results from less than {what} own amount are weaker, and are marked so"
    )
    much.add_argument("--seeds", nargs="+", metavar="N", help=f"number of seeds, or a list of seeds (default: {what})")
    much.add_argument("--rounds", type=int, metavar="N", help=f"number of training rounds (default: {what})")
    much.add_argument(
        "--scale", type=float, default=1.0, metavar="SHARE", help=f"fraction of {what} rounds to run (default: 1)"
    )
    place = parser.add_argument_group("folders and workers")
    place.add_argument("--out", type=command_line.path, default=out, metavar="DIR", help=f"{out_help} (default: {out})")
    place.add_argument(
        "--runs",
        type=command_line.path,
        metavar="DIR",
        help="folder whose subfolder runs/ holds the run folders (default: OUT)",
    )
    place.add_argument(
        "--data-dir",
        metavar="DIR",
        help="folder with prepared data, as in the train command (default: the cache, or a download)",
    )
    place.add_argument(
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="number of worker processes on this machine; 0 runs everything in this process (default: 0)",
    )
    place.add_argument(
        "--scheduler", metavar="ADDRESS", help="address of a Dask scheduler whose workers do the runs (default: none)"
    )


def scale_of(flags: argparse.Namespace) -> "Scale":
    """Return the amount of work given by --seeds, --rounds and --scale.

    Raises:
        UserError: If a value is out of range.
    """
    from studies.papers.entry import Scale

    seeds = None if flags.seeds is None else parsing.seeds(" ".join(flags.seeds))
    return Scale(seeds, flags.rounds, flags.scale)


def workers_of(flags: argparse.Namespace) -> "Workers | None":
    """Return the workers given by --jobs and --scheduler; None means this process.

    Raises:
        UserError: If the number of jobs is invalid.
    """
    from studies import grid

    return grid.workers(flags.jobs, flags.scheduler)
