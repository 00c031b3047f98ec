"""Every number of `studies.papers.published` stands in the words that it quotes, and they stand in the paper.

The second half needs the papers as text: FEDJAX_SEL_PAPERS names a folder with fedgp.txt, fedcor.txt,
fedcor_supplement.txt, gpfl.txt and fl_dp3s.txt.
"""

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedjax_sel import papers, strategies
from fedjax_sel.errors import UserError
from studies.papers import published
from studies.papers.published import LONGEST_QUOTE, PICTURE, Cell, Numbers, Row

ENTRIES = published.ENTRIES.values()
BLOCKS = [pytest.param(block, id=f"{entry.id}: {block.what}") for entry in ENTRIES for block in entry.numbers]
TABLES = {  # every table and figure with an experiment behind it, and the numbers of the running text
    "fedgp": ["table1", *(f"fig{number}" for number in range(1, 7)), "linearity"],
    "fedcor": [
        "table1",
        *(f"fig{number}" for number in range(1, 14)),
        "centralised",
        "hours",
        "appendix_b",
        "appendix_b2",
    ],
    "gpfl": [
        "table1",
        "table2",
        "fig1",
        *(f"fig{number}" for number in range(3, 8)),
        "theorem1",
    ],  # Fig. 2 draws a definition
    "fl_dp3s": [*(f"fig{number}" for number in range(1, 7)), "calibrated", "gemd", "theorem1"],
}
FILES = {"fedcor": ("fedcor", "fedcor_supplement")}  # else one of the paper's own name

# No digits of a name: neither "2SPC" nor "CIFAR-10" holds a number.
NUMBER = r"(?<![A-Za-z]-)(?<![\w.])\d+(?:\.\d+)?(?![A-Za-z]|\.?\d)"
WORDS = {"two": 2.0, "five": 5.0}
THOUSANDS = r"(?<![\d.])(\d{1,3}(?:,\d{3})+)(?![\d,])"


def numbers_of(text: str) -> list[float | None]:
    """The numbers of a quote from left to right: "69%" is 0.69, "N/A" is None, "500500500" is 500, "five" is 5."""
    found: list[float | None] = []
    for match in re.finditer(rf"N/A|\b(?:{'|'.join(WORDS)})\b|({NUMBER})(\s?\\?%)?", text):
        if not match[1]:
            found.append(WORDS.get(match[0]))
        elif match[2]:
            found.append(float(match[1]) / 100)
        else:
            third = match[1][: len(match[1]) // 3]
            found.append(float(third if third * 3 == match[1] and len(third) > 1 else match[1]))
    return found


def readings(quotes: tuple[str, ...]) -> list[list[float | None]]:
    """The numbers of quotes, with "3,550" as one number and as two, for "10,20,500" are three."""
    text = " ; ".join(quotes)
    return [numbers_of(text), numbers_of(re.sub(THOUSANDS, lambda match: match[1].replace(",", ""), text))]


def same(ours: float | None, theirs: float | None) -> bool:
    return ours is theirs if ours is None or theirs is None else math.isclose(ours, theirs)


def stand_in_order(row: Row) -> bool:
    """Whether the row's numbers, each with its spread, are the quotes' numbers, perhaps with others between."""
    wanted: list[float | None] = []
    for cell in row.cells:
        wanted += [None] if cell is None else [cell.value] if cell.spread is None else [cell.value, cell.spread]

    def within(found: list[float | None]) -> bool:
        rest = iter(found)
        return all(any(same(number, other) for other in rest) for number in wanted)

    return any(within(found) for found in readings(row.quotes))


def leaves(value) -> list:
    if isinstance(value, Mapping):
        return [leaf for part in value.values() for leaf in leaves(part)]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_every_table_and_figure_has_its_entry():
    assert set(published.ENTRIES) == {f"{paper}/{label}" for paper, labels in TABLES.items() for label in labels}
    assert len(published.ENTRIES) == sum(map(len, TABLES.values()))  # no id twice
    assert published.get("fedcor/table1").paper == "fedcor"


def test_a_wrong_id_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="'fedcor/tabel1'; did you mean 'fedcor/table1'"):
        published.get("fedcor/tabel1")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_an_entry_says_what_it_is(entry):
    assert entry.title and re.fullmatch(r"[A-Z][^\n]*\.", entry.claim)
    assert (not entry.numbers) == (entry.source in (PICTURE, "theorem"))
    assert all(quote == plain(quote).strip() and len(quote) <= LONGEST_QUOTE for quote in entry.quotes)
    assert not entry.reading or re.fullmatch(r"[^\n]*\.", entry.reading)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_numbers_of_a_row_stand_in_its_quotes(block: Numbers):
    for name, row in block.rows.items():
        assert len(row.cells) == len(block.columns), name
        assert stand_in_order(row), (name, readings(row.quotes))
        assert all((cell is None or cell.spread is None) or block.spread for cell in row.cells), name
        assert bool(block.missing) >= (None in row.cells), name


@pytest.mark.parametrize("block", BLOCKS)
def test_a_changed_number_is_noticed(block: Numbers):
    for row in block.rows.values():
        for place, cell in enumerate(row.cells):
            others = [Cell(3.25), None if cell else Cell(1.0)]
            others += [cell._replace(value=cell.value * 1.01)] if cell else []
            others += [cell._replace(spread=cell.spread * 1.1)] if cell and cell.spread is not None else []
            for other in others:
                assert not stand_in_order(row._replace(cells=(*row.cells[:place], other, *row.cells[place + 1 :])))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_settings_stand_in_their_quotes(entry):
    for name, stated in entry.settings.items():
        found = [number for reading in readings(stated.quotes) for number in reading]
        for leaf in leaves(stated.value):
            if isinstance(leaf, str):
                assert any(leaf in quote for quote in stated.quotes), name
            else:
                assert any(same(leaf, number) for number in found), (name, leaf, found)


def test_rows_and_columns_are_named_as_the_package_names_them():
    for entry in ENTRIES:
        for block in entry.numbers:
            for axis, names in zip(block.axes, (block.rows, block.columns)):
                if axis == "strategy":
                    assert set(names) <= set(strategies.names()), entry.id
                elif axis == "task":
                    assert set(names) <= set(papers.TARGETS), entry.id
    assert published.get("fedcor/table1").settings["target_accuracy"].value == papers.TARGETS


def test_a_number_is_found_by_its_names():
    rounds, _ = published.get("fedcor/table1").numbers
    assert rounds.cell("fedcor", "fmnist-1spc") == Cell(84.0, 53.1)
    assert rounds.cell("random", "fmnist-1spc") is None


def test_entries_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        published.get("fedcor/table1").claim = "another"


@pytest.mark.parametrize(
    "text,numbers",
    [
        ("Table 2SPC(69%), CIFAR-10, Dir(0.64)", [0.69, 0.64]),
        (r"$\beta=0.95,0.9$ | N/A | 1.5\% FL-DP3S 12.", [0.95, 0.9, None, 0.015, 12]),
        ("(500500500 and 200020002000), 999, five", [500, 2000, 999, 5]),
    ],
)
def test_numbers_are_read_from_quotes(text, numbers):
    assert numbers_of(text) == pytest.approx(numbers)
    assert [805263.0, 10.0] in readings(("805,263", "10"))


# ---- against the papers ----

PAPERS = os.environ.get("FEDJAX_SEL_PAPERS")
WIDEST_ROW = 600  # characters that a row of a table takes in the text


@pytest.mark.skipif(not PAPERS, reason="FEDJAX_SEL_PAPERS names no folder with the papers as text")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_quotes_stand_in_the_paper(entry):
    texts = [plain((Path(PAPERS or "") / f"{name}.txt").read_text()) for name in FILES.get(entry.paper, (entry.paper,))]
    for quote in entry.quotes:
        assert any(quote in text for text in texts), quote
    for block in entry.numbers:
        for name, row in block.rows.items():  # in one place, and in this order
            pattern = rf".{{0,{WIDEST_ROW}}}?".join(re.escape(quote) for quote in row.quotes)
            assert any(re.search(pattern, text) for text in texts), (entry.id, name)
