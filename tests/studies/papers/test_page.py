"""What an entry leaves in its folder."""

import csv

import pytest

from fedjax_sel.errors import UserError
from studies.papers import page
from studies.papers.page import Page, Row

ROWS = [Row("a|b", "what", "5.0", "6.0", 3, "+1.0", "agrees"), Row("c", "a, b", "", "1", 1, "", "")]


def test_a_page_on_disk(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([0, 1])
    folder = tmp_path / "paper" / "table1"
    page.write(folder, ["# title", "", "the rule"], Page(ROWS, ["a note"], {"p.png": figure}, {"p.csv": "x\n1\n"}))
    assert {path.name for path in folder.iterdir()} == {"README.md", "rows.csv", "p.png", "p.csv"}
    text = (folder / "README.md").read_text()
    lines = text.splitlines()
    assert lines[0] == "# title" and r"| a\|b | what | 5.0 | 6.0 | 3 | +1.0 | agrees |" in lines
    assert "![p](p.png)" in lines and text.endswith("\na note\n")
    with (folder / "rows.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [list(Row._fields), *([str(value) for value in row] for row in ROWS)]
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG") and (folder / "p.csv").read_text() == "x\n1\n"


def test_a_page_that_cannot_be_written(tmp_path):
    (tmp_path / "paper").write_text("")
    with pytest.raises(UserError, match=r"^--out: cannot write to .*paper/table1 \(Not a directory\)"):
        page.write(tmp_path / "paper" / "table1", [], Page([]))
