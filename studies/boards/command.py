"""Command line of a study: `python -m studies STUDY PART ...` runs parts, and rewrites or checks their pages."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedjax_sel import UserError
from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.core.parsing import one_of
from studies import flags as grid_flags

if TYPE_CHECKING:
    from studies.boards.grid import Grid

_OF_RUNS = ("algos", "seeds", "rounds", "scale", "runs", "data_dir", "jobs", "scheduler")


class Study(NamedTuple):
    """A study that consists of grids. Its modules are imported when a command needs them, because --help must be fast.

    Attributes:
        name: subcommand.
        description: of `--help`.
        epilog: of `--help`.
        grids: module with `GRIDS`, by part.
        pages: module with `write(out, changed)`, which writes the pages of a results folder and returns the parts with
            results; `changed` has the parts whose pictures changed, None: all. `check(out)` compares a results folder
            with its curves, and returns a line per difference.
    """

    name: str
    description: str
    epilog: str
    grids: str
    pages: str


def main(study: Study, arguments: Sequence[str]) -> int:
    """Run the command of a study.

    Args:
        study: the study.
        arguments: the command-line arguments, without the program name.

    Returns:
        The exit code.
    """
    parser = make_parser(study)
    flags = parser.parse_args(arguments)
    no_run = "--pages" if flags.pages else "--check" if flags.check else None
    if flags.list:
        _list(import_module(study.grids).GRIDS)
        return 0
    if not flags.parts and no_run is None:
        raise UserError("missing PART; --list shows all parts")
    if flags.parts and no_run is not None:
        raise UserError(f"{no_run}: is for all parts and runs nothing; remove the PARTs")
    if no_run and (idle := [name for name in _OF_RUNS if getattr(flags, name) != parser.get_default(name)]):
        raise UserError(f"--{idle[0].replace('_', '-')}: has no effect with {no_run}, which runs nothing; remove it")
    pages = import_module(study.pages)
    if flags.check:
        return _check(pages.check(flags.out), flags.out)
    grids: Mapping[str, Grid] = import_module(study.grids).GRIDS
    parts = chosen(flags.parts, grids)
    from fedjax_sel.runs.terminal import exit_code
    from studies.boards import running

    scale, workers = grid_flags.scale_of(flags), grid_flags.workers_of(flags)
    known = dict.fromkeys(config.selection.algo for grid in grids.values() for config in grid.rows.values())
    algos = None if flags.algos is None else {one_of("--algos", name, known) for name in flags.algos}
    runs = flags.out if flags.runs is None else flags.runs  # in a folder `runs` there
    changed = None if flags.pages else [grid.name for grid in parts]
    command = command_line.quoted_command(f"python -m studies {study.name}", arguments)
    failed = False
    for grid in parts:
        of_file = next(iter(grid.rows.values())).data.dataset.startswith("npz:")  # a path from the current folder
        data_dir = None if of_file else flags.data_dir
        done = running.run(grid, flags.out, runs, scale, command, _say, grids, algos, data_dir, workers)
        if done.stopped:
            pages.write(flags.out, changed)
            _say(f"Interrupted: {done.rows} of {len(grid.rows)} rows of {grid.name} are in {flags.out / grid.name}; "
                 "the same command resumes")  # fmt: skip
            return exit_code(done.stopped_by)
        for name, why in done.failed.items():
            _say(f"failed: {grid.name}, {name}: {why}")
        failed = failed or bool(done.failed)
    written = pages.write(flags.out, changed)
    if written:
        print(f"Written to {flags.out} (README.md, PNGs; {', '.join(written)})")
    else:
        why = f"no part in {flags.out} has a row of random selection, which a page needs"
        if flags.pages:
            raise UserError(f"--pages: {why}; give the --out of an earlier run")
        print(f"No page yet: {why}")
    return grid_flags.SOME_FAILED if failed else 0


def make_parser(study: Study) -> Parser:
    """Make the parser of a study's command."""
    prog = f"python -m studies {study.name}"
    parser = Parser(prog=prog, usage=f"{prog} PART ... [flags]", description=study.description, epilog=study.epilog)
    what = parser.add_argument_group("what to run")
    what.add_argument("parts", nargs="*", metavar="PART", help="parts or groups of parts; --list shows them")
    without_runs = what.add_mutually_exclusive_group()
    without_runs.add_argument("--list", action="store_true", help="list all parts with their amount of work, and exit")
    what.add_argument(
        "--algos", nargs="+", metavar="ALGO", help="strategies to run now; later commands add others (default: all)"
    )
    without_runs.add_argument(
        "--pages", action="store_true", help="rewrite pages, tables and plots of all parts without any run"
    )
    without_runs.add_argument(
        "--check",
        action="store_true",
        help="compare pages and verdicts with the curves, and the commits of runs with the protocol's",
    )
    grid_flags.add(parser, "the part's", Path("runs") / study.name.replace("-", "_"), "results folder")
    return parser


def chosen(names: Sequence[str], grids: "Mapping[str, Grid]") -> "list[Grid]":
    """Return the distinct grids for part or group names, each after the grids from which it follows."""
    groups = dict.fromkeys(grid.group for grid in grids.values())
    found: dict[str, Grid] = {}
    for name in names:
        if name in groups:
            found |= {grid.name: grid for grid in grids.values() if grid.group == name}
            continue
        needed = [grids[one_of("PART", name, (*groups, *grids))]]
        while needed[0].after:
            needed.insert(0, grids[needed[0].after])
        found |= {grid.name: grid for grid in needed}
    return list(found.values())


def _check(different: Sequence[str], out: Path) -> int:
    followed = f"{out} follows from its curves, verdicts included; no run is older than the protocol"
    print("\n".join(different) or followed)
    return 1 if different else 0


def _list(grids: "Mapping[str, Grid]") -> None:
    for name, grid in grids.items():
        first = next(iter(grid.rows.values())).run
        amount = f"{len(grid.rows)} runs of {len(first.seeds)} seeds and {first.rounds} rounds"
        print(name)
        print(command_line.fill(f"{grid.title}: {amount}", "    "))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
