"""Output of an entry: a Markdown page, CSV tables and pictures."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from fedjax_sel.core import files
from fedjax_sel.core.parsing import cell
from fedjax_sel.runs import run_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PAGE = "README.md"


class Row(NamedTuple):
    """Published number or claim with our result."""

    setting: str
    what: str
    paper: str
    ours: str
    seeds: int
    difference: str  # ours minus the paper's, or the claimed winner minus another strategy, with its interval
    verdict: str


class Page(NamedTuple):
    """Content of an entry's page."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    pictures: "Mapping[str, Figure]" = MappingProxyType({})
    tables: Mapping[str, str] = MappingProxyType({})  # CSV with the data of the pictures, by file name


DPI = 100
PNG_COLORS = 256


def write(folder: Path, heading: Sequence[str], page: Page) -> None:
    """Write a page with its tables and pictures, each file atomically.

    Args:
        folder: folder of the page; created if missing.
        heading: lines above the table: title, claim, rule, command.
        page: content of the page.

    Raises:
        UserError: a file cannot be written.
    """
    with run_files.writing(folder):
        for name, text in csv_files(page).items():
            files.write(folder / name, text.encode())
        for name, figure in page.pictures.items():
            files.write(folder / name, png_bytes(figure))
        files.write(folder / PAGE, as_markdown(heading, page).encode())


def png_bytes(figure: "Figure") -> bytes:
    """Return the PNG of a Matplotlib figure, reduced to 256 colors, which affects only antialiased edges."""
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    picture = Image.open(drawn).convert("RGB")
    picture = picture.quantize(PNG_COLORS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    return small.getvalue()


def csv_files(page: Page) -> dict[str, str]:
    """Return the CSV files of a page by name; `rows.csv` is the table of the page."""
    return {"rows.csv": as_csv(page.rows), **page.tables}


def as_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(heading: Sequence[str], page: Page) -> str:
    """Return the page as Markdown."""
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
