"""`python -m fedjax_sel.report`: run folders -> a table and a picture for each setting."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedjax_sel.cli import command_line

DESCRIPTION = "Puts finished or interrupted runs side by side: a Markdown table on stdout, curves in a PNG."
EPILOG = """example:
  python -m fedjax_sel.report runs/a runs/b --out comparison.png

Runs that differ in more than their strategy (data, partition, model, training, rounds, seeds, target, ...) get a table
each, with what differs above it, and a picture each: comparison-1.png, comparison-2.png.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    parser = command_line.Parser(
        prog="python -m fedjax_sel.report",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "folders", nargs="+", type=command_line.path, metavar="FOLDER", help="run folders (--out of the train command)"
    )
    parser.add_argument(
        "--out", type=command_line.picture, default=Path("curves.png"), help="picture to write (default: curves.png)"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parsed = parser.parse_args(arguments)

    from fedjax_sel.cli import show
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs import settings

    found = settings.by_setting(parsed.folders)
    for number, (results, differs) in enumerate(found, start=1):
        picture: Path = parsed.out
        if len(found) > 1:
            picture = picture.with_name(f"{picture.stem}-{number}{picture.suffix}")
            first = next(iter(results.values()))
            print(f"{'' if number == 1 else chr(10)}## {plots.title(first.config, first.data_source)}\n")
            if differs:
                print(f"Another setting: {differs}\n")
        algos = [result.config.selection.algo for result in results.values()]
        unique = len(set(algos)) == len(algos)
        named = {algo if unique else str(path): result for algo, (path, result) in zip(algos, results.items())}
        print(show.markdown(named))
        plots.curves(named, picture)
        print(f"\nCurves in {picture}")
    return 0


def entry_point() -> int:
    """Run the command, for `python -m`."""
    return command_line.guarded(main)
