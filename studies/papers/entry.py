"""Entries of the reproductions, one for each experimental table or figure."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel import Config, Result, UserError
from studies.grid import Enough
from studies.papers import published
from studies.papers.page import Page
from studies.papers.published import Published


class Cell(NamedTuple):
    """Cell of a table: one strategy (row) in one setting (column)."""

    column: str
    row: str


class Part(NamedTuple):
    """Subset of an entry's runs to execute. The entry's page always shows all finished runs.

    Attributes:
        columns: settings, or prefixes of their names such as "fmnist"; None: all except those on request.
        rows: strategies; None: all.
    """

    columns: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Scale:
    """Scale of an entry's runs; the page states a reduced scale.

    Attributes:
        seeds: seeds that replace the entry's; None: the entry's.
        rounds: number of rounds that replaces the entry's; None: the entry's.
        share: fraction of the entry's rounds.
    """

    seeds: tuple[int, ...] | None = None
    rounds: int | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        """Reject scales without rounds, or with both `rounds` and `share`."""
        if not 0 < self.share <= 1:
            raise UserError(f"--scale: {self.share:g} is outside 0 (excluded) to 1 (included); give e.g. 0.2")
        if self.rounds is not None and self.rounds < 1:
            raise UserError(f"--rounds: {self.rounds} is below 1; give the number of rounds, or leave it out")
        if self.rounds is not None and self.share != 1:
            raise UserError(f"--rounds and --scale: {self.rounds} and {self.share:g} both set the rounds; give one")

    def apply(self, config: Config) -> Config:
        """Return a configuration at this scale."""
        rounds = max(1, round(self.share * config.run.rounds)) if self.rounds is None else self.rounds
        return config.replace(rounds=rounds, seeds=self.seeds or config.run.seeds)

    @property
    def whole_rounds(self) -> bool:
        """Whether runs have all rounds of the entry; final values of shorter runs have no counterpart in a paper."""
        return self.rounds is None and self.share == 1

    def in_words(self) -> str:
        """Return the differences from the entry's scale as text; empty if there are no differences."""
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
    """Measurement on a finished run, saved in its folder for the evaluation.

    Attributes:
        take: function from (result, scale) that measures the missing parts and yields a progress line or "" per step.
        is_there: function from (result, scale) to whether the measurement is complete.
        took: function from (result, scale) to its seconds, NaN if not recorded; None for instant measurements.
    """

    take: Callable[[Result, Scale], Iterator[str]]
    is_there: Callable[[Result, Scale], bool]
    took: Callable[[Result, Scale], float] | None = None


@dataclasses.dataclass(frozen=True)
class Entry:
    """A table or a figure of a paper.

    Attributes:
        name: name of the published result, such as `paper/table1`, as on the command line.
        rule: rule of the verdicts, fixed before any run.
        runs: configurations without folders, by cell; empty if no training is necessary.
        judge: function from the finished runs, possibly incomplete, and the scale to the page.
        cost: text on the run time.
        measure: measurement on each finished run, required for its evaluation; see `runs.grid.Afterwards`.
        on_request: columns that run only if `--columns` names them, because they need a user's own files or special
            hardware.
        enough: condition for early stopping, when later rounds cannot change the evaluation; None: never.
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
        """Published result."""
        return published.get(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Settings, the values of `--columns`."""
        return tuple(dict.fromkeys(cell.column for cell in self.runs))

    @property
    def rows(self) -> tuple[str, ...]:
        """Strategies or their variants, the values of `--rows`."""
        return tuple(dict.fromkeys(cell.row for cell in self.runs))

    def own(self, scale: Scale) -> Scale:
        """Return the scale without seeds if they equal the entry's own."""
        has = {config.run.seeds for config in self.runs.values()} == {scale.seeds}
        return dataclasses.replace(scale, seeds=None) if has else scale

    def afterwards(self, scale: Scale) -> Callable[[Result], Iterator[str]] | None:
        """Return the measurement function for a finished run; None if the entry has no measurement."""
        return None if self.measure is None else functools.partial(_measured, self.measure, scale)

    def is_measured(self, result: Result, scale: Scale) -> bool:
        """Return whether the measurement of a finished run is complete."""
        return self.measure is None or self.measure.is_there(result, scale)

    def replace(self, **changes: Any) -> "Entry":
        """Return the entry with changed fields in all its configurations, such as `data_dir`."""
        return dataclasses.replace(self, runs={cell: config.replace(**changes) for cell, config in self.runs.items()})

    def of_part(self, part: Part) -> "Entry":
        """Return the entry with a subset of its runs.

        Raises:
            UserError: a column or row is unknown, or the selection is empty.
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
    """Return the folder of a run. Entries with equal configurations share it.

    Runs with fewer rounds have separate folders, because some strategies plan for all rounds from the start. So do runs
    with intermediate checkpoints, because other runs keep only the last ones.

    Args:
        out: parent folder of the reproductions.
        config: configuration of the run.
    """
    slug = re.sub(r"[^\w.]+", "-", f"{config.data.dataset.split(':')[0]}-{config.selection.algo}")
    kept = "" if config.run.checkpoint_every is None else f"-every-{config.run.checkpoint_every}"
    return out / "runs" / f"{slug}-{config.run.rounds}{kept}-{config.fingerprint()}"
