"""What is run again: an entry for each table and figure that an experiment produced."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.papers import published
from fedjax_sel.papers.published import Published
from fedjax_sel.reproduction.page import Page
from fedjax_sel.runs.records import Result


class Cell(NamedTuple):
    """A place of a table: what a strategy does under the setting of a column."""

    column: str
    row: str


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
        """Refuse a share that leaves no rounds."""
        if not 0 < self.share <= 1:
            raise UserError(f"--scale: {self.share:g} is outside 0 (excluded) to 1 (included)")

    def apply(self, config: Config) -> Config:
        """Return a configuration with as much work as this scale allows."""
        rounds = self.rounds or max(1, round(self.share * config.run.rounds))
        return config.replace(rounds=rounds, seeds=self.seeds or config.run.seeds)

    @property
    def is_whole(self) -> bool:
        """Whether an entry is run as it is written down."""
        return self == Scale()


Runs = Mapping[Cell, Config]
Results = Mapping[Cell, Result]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A table or a figure of a paper.

    Attributes:
        name: of the published result, `paper/table1`, as on the command line.
        rule: what counts as reproduced; written down before any run.
        runs: what has to be run, without folders; empty where nothing is trained.
        judge: the page of finished runs, of which some may be missing.
        cost: what it takes here, in words.
    """

    name: str
    rule: str
    runs: Runs
    judge: Callable[[Results, Scale], Page]
    cost: str

    @property
    def published(self) -> Published:
        """What the paper says."""
        return published.get(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The settings that `--columns` picks from."""
        return tuple(dict.fromkeys(cell.column for cell in self.runs))

    def of_columns(self, wanted: tuple[str, ...] | None) -> "Entry":
        """Return the entry with some of its columns.

        Args:
            wanted: columns, or how their names begin, such as "fmnist"; None: all.

        Raises:
            UserError: one of them begins no column.
        """
        if wanted is None:
            return self
        for name in wanted:
            if not any(column.startswith(name) for column in self.columns):
                known = ", ".join(self.columns) or "none"
                raise UserError(f"--columns: {self.name} has no column {name!r}; it has {known}")
        return dataclasses.replace(
            self, runs={cell: config for cell, config in self.runs.items() if cell.column.startswith(wanted)}
        )


def folder_of(out: Path, cell: Cell, config: Config) -> Path:
    """Return where a run lies: entries that need the same one share it.

    Args:
        out: of all that is reproduced.
        cell: that needs it.
        config: of the run.
    """
    slug = "-".join([config.data.dataset.split(":")[0], config.selection.algo]).replace("/", "-")
    return out / "runs" / f"{slug}-{config.replace(out=None).fingerprint()}"
