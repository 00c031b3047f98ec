"""Execution of an entry: its runs, its page, and the result for Python callers."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedjax_sel import Result, UserError
from fedjax_sel.core import files
from fedjax_sel.core.files import FolderLock
from fedjax_sel.runs import folder
from studies.grid import Workers
from studies.papers import heading, page, replacing, runner
from studies.papers.entry import Cell, Entry, Part, Scale
from studies.papers.page import Page
from studies.papers.runner import Found

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]


class Folders(NamedTuple):
    """Output folders; pages are small, runs are large."""

    pages: Path
    runs: Path | None = None  # None: the folder of the pages

    @property
    def of_runs(self) -> Path:
        """Parent of the folder `runs`."""
        return self.pages if self.runs is None else self.runs


@dataclasses.dataclass(frozen=True)
class ReproductionResult:
    """Result of the reproduction of a table or figure. Its tables equal the CSV files in its folder.

    Attributes:
        entry: name of the entry, such as "fedcor/table1".
        folder: folder of its page.
        page: rows with verdicts, notes and pictures.
        results: results of the finished runs, by cell.
        failed: reasons of failure of other runs, by cell.
        planned: number of runs of the entry.
        stopped: whether the execution was interrupted; the same call resumes it.
        stopped_by: signal that interrupted it; 0 for an immediate Ctrl-C.
    """

    entry: str
    folder: Path
    page: Page
    results: Mapping[Cell, Result]
    failed: Mapping[Cell, str]
    planned: int
    stopped: bool = False
    stopped_by: int = 0

    @property
    def finished(self) -> bool:
        """Whether all runs of the entry are finished."""
        return len(self.results) == self.planned

    @property
    def tables(self) -> "dict[str, pandas.DataFrame]":
        """Pandas DataFrames by CSV file name: `rows` with the verdicts, and the data of the pictures.

        Raises:
            UserError: pandas is not installed.
        """
        return {name.removesuffix(".csv"): files.parse_csv(text) for name, text in page.csv_files(self.page).items()}

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table of `rows.csv`, one row per published number or claim, with ours and the verdict.

        Raises:
            UserError: pandas is not installed.
        """
        return self.tables["rows"]


def run(
    entry: Entry,
    part: Part,
    folders: Folders,
    scale: Scale,
    command: str,
    say: Callable[[str], None],
    workers: Workers | None = None,
    progress: bool = True,
) -> ReproductionResult:
    """Run a part of an entry, and write its page after each run.

    Args:
        entry: the entry.
        part: runs to execute.
        folders: output folders; the page goes to a subfolder named after the entry.
        scale: scale of the runs.
        command: command line, for the page.
        say: function that prints a line before each run.
        workers: workers for the runs; None: this process.
        progress: whether runs show a progress bar.

    Raises:
        UserError: the part is unknown or empty, no run succeeded, the page cannot be written, or it would replace a
            page with more runs.
    """
    place, runs, scale = folders.pages / entry.name, folders.of_runs, entry.own(scale)
    if (before := heading.read(place)) is not None:  # fail before any run, not at the end
        known = runner.with_others(entry, runs, scale, Found({}, {}))
        replacing.check(before, place, runs, entry, scale, known)

    def write(found: Found) -> tuple[Found, Page]:
        folder.make(place)
        with FolderLock() as lock:  # with parallel processes, the last writer includes the runs of all
            lock.take(place, wait=True)
            found, before = runner.with_others(entry, runs, scale, found), heading.read(place)
            replacing.check(before, place, runs, entry, scale, found)
            judged = entry.judge(found.results, scale)
            if replacing.is_due(before, entry, found):
                made_by = replacing.commands(before, scale, command)
                page.write(place, heading.lines(entry, scale, made_by, found), judged)
                heading.write(place, entry, scale, made_by, found)
        return found, judged

    found = Found({}, {})
    if entry.runs:
        found = runner.run(entry, part, runs, scale, say, write, workers, progress)
        if found.failed and not found.results and not found.stopped:
            raise UserError(f"{entry.name}: no run succeeded; the first one: {next(iter(found.failed.values()))}")
    found, judged = write(found)
    return ReproductionResult(
        entry.name, place, judged, found.results, {cell: failure.why for cell, failure in found.failed.items()},
        len(heading.expected(entry, found)), found.stopped, found.stopped_by,
    )  # fmt: skip
