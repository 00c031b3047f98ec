"""The shape of a published result: numbers on axes, each with the words of the paper that carry it.

Accuracies are fractions of 1 (the paper's "69%" is 0.69), rounds are counted from 1, and a strategy has the name that
`--algo` knows. A quote is a verbatim piece of the paper's text, up to runs of white space.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

LONGEST_QUOTE = 120  # characters: enough to carry a number, too few to carry the paper

Value: TypeAlias = "float | str | tuple[Value, ...] | Mapping[str, Value]"
Source: TypeAlias = Literal["table", "text", "theorem", "picture; read off the picture: no"]
PICTURE: Source = "picture; read off the picture: no"


class Cell(NamedTuple):
    """Hold one number of a table.

    Attributes:
        value: the number.
        spread: what the paper prints after the plus-minus sign; None where it prints none.
        bound: how the number is meant; anything but "exactly" is the paper's own word ("nearly", "within", ">").
    """

    value: float
    spread: float | None = None
    bound: Literal["exactly", "about", "at most", "more than"] = "exactly"


class Row(NamedTuple):
    """Hold one row of a table.

    Attributes:
        cells: a number for each column; None where the paper prints N/A.
        quotes: verbatim pieces of the paper in the order in which they stand there; together they hold the numbers of
            the row from left to right.
    """

    cells: tuple[Cell | None, ...]
    quotes: tuple[str, ...]


class Stated(NamedTuple):
    """Hold one setting as the paper states it.

    Attributes:
        value: a number, words of the paper, or several of them, by name where they differ between data sets.
        quotes: verbatim pieces of the paper that hold every number of the value.
    """

    value: Value
    quotes: tuple[str, ...]


@dataclass(frozen=True)
class Numbers:
    """Hold one block of numbers on two axes.

    Attributes:
        what: the quantity, in the field's terms.
        unit: "rounds", "fraction" (of 1), "clients", ...
        axes: what a row is and what a column is, e.g. ("strategy", "task").
        columns: names of the columns; a task is named as the presets are, e.g. "fmnist-2spc".
        rows: a row by its name.
        spread: what the number after the plus-minus sign is; empty where there is none.
        missing: what None means; empty where there is none.
    """

    what: str
    unit: str
    axes: tuple[str, str]
    columns: tuple[str, ...]
    rows: Mapping[str, Row]
    spread: str = ""
    missing: str = ""

    def cell(self, row: str, column: str) -> Cell | None:
        """Return one number by its row and column, None where the paper prints N/A."""
        return self.rows[row].cells[self.columns.index(column)]


@dataclass(frozen=True)
class Published:
    """Hold what a paper says about one of its tables or figures.

    Attributes:
        id: paper and label, e.g. "fedcor/table1".
        title: what the table or figure shows.
        claim: what the paper says that it shows, in one plain sentence.
        source: where its numbers stand.
        numbers: the numbers; empty where only a picture has them, or where the claim is a theorem.
        settings: how the paper says it was run. Keys are fields of `Config` where it has one of that meaning; what the
            paper leaves open is absent.
        reading: which reading is taken, and why, where the paper is silent, contradicts itself or its released code.
    """

    id: str
    title: str
    claim: str
    source: Source
    numbers: tuple[Numbers, ...] = ()
    settings: Mapping[str, Stated] = field(default_factory=dict)
    reading: str = ""

    @property
    def paper(self) -> str:
        """Return the paper's short name, e.g. "fedcor"."""
        return self.id.split("/")[0]

    @property
    def quotes(self) -> tuple[str, ...]:
        """Return every quote of the entry."""
        rows = [row for block in self.numbers for row in block.rows.values()]
        return tuple(quote for stated in [*rows, *self.settings.values()] for quote in stated.quotes)
