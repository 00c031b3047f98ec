"""What is run again: an entry for each table and figure that an experiment produced."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.runs.records import Result
from studies.grid import Enough
from studies.papers import published
from studies.papers.page import Page
from studies.papers.published import Published


class Cell(NamedTuple):
    """A place of a table: what a strategy does under the setting of a column."""

    column: str
    row: str


class Part(NamedTuple):
    """Which runs of an entry are run now; its page has all that are finished.

    Attributes:
        columns: its settings, or how their names begin, such as "fmnist"; None: all that need not be asked for.
        rows: its strategies; None: all.
    """

    columns: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much of an entry is run: less of it tells less, and its page says so.

    Attributes:
        seeds: instead of the entry's.
        rounds: instead of the entry's.
        share: of the entry's rounds.
    """

    seeds: tuple[int, ...] | None = None
    rounds: int | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what leaves no rounds, or says twice how many."""
        if not 0 < self.share <= 1:
            raise UserError(f"--scale: {self.share:g} is outside 0 (excluded) to 1 (included); give e.g. 0.2")
        if self.rounds is not None and self.rounds < 1:
            raise UserError(f"--rounds: {self.rounds} is below 1; give the number of rounds, or leave it out")
        if self.rounds is not None and self.share != 1:
            raise UserError(f"--rounds and --scale: {self.rounds} and {self.share:g} both set the rounds; give one")

    def apply(self, config: Config) -> Config:
        """Return a configuration with as much work as this scale allows."""
        rounds = max(1, round(self.share * config.run.rounds)) if self.rounds is None else self.rounds
        return config.replace(rounds=rounds, seeds=self.seeds or config.run.seeds)

    @property
    def whole_rounds(self) -> bool:
        """Whether runs have the rounds that the entry says: else what their end shows is nothing that a paper has."""
        return self.rounds is None and self.share == 1

    def in_words(self) -> str:
        """Return what is other than the entry has it; empty where nothing is."""
        parts = []
        if self.seeds is not None:
            parts.append(f"{'seed' if len(self.seeds) == 1 else 'seeds'} {', '.join(map(str, self.seeds))}")
        if self.rounds is not None:
            parts.append(f"{self.rounds} {'round' if self.rounds == 1 else 'rounds'}")
        if self.share != 1:
            parts.append(f"{self.share:g} of the rounds")
        return "; ".join(parts)


Runs = Mapping[Cell, Config]
Results = Mapping[Cell, Result]


class Measure(NamedTuple):
    """What is measured on a finished run, and kept in its folder for the judge.

    Attributes:
        take: (result, scale) -> after every piece of work a line for the person, or none; finds what is there.
        is_there: (result, scale) -> whether all of it is kept.
        took: (result, scale) -> seconds, NaN where they were not written down; None for what takes no time.
    """

    take: Callable[[Result, Scale], Iterator[str]]
    is_there: Callable[[Result, Scale], bool]
    took: Callable[[Result, Scale], float] | None = None


@dataclasses.dataclass(frozen=True)
class Entry:
    """A table or a figure of a paper.

    Attributes:
        name: of the published result, `paper/table1`, as on the command line.
        rule: what counts as reproduced; written down before any run.
        runs: what has to be run, without folders; empty where nothing is trained.
        judge: the page of finished runs, of which some may be missing.
        cost: what it takes here, in words.
        measure: what is measured on each finished run, without which it is not judged; see `runs.grid.Afterwards`.
        on_request: columns that are run only where `--columns` names them: they take a user's own files, or what few
            have at hand.
        enough: when a run may end before its last round, since nothing that the judge looks at can change any more;
            None: never.
    """

    name: str
    rule: str
    runs: Runs
    judge: Callable[[Results, Scale], Page]
    cost: str
    measure: Measure | None = None
    on_request: tuple[str, ...] = ()
    enough: Enough | None = None

    @property
    def published(self) -> Published:
        """What the paper says."""
        return published.get(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The settings that `--columns` picks from."""
        return tuple(dict.fromkeys(cell.column for cell in self.runs))

    @property
    def rows(self) -> tuple[str, ...]:
        """The strategies, or their variants, that `--rows` picks from."""
        return tuple(dict.fromkeys(cell.row for cell in self.runs))

    def own(self, scale: Scale) -> Scale:
        """Return how much of the entry is run: to ask for the seeds that it has is to ask for nothing else."""
        has = {config.run.seeds for config in self.runs.values()} == {scale.seeds}
        return dataclasses.replace(scale, seeds=None) if has else scale

    def afterwards(self, scale: Scale) -> Callable[[Result], Iterator[str]] | None:
        """Return what is done on each finished run; None where nothing is."""
        return None if self.measure is None else functools.partial(_measured, self.measure, scale)

    def is_measured(self, result: Result, scale: Scale) -> bool:
        """Return whether there is all that is measured on a finished run."""
        return self.measure is None or self.measure.is_there(result, scale)

    def replace(self, **changes: Any) -> "Entry":
        """Return the entry with other values of fields of its configurations, such as `data_dir`."""
        return dataclasses.replace(self, runs={cell: config.replace(**changes) for cell, config in self.runs.items()})

    def of_part(self, part: Part) -> "Entry":
        """Return the entry with some of its runs.

        Raises:
            UserError: there is no such column or row, or not both together.
        """
        for name in part.columns or ():
            if not any(column.startswith(name) for column in self.columns):
                known = ", ".join(self.columns) or "none"
                raise UserError(f"--columns: {self.name} has no column {name!r}; it has {known}")
        for name in part.rows or ():
            if name not in self.rows:
                known = ", ".join(map(repr, self.rows)) or "none"
                raise UserError(f"--rows: {self.name} has no row {name!r}; it has {known}")
        runs = {cell: config for cell, config in self.runs.items() if self._is_of(cell, part)}
        if not runs and part != Part():
            raise UserError(f"--rows: {self.name} has none of them in these columns; leave --rows or --columns out")
        return dataclasses.replace(self, runs=runs)

    def _is_of(self, cell: Cell, part: Part) -> bool:
        asked = cell.column not in self.on_request if part.columns is None else cell.column.startswith(part.columns)
        return asked and (part.rows is None or cell.row in part.rows)


def _measured(measure: Measure, scale: Scale, result: Result) -> Iterator[str]:
    return measure.take(result, scale)


def folder_of(out: Path, config: Config) -> Path:
    """Return where a run lies: entries that need the same one share it.

    A run of fewer rounds has a folder of its own, since some strategies plan for all their rounds from the start; and
    one that keeps its states on the way, since another run leaves only the last ones.

    Args:
        out: of all that is reproduced.
        config: of the run.
    """
    slug = re.sub(r"[^\w.]+", "-", f"{config.data.dataset.split(':')[0]}-{config.selection.algo}")
    kept = "" if config.run.checkpoint_every is None else f"-every-{config.run.checkpoint_every}"
    return out / "runs" / f"{slug}-{config.run.rounds}{kept}-{config.fingerprint()}"
