"""`python -m studies reproduce`: reproductions of the papers' tables and figures."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel import UserError
from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.core.parsing import one_of
from studies import flags as grid_flags

if TYPE_CHECKING:
    from studies.grid import Workers
    from studies.papers.entry import Entry, Part, Scale
    from studies.papers.study import Folders, ReproductionResult

DESCRIPTION = """Re-runs the tables and figures of FedGP, FedCor, GPFL and FL-DP3S, and judges each claim by a
preregistered rule. Each row shows the paper's number, ours with its spread over seeds, the difference
with its confidence interval, and the verdict."""
EPILOG = """examples:
  python -m studies reproduce --list                         every table and figure, with its run time
  python -m studies reproduce fedgp/fig1                     an entry without training: seconds
  python -m studies reproduce fedcor/table1 --columns fmnist --rows random fedcor --out runs/papers
  python -m studies reproduce fl_dp3s/fig1 --scale 0.2       a quick trial: a fifth of the rounds

DIR/ENTRY then holds README.md (the page), rows.csv, and PNGs. The run folders, which are large and shared by entries,
are in DIR/runs, or in the runs/ subfolder of --runs. Finished runs are reused and interrupted runs resume: repeat the
command. The page is rewritten after every run. It covers all finished runs of the entry, including those outside
--columns and --rows. --jobs distributes the runs to processes on this machine, --scheduler to the workers of a Dask
cluster. Dask workers must see the same DIR.

Exit codes: 0 done, or stopped by SIGTERM; 1 unexpected error; 2 invalid input or environment; 3 some runs failed (the
others are on the page); 129 terminal closed; 130 interrupted.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: the command-line arguments, without the program name.

    Returns:
        The exit code.
    """
    flags = make_parser().parse_args(arguments)
    from studies.papers.entries import ENTRIES

    if flags.list:
        _list(ENTRIES)
        return 0
    if not flags.entries:
        raise UserError("missing ENTRY; --list shows all tables and figures")
    from fedjax_sel.runs.terminal import exit_code
    from studies.papers.entry import Part
    from studies.papers.study import Folders

    part = Part(*(None if given is None else tuple(given) for given in (flags.columns, flags.rows)))
    chosen = [ENTRIES[one_of("ENTRY", name, ENTRIES)] for name in flags.entries]
    for entry in chosen:
        entry.of_part(part)  # raises if the part does not exist
    scale = grid_flags.scale_of(flags)
    workers = grid_flags.workers_of(flags)
    if flags.data_dir is not None:
        chosen = [entry.replace(data_dir=flags.data_dir) for entry in chosen]
    failed = False
    for entry in chosen:
        own = [argument for argument in arguments if argument == entry.name or argument not in flags.entries]
        command = command_line.quoted_command("python -m studies reproduce", own)
        found = _reproduce(entry, part, Folders(flags.out, flags.runs), scale, command, workers)
        if found.stopped:
            return exit_code(found.stopped_by)
        failed = failed or bool(found.failed)
    return grid_flags.SOME_FAILED if failed else 0


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = Parser(
        prog="python -m studies reproduce",
        usage="python -m studies reproduce ENTRY ... [flags]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    what = parser.add_argument_group("what to run")
    what.add_argument("entries", nargs="*", metavar="ENTRY", help="tables and figures, such as fedcor/table1")
    what.add_argument("--list", action="store_true", help="list all tables and figures with their run time, and exit")
    what.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="settings to run, by name or prefix such as fmnist (default: all that need no files of your own)",
    )
    what.add_argument("--rows", nargs="+", metavar="NAME", help="strategies or variants to run, by name (default: all)")
    grid_flags.add(parser, "the entry's", Path("runs/papers"), "folder of all pages")
    return parser


def _list(entries: "dict[str, Entry]") -> None:
    for name, entry in entries.items():
        count = len(entry.runs)
        runs = (
            f"{count} run{'s' if count > 1 else ''}; cost: {entry.cost}"
            if count
            else f"no training; cost: {entry.cost}"
        )
        print(name)
        for text in (f"{entry.published.title}. {entry.published.claim}", runs):
            print(command_line.fill(text, "    "))


def _reproduce(
    entry: "Entry",
    part: "Part",
    folders: "Folders",
    scale: "Scale",
    command: str,
    workers: "Workers | None",
) -> "ReproductionResult":
    from studies.papers import study

    found = study.run(entry, part, folders, scale, command, _say, workers)
    if found.stopped:
        done = f"{len(found.results)} of {found.planned} runs of {entry.name} are finished and in {folders.of_runs}"
        _say(f"Interrupted: {done}; the same command resumes")
        return found
    for row in found.page.rows:
        print(f"{row.setting}: {row.what}: paper {row.paper or '-'}, here {row.ours}; {row.verdict or 'not published'}")
    print(f"\nWritten to {found.folder} (README.md, rows.csv, PNGs)")
    for cell, why in found.failed.items():
        _say(f"failed: {cell.column}, {cell.row}: {why}")
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
