"""`python -m studies tasks`: every strategy on several tasks, with tuned learning rates."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel import UserError
from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.core.parsing import one_of
from studies import flags as grid_flags

if TYPE_CHECKING:
    from studies.leaderboard.grids import Grid

DESCRIPTION = """Runs every strategy on gray images, color features, text, many clients and CNNs. The learning rates are
tuned for random selection first. The protocol is the first part of studies/tasks/protocol.py."""
EPILOG = """examples:
  python -m studies tasks --list                        all parts
  python -m studies tasks gray-2labels                  the learning rates of a setting, then its rows
  python -m studies tasks gray color many               groups of parts
  python -m studies tasks gray-2labels --seeds 2 --scale 0.1 --out runs/look
                                                        a quick trial

color needs runs/cifar10_features.npz:
  python examples/frozen_features.py --dataset cifar10 --out runs/cifar10_features.npz

DIR/PART holds curves.csv.gz and about.json. Finished rows are reused: repeat an interrupted command to resume it.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: the command-line arguments, without the program name.

    Returns:
        The exit code.
    """
    flags = make_parser().parse_args(arguments)
    from fedjax_sel.runs.terminal import exit_code
    from studies.leaderboard import running
    from studies.tasks.protocol import GRIDS

    if flags.list:
        for grid in GRIDS.values():
            print(f"{grid.name:24} {len(grid.rows):3} runs  {grid.title}")
        return 0
    chosen: dict[str, Grid] = {}
    groups = dict.fromkeys(grid.group for grid in GRIDS.values())
    for name in flags.parts:
        if name in groups:
            chosen |= {grid.name: grid for grid in GRIDS.values() if grid.group == name}
        else:
            grid = GRIDS[one_of("PART", name, (*groups, *GRIDS))]
            chosen |= {one.name: one for one in _with_earlier(grid, GRIDS)}
    if flags.pages or flags.check:
        return _pages(flags.out, flags.check)
    if not chosen:
        raise UserError("missing PART; --list shows all parts")
    known = dict.fromkeys(config.selection.algo for grid in GRIDS.values() for config in grid.rows.values())
    algos = None if flags.algos is None else {one_of("--algos", name, known) for name in flags.algos}
    scale, workers = grid_flags.scale_of(flags), grid_flags.workers_of(flags)
    runs = flags.out if flags.runs is None else flags.runs
    failed = False
    for grid in chosen.values():
        command = command_line.quoted_command("python -m studies tasks", arguments)
        of_file = next(iter(grid.rows.values())).data.dataset.startswith("npz:")  # a path from the current folder
        data_dir = None if of_file else flags.data_dir
        done = running.run(grid, flags.out, runs, scale, command, _say, algos, data_dir, workers, others=GRIDS)
        if done.stopped:
            _say(
                f"Interrupted: {done.rows} rows of {grid.name} are in {flags.out / grid.name}; the same command resumes"
            )
            return exit_code(done.stopped_by)
        for name, why in done.failed.items():
            _say(f"failed: {grid.name}, {name}: {why}")
        failed = failed or bool(done.failed)
    return _pages(flags.out) or (grid_flags.SOME_FAILED if failed else 0)


def _pages(out: Path, check: bool = False) -> int:
    """Write the pages of a results folder, or compare them with its files."""
    from fedjax_sel.core import files
    from studies.tasks import page

    texts = page.files(out)
    if not texts and check:
        raise UserError(f"--check: {out} contains no curves.csv.gz of any setting; give --out")
    if check:
        different = [name for name, text in texts.items() if not _equals(out / name, text)]
        for name in different:
            print(f"{out / name} does not follow from the curves; --pages rewrites it")
        for name in page.older_than_protocol(out):
            print(f"{out / name}: a run is older than the protocol")
            different.append(name)
        if not different:
            print(f"{len(texts)} files follow from the curves, verdicts included; no run is older than the protocol")
        return 1 if different else 0
    for name, text in texts.items():
        files.write(out / name, text.encode())
    if (drawn := page.picture(out)) is not None:
        files.write(out / "gains.png", drawn)
    print(f"Written to {out} ({len(texts)} pages and tables)")
    return 0


def _equals(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = Parser(
        prog="python -m studies tasks",
        usage="python -m studies tasks PART ... [flags]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    what = parser.add_argument_group("what to run")
    what.add_argument("parts", nargs="*", metavar="PART", help="settings such as gray-2labels, or groups such as gray")
    what.add_argument("--list", action="store_true", help="list all parts, and exit")
    what.add_argument(
        "--algos", nargs="+", metavar="ALGO", help="strategies to run now; later commands add others (default: all)"
    )
    what.add_argument("--pages", action="store_true", help="rewrite all pages and tables from the curves; runs nothing")
    what.add_argument(
        "--check", action="store_true",
        help="compare pages, tables and verdicts with the curves, and the commits of runs and protocol; runs nothing",
    )  # fmt: skip
    grid_flags.add(parser, "the part's", Path("runs/tasks"), "results folder")
    return parser


def _with_earlier(grid: "Grid", grids: "Mapping[str, Grid]") -> "list[Grid]":
    """Return a part after the parts from which it follows."""
    return [*(_with_earlier(grids[grid.after], grids) if grid.after else ()), grid]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
