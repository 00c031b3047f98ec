"""An entry run again: its runs, its page in its folder, and what a caller gets."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedjax_sel.core import frames
from fedjax_sel.core.folder_lock import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.runs import out_folder
from fedjax_sel.runs.records import Result
from studies.grid import Workers
from studies.papers import heading, page, replacing, runner
from studies.papers.entry import Cell, Entry, Part, Scale
from studies.papers.page import Page
from studies.papers.runner import Found

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]


class Folders(NamedTuple):
    """Where things go: pages are small, and runs are not."""

    pages: Path
    runs: Path | None = None  # None: beside the pages

    @property
    def of_runs(self) -> Path:
        """The folder whose folder `runs` holds the runs."""
        return self.pages if self.runs is None else self.runs


@dataclasses.dataclass(frozen=True)
class ReproductionResult:
    """What running a table or a figure again found. Its tables are those of the CSV files in its folder.

    Attributes:
        entry: its name, such as "fedcor/table1".
        folder: that holds its page.
        page: rows with the verdicts, notes, pictures.
        results: of the runs that are finished.
        failed: why others are not.
        planned: how many runs the entry has.
        stopped: whether it ended early; the same call goes on.
        stopped_by: the signal that ended it; 0 where Ctrl-C interrupted it at once.
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
        """Pandas DataFrames by the names of the CSV files: `rows`, the verdicts, and what the pictures show.

        Raises:
            UserError: pandas is not installed.
        """
        return {name.removesuffix(".csv"): frames.of_csv(text) for name, text in page.csv_files(self.page).items()}

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table of `rows.csv`: a row a published number or claim, with ours and the verdict.

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
    """Run a part of an entry, and write its page after every run.

    Args:
        entry: of which table or figure.
        part: which of its runs.
        folders: of all that is reproduced; the page lies in one named after the entry.
        scale: how much of it.
        command: what made it, for the page.
        say: takes a line for the person before each run.
        workers: that take the runs; None: this process.
        progress: whether each run shows its bar.

    Raises:
        UserError: there is no such part, no run succeeded, the page cannot be written, or it would replace one of
            more.
    """
    place, runs, scale = folders.pages / entry.name, folders.of_runs, entry.own(scale)
    if (before := heading.told(place)) is not None:  # what would be refused at the end is refused before any run
        known = runner.with_others(entry, runs, scale, Found({}, {}))
        replacing.check(before, place, runs, entry, scale, known)

    def write(found: Found) -> tuple[Found, Page]:
        out_folder.make(place)
        with FolderLock() as lock:  # another process may run another part: who writes last has all of both
            lock.take(place, wait=True)
            found, before = runner.with_others(entry, runs, scale, found), heading.told(place)
            replacing.check(before, place, runs, entry, scale, found)
            judged = entry.judge(found.results, scale)
            if replacing.is_due(before, entry, found):
                made_by = replacing.commands(before, scale, command)
                page.write(place, heading.lines(entry, scale, made_by, found), judged)
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
