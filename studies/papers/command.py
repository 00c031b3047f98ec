"""`python -m studies reproduce`: the papers' tables and figures, run again."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel.cli import on_a_page, paragraphs
from fedjax_sel.cli.parser import Parser
from fedjax_sel.core.names import one_of
from fedjax_sel.errors import UserError
from studies import flags as grid_flags

if TYPE_CHECKING:
    from studies.grid import Workers
    from studies.papers.entry import Entry, Part, Scale
    from studies.papers.study import Folders, ReproductionResult

DESCRIPTION = """Runs the tables and figures of FedGP, FedCor, GPFL and FL-DP3S again, and judges each of their claims
by a rule that was written down before: the paper's number, ours with its spread over seeds, the difference with its
interval, the verdict."""
EPILOG = """examples:
  python -m studies reproduce --list                         every table and figure, with its cost here
  python -m studies reproduce fedgp/fig1                     one that trains nothing: seconds
  python -m studies reproduce fedcor/table1 --columns fmnist --rows random fedcor --out runs/papers
  python -m studies reproduce fl_dp3s/fig1 --scale 0.2       a fifth of the rounds: a look, not a reproduction

DIR/ENTRY then holds README.md (the page), rows.csv, and PNGs; DIR/runs, or that of --runs, the runs' own folders, which
are large and which entries share. Finished runs are read, and an interrupted one goes on: repeat the command. A page is
written after every run, and holds what is finished of the whole entry, whatever --columns and --rows ask for now.
--jobs hands the runs to processes of this machine, --scheduler to the workers of a Dask cluster, which see the same
DIR.

Exit codes: 0 done, or stopped by SIGTERM; 1 an error of the program's own; 2 something to mend; 3 some run failed (the
others are on the page); 129 the terminal was closed, 130 interrupted.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    flags = make_parser().parse_args(arguments)
    from studies.papers.entries import ENTRIES

    if flags.list:
        _list(ENTRIES)
        return 0
    if not flags.entries:
        raise UserError("no table or figure is named; --list shows them all")
    from fedjax_sel.runs.interruption import exit_code
    from studies.papers.entry import Part
    from studies.papers.study import Folders

    part = Part(*(None if given is None else tuple(given) for given in (flags.columns, flags.rows)))
    chosen = [ENTRIES[one_of("ENTRY", name, ENTRIES)] for name in flags.entries]
    for entry in chosen:
        entry.of_part(part)  # or there is no such part
    scale = grid_flags.scale_of(flags)
    workers = grid_flags.workers_of(flags)
    if flags.data_dir is not None:
        chosen = [entry.replace(data_dir=flags.data_dir) for entry in chosen]
    failed = False
    for entry in chosen:
        own = [argument for argument in arguments if argument == entry.name or argument not in flags.entries]
        command = on_a_page.command("python -m studies reproduce", own)
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
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    what = parser.add_argument_group("what to run again")
    what.add_argument("entries", nargs="*", metavar="ENTRY", help="tables and figures, such as fedcor/table1")
    what.add_argument("--list", action="store_true", help="show every table and figure, and what it takes")
    what.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="some settings, or how their names begin: fmnist (default: all that need no files of your own)",
    )
    what.add_argument(
        "--rows", nargs="+", metavar="NAME", help="some strategies or variants, by their names (default: all)"
    )
    grid_flags.add(parser, "the entry's", Path("runs/papers"), "folder of all pages")
    return parser


def _list(entries: "dict[str, Entry]") -> None:
    for name, entry in entries.items():
        count = len(entry.runs)
        runs = (
            f"{count} run{'s' if count > 1 else ''}; here: {entry.cost}"
            if count
            else f"trains nothing; here: {entry.cost}"
        )
        print(name)
        for text in (f"{entry.published.title}. {entry.published.claim}", runs):
            print(paragraphs.fill(text, "    "))


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
        _say(f"Interrupted: {done}; the same command goes on")
        return found
    for row in found.page.rows:
        print(f"{row.setting}: {row.what}: paper {row.paper or '-'}, here {row.ours}; {row.verdict or 'not published'}")
    print(f"\nWritten to {found.folder} (README.md, rows.csv, PNGs)")
    for cell, why in found.failed.items():
        _say(f"failed: {cell.column}, {cell.row}: {why}")
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
