"""`python -m fedjax_sel.reproduce`: the papers' tables and figures, run again."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line
from fedjax_sel.core import parsing
from fedjax_sel.core.names import one_of
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.reproduction.entry import Entry, Scale
    from fedjax_sel.reproduction.runner import Found
    from fedjax_sel.runs.grid import Workers

DESCRIPTION = """Runs the tables and figures of FedGP, FedCor, GPFL and FL-DP3S again, and judges each of their claims
by a rule that was written down before: the paper's number, ours with its spread over seeds, the difference with its
interval, the verdict."""
EPILOG = """examples:
  python -m fedjax_sel.reproduce --list                        every table and figure, with its cost here
  python -m fedjax_sel.reproduce fedgp/fig1                    one that trains nothing: seconds
  python -m fedjax_sel.reproduce fedcor/table1 --columns fmnist --seeds 10 --out runs/papers
  python -m fedjax_sel.reproduce fl_dp3s/fig1 --scale 0.2      a fifth of the rounds: a look, not a reproduction

DIR/ENTRY then holds README.md (the page), rows.csv, and PNGs; DIR/runs the runs, which entries share. Finished runs are
read, and an interrupted one goes on: repeat the command. A page is written after every run, and holds what is finished
of the whole entry, whatever --columns asks for now. --jobs hands the runs to processes of this machine, --scheduler to
the workers of a Dask cluster, which see the same DIR.

Exit codes: 0 done, or stopped by SIGTERM; 1 an error of the program's own; 2 something to mend; 3 some run failed (the
others are on the page); 129 the terminal was closed, 130 interrupted.
"""

SOME_FAILED = 3  # exit code


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    parser = _parser()
    flags = parser.parse_args(arguments)
    from fedjax_sel.reproduction.entries import ENTRIES

    if flags.list:
        _list(ENTRIES)
        return 0
    if not flags.entries:
        raise UserError("no table or figure is named; --list shows them all")
    from fedjax_sel.reproduction.entry import Scale
    from fedjax_sel.runs.grid import Workers
    from fedjax_sel.runs.interruption import exit_code

    columns = None if flags.columns is None else tuple(flags.columns)
    chosen = [ENTRIES[one_of("ENTRY", name, ENTRIES)] for name in flags.entries]
    for entry in chosen:
        entry.of_columns(columns)  # or there is no such column
    seeds = None if flags.seeds is None else parsing.seeds(" ".join(flags.seeds))
    scale = Scale(seeds, flags.rounds, flags.scale)
    if flags.jobs < 0:
        raise UserError(f"--jobs: {flags.jobs} is below 0; give the number of processes")
    workers = Workers(flags.jobs, flags.scheduler) if flags.jobs or flags.scheduler else None
    if flags.data_dir is not None:
        chosen = [entry.replace(data_dir=flags.data_dir) for entry in chosen]
    failed = False
    for entry in chosen:
        found = _reproduce(entry, columns, flags.out, scale, _command(arguments), workers)
        if found.stopped:
            return exit_code(found.stopped_by)
        failed = failed or bool(found.failed)
    return SOME_FAILED if failed else 0


def _parser() -> command_line.Parser:
    parser = command_line.Parser(
        prog="python -m fedjax_sel.reproduce",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("entries", nargs="*", metavar="ENTRY", help="tables and figures, such as fedcor/table1")
    parser.add_argument("--list", action="store_true", help="show every table and figure, and what it takes")
    parser.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="some settings, or how their names begin: fmnist (default: all but those that take files of your own)",
    )
    parser.add_argument("--seeds", nargs="+", metavar="N", help="a count or a list, instead of the entry's")
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of the entry's")
    parser.add_argument("--scale", type=float, default=1.0, metavar="SHARE", help="of the entry's rounds (default: 1)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder of prepared data, as for the train command")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes that take the runs (default: this)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler whose workers take them")
    parser.add_argument(
        "--out", type=command_line.path, default=Path("runs/papers"), metavar="DIR", help="default: runs/papers"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _command(arguments: Sequence[str]) -> str:
    """Return the command as a page shows it: without where the data lie on this machine."""
    shown = list(arguments)
    for place, argument in enumerate(shown):
        if argument == "--data-dir":
            shown[place + 1] = "DATA"
        elif argument.startswith("--data-dir="):
            shown[place] = "--data-dir=DATA"
    return "python -m fedjax_sel.reproduce " + shlex.join(shown)


def _list(entries: "dict[str, Entry]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("entry", "what the paper says", "runs", "here", show_lines=False)
    for entry in entries.values():
        table.add_row(
            entry.name, f"{entry.published.title}. {entry.published.claim}", str(len(entry.runs)) or "", entry.cost
        )
    Console(highlight=False, markup=False).print(table)


def _reproduce(
    entry: "Entry",
    columns: tuple[str, ...] | None,
    out: Path,
    scale: "Scale",
    command: str,
    workers: "Workers | None",
) -> "Found":
    from fedjax_sel.reproduction import page, runner

    def write(found: "Found") -> page.Page:
        judged = entry.judge(found.results, scale)
        page.write(out / entry.name, _heading(entry, scale, command, found), judged)
        return judged

    found = runner.Found({}, {})
    if entry.runs:
        found = runner.run(entry, columns, out, scale, _say, write, workers)
    judged = write(found)
    if found.stopped:
        done = f"{len(found.results)} of {len(entry.runs)} runs of {entry.name} are finished and in {out}"
        _say(f"Interrupted: {done}; the same command goes on")
        return found
    for row in judged.rows:
        print(f"{row.setting}: {row.what}: paper {row.paper or '-'}, here {row.ours}; {row.verdict or 'not published'}")
    print(f"\nWritten to {out / entry.name} (README.md, rows.csv, PNGs)")
    for cell, why in found.failed.items():
        _say(f"failed: {cell.column}, {cell.row}: {why}")
    return found


def _heading(entry: "Entry", scale: "Scale", command: str, found: "Found") -> list[str]:
    paper = entry.published
    lines = [f"# {entry.name}: {paper.title}", "", f"**The claim.** {paper.claim}", "", f"**The rule.** {entry.rule}"]
    if paper.reading:
        lines += ["", f"**The reading.** {paper.reading}"]
    if changed := scale.in_words():
        lines += ["", f"**Other than the entry has it:** {changed}."]
    expected = {*entry.of_columns(None).runs, *found.results}
    if len(found.results) < len(expected):
        lines += ["", f"**{len(found.results)} of {len(expected)} runs are finished.**"]
    for cell, why in found.failed.items():
        lines += ["", f"Failed: {cell.column}, {cell.row}: {why}"]
    sources = {result.data_source for result in found.results.values()}
    if sources:
        lines += ["", f"Data: {'; '.join(sorted(sources))}."]
    return [*lines, "", "```", command, "```"]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def entry_point() -> int:
    """Run the installed command."""
    return command_line.guarded(main)
