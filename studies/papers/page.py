"""What an entry leaves in its folder: a page for people, its table for programs, and pictures."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from fedjax_sel.core import whole_files
from fedjax_sel.core.texts import cell
from fedjax_sel.reporting import png
from fedjax_sel.runs import out_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PAGE = "README.md"


class Row(NamedTuple):
    """A published number or claim, and what comes out here."""

    setting: str
    what: str
    paper: str
    ours: str
    seeds: int
    difference: str  # ours minus the paper's, or the claimed winner minus the other, with its interval
    verdict: str


class Page(NamedTuple):
    """What is known of an entry."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    pictures: "Mapping[str, Figure]" = MappingProxyType({})
    tables: Mapping[str, str] = MappingProxyType({})  # file name -> CSV, of what the pictures show


def write(folder: Path, heading: Sequence[str], page: Page) -> None:
    """Write a page and what it shows; each file whole or not at all.

    Args:
        folder: is made where it is missing.
        heading: lines above the table: title, claim, rule, command.
        page: what is known.

    Raises:
        UserError: it cannot be written there.
    """
    with out_folder.writing(folder):
        for name, text in csv_files(page).items():
            whole_files.write(folder / name, text.encode())
        for name, figure in page.pictures.items():
            whole_files.write(folder / name, png.of(figure))
        whole_files.write(folder / PAGE, as_markdown(heading, page).encode())


def csv_files(page: Page) -> dict[str, str]:
    """Return the tables of a page for programs: name of the file -> its text; `rows.csv` is the page's own."""
    return {"rows.csv": as_csv(page.rows), **page.tables}


def as_csv(rows: Sequence[Row]) -> str:
    """Return the rows for programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(heading: Sequence[str], page: Page) -> str:
    """Return the page for people."""
    lines = [
        *heading,
        "",
        "| setting | what | paper | here | seeds | difference | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(cell(str(value)) for value in row)} |" for row in page.rows]
    lines += [line for name in page.pictures for line in ("", f"![{name.removesuffix('.png')}]({name})")]
    lines += [line for note in page.notes for line in ("", note)]
    return "\n".join(lines) + "\n"
