"""`python -m fedjax_sel.report`: run folders -> one table and one picture."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedjax_sel import command_line
from fedjax_sel.errors import UserError

DESCRIPTION = "Puts finished or interrupted runs side by side: a Markdown table on stdout, curves in a PNG."
EPILOG = """example:
  python -m fedjax_sel.report runs/a runs/b --out comparison.png
"""


def main(arguments: Sequence[str]) -> int:
    """The command.

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
    given = parser.parse_args(arguments)

    from fedjax_sel import plots, show
    from fedjax_sel.runs import folder

    results = {path: folder.load(path) for path in given.folders}
    for path, result in results.items():
        if not result.num_rounds:
            raise UserError(f"{path}: the run has no whole round yet; wait for one, or leave it out")
    folder.check_agreement(given.folders)
    algos = [result.config.selection.algo for result in results.values()]
    unique = len(set(algos)) == len(algos)
    named = {algo if unique else str(path): result for algo, (path, result) in zip(algos, results.items())}
    print(show.markdown(named))
    plots.curves(named, given.out)
    print(f"\nCurves in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.guarded(main))
