"""`fedjax-sel report`: a table and a plot per setting, or one HTML page, from run folders."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser, say
from fedjax_sel.core import files
from fedjax_sel.core.parsing import markdown_table
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.reporting.html import Chapter, Run
    from fedjax_sel.runs.run_files import Result

DESCRIPTION = """Compares finished or interrupted runs: a Markdown table on stdout and curves in a PNG, or with --html
one page with all details."""
EPILOG = """examples:
  fedjax-sel report runs/a runs/b --out comparison.png
      a table and curves
  fedjax-sel report runs/digits --html report.html
      all runs of a comparison, on one page

Runs are grouped by setting (data, partition, model, training, rounds, seeds, target, ...). Each setting has its own
table, headed by its differences, and its own plot: comparison-1.png, comparison-2.png. On an HTML page, each setting is
a chapter. The page is one self-contained file; docs/reports.md shows one.
"""
PAGE, PICTURE = Path("report.html"), Path("curves.png")
PAGES = (".html", ".htm")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parsed = make_parser().parse_args(arguments)
    _check(parsed)

    from fedjax_sel.reporting import html

    if parsed.html is not None:
        html.plotly()  # reports a missing package before any run is read
    runs = dict.fromkeys(run for path in parsed.folders for run in html.runs_in(path))
    chapters = html.chapters_of(_with_rounds(list(runs), parsed.folders), parsed.target_accuracy)
    if parsed.html is None or parsed.out is not None:
        _tables_and_pictures(chapters, parsed.out or PICTURE, parsed.style)
    if parsed.measures:
        for chapter in chapters:
            print(f"\n{measures(chapter.runs)}")
    if parsed.html is not None:
        text = html.render(chapters).encode()
        try:
            parsed.html.parent.mkdir(parents=True, exist_ok=True)
            files.write(parsed.html, text)
        except OSError as error:
            why = f"cannot write {parsed.html} ({error.strerror or error})"
            raise UserError(f"--html: {why}; choose another file") from error
        print(f"Report in {parsed.html}")
    return 0


def make_parser() -> Parser:
    """Make the command's parser."""
    usage = "fedjax-sel report FOLDER ... [flags]"
    parser = Parser(prog="fedjax-sel report", usage=usage, description=DESCRIPTION, epilog=EPILOG)
    what = parser.add_argument_group("what to show")
    about = "run folders (--out of the train command), or folders of runs (--out of the compare command)"
    what.add_argument("folders", nargs="+", type=command_line.path, metavar="FOLDER", help=about)
    about = "target of all runs (default: each run's own)"
    what.add_argument("--target-accuracy", type=float, metavar="X", help=about)
    how = parser.add_argument_group("output")
    about = f"image file of the curves (default: {PICTURE}; none with --html)"
    how.add_argument("--out", type=command_line.picture, metavar="FILE", help=about)
    command_line.add_style(how)
    about = "print macro F1, AUC and the like of the final models; evaluates them on the runs' data"
    how.add_argument("--measures", action="store_true", help=about)
    about = f"write one HTML page (default: none; without FILE: {PAGE}); requires pip install 'fedjax-sel[html]'"
    how.add_argument("--html", nargs="?", type=command_line.path, const=PAGE, metavar="FILE", help=about)
    return parser


def _check(parsed: argparse.Namespace) -> None:
    """Reject incompatible flags before reading any run."""
    if parsed.out is not None and parsed.out.suffix.lower() in PAGES:
        raise UserError(f"--out: {parsed.out} is a page, not a picture; write --html {parsed.out}")
    if parsed.html is None:
        return
    if parsed.html.is_dir():
        file = parsed.html / PAGE
        raise UserError(f"--html: {parsed.html} is a folder; name a file in it, such as {file}, or put --html last")
    if parsed.out is None and parsed.style != "screen":
        raise UserError("--style: has no effect on the page; add --out, or remove --style")


def _with_rounds(runs: list[Path], given: list[Path]) -> list[Path]:
    """Skip runs without a complete round, unless they were named explicitly or no other run remains."""
    from fedjax_sel.runs import folder

    empty = [run for run in runs if run not in given and folder.has_no_round(run)]
    for run in empty:
        say(f"{run} has no complete round yet; skipped")
    return [run for run in runs if run not in empty] or runs


def _tables_and_pictures(chapters: "Sequence[Chapter]", out: Path, style: str) -> None:
    from fedjax_sel.reporting import plots

    for number, chapter in enumerate(chapters, start=1):
        picture = out
        if len(chapters) > 1:
            picture = picture.with_name(f"{picture.stem}-{number}{picture.suffix}")
            print(f"{'' if number == 1 else chr(10)}## {chapter.title}\n")
            if chapter.differs:
                print(f"Different setting: {chapter.differs}\n")
        print(markdown(chapter.results))
        plots.curves(chapter.results, picture, plots.look_of(None, style))
        print(f"\nCurves in {picture}")


def measures(runs: "Sequence[Run]") -> str:
    """Return a Markdown table of the measures of final models: mean and standard deviation over seeds."""
    import numpy as np

    import fedjax_sel
    from fedjax_sel import metrics
    from fedjax_sel.config import is_value
    from fedjax_sel.runs import folder

    tables: dict[str, dict[str, str]] = {}
    for name, path, _ in runs:
        stored = folder.stored_config(path)
        own = [*stored.plugins(), *(one for one in stored.flat().values() if isinstance(one, str) and is_value(one))]
        if own:  # a report must not import code that a folder names
            say(
                f"--measures: {path} has code or values of its own ({', '.join(own)}), which only a run knows; "
                "call fedjax_sel.measures in your own script"
            )
            tables[name] = {}
            continue
        result, table = fedjax_sel.load(path), {}
        for measure, values in (fedjax_sel.measures(result) if result.weights else {}).items():  # None: not ended
            table[f"{measure} (test set)"] = " ± ".join(filter(None, command_line.mean_and_deviation(measure, values)))
        tested = result.weights and result.final_client_tests()
        for measure, values in (fedjax_sel.measures(result, on="clients") if tested else {}).items():
            split = np.split(values, [result.config.num_training_clients], axis=1)
            for whose, values in zip(("clients", "unseen clients"), split):
                if np.isnan(values).all():  # no such client, or none with test data
                    continue
                missing = np.isnan(values).sum(axis=1).mean()
                pair = command_line.mean_and_deviation(measure, metrics.mean_of_measured(values, axis=1))
                note = f" ({missing:g} of {values.shape[1]} undefined)" if missing else ""
                table[f"{measure} (mean over {whose})"] = " ± ".join(filter(None, pair)) + note
        tables[name] = table
    return _table(tables)


def _table(rows: Mapping[str, Mapping[str, str]]) -> str:
    """Return a Markdown table from cells by row and column; a missing cell is empty."""
    heads = list(dict.fromkeys(head for row in rows.values() for head in row))
    return markdown_table(heads, [(name, [row.get(head, "") for head in heads]) for name, row in rows.items()])


def markdown(results: Mapping[str, "Result"]) -> str:
    """Return a Markdown table of several runs: mean and standard deviation over seeds, N/A if any seed is NaN."""
    tables = {}
    for name, result in results.items():
        pairs = {row: command_line.mean_and_deviation(row, values) for row, values in result.summary()}
        tables[name] = {row: " ± ".join(filter(None, pair)) for row, pair in pairs.items()}
    return _table(tables)
