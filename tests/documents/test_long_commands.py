"""Commands that wait for hours or for a GPU begin, on real data, and a round of the first strategy ends."""

import os
import re
import shlex

import pytest

from fedjax_sel.cli import command_line
from studies.boards.command import chosen
from studies.papers import command as reproduce
from studies.papers.entries import ENTRIES
from studies.papers.entry import Part
from studies.papers_setting import command as papers_setting
from studies.papers_setting import grids
from tests.documents.pages import ROOT

DATA_DIR = os.environ.get("TFDS_DATA_DIR")
TEXT = (ROOT / "results" / "papers" / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(
    r"\| `python -m studies ((?:reproduce|papers-setting) .*)` \|$",
    TEXT.partition("## Long runs")[2].partition("\n## ")[0],
    flags=re.MULTILINE,
)


def pieces():
    """Each entry or part that a command names, with the flags that leave one strategy and one round of it."""
    for command in COMMANDS:
        program, *words = shlex.split(command)
        if "--data-dir" in words:  # a user's own files
            continue
        flags = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
        names, asked = words[:flags], words[flags:]
        columns = asked[asked.index("--columns") + 1 :] if "--columns" in asked else []
        columns = columns[: next((place for place, word in enumerate(columns) if word.startswith("--")), None)]
        if program == "papers-setting":
            for grid in chosen(names, grids.GRIDS):
                yield program, [grid.name, "--algos", "random"]
        for name in names if program == "reproduce" else ():
            part = ENTRIES[name].of_part(Part(tuple(columns) or None))
            yield program, [name, *(["--columns", *columns] if columns else []), "--rows", part.rows[0]]


def test_there_are_some():
    assert {program for program, _ in pieces()} == {"reproduce", "papers-setting"} and len(list(pieces())) > 8


@pytest.mark.slow
@pytest.mark.skipif(not DATA_DIR, reason="TFDS_DATA_DIR is not set")
@pytest.mark.parametrize("piece", list(pieces()), ids=lambda piece: " ".join((piece[0], *piece[1])))
def test_they_begin(piece, tmp_path):
    program, arguments = piece
    main = {"reproduce": reproduce.main, "papers-setting": papers_setting.main}[program]
    short = ["--rounds", "1", "--seeds", "1", "--data-dir", DATA_DIR, "--out", str(tmp_path)]
    assert command_line.guarded(main, [*arguments, *short]) == 0
    assert (tmp_path / arguments[0] / "README.md").exists()
