#!/usr/bin/env python3
"""Write the generated parts of docs/reproductions.md and results/papers/README.md from the entries and their pages."""

import argparse
from pathlib import Path

from studies.papers import overview
from studies.papers.entries import ENTRIES

ROOT = Path(__file__).resolve().parents[1]
PAGE, DETAILS = ROOT / "docs" / "reproductions.md", ROOT / "results" / "papers" / "README.md"
START, END = "<!-- start: tools/reproductions_page.py -->\n", "<!-- end -->\n"


def updated() -> dict[Path, str]:
    """Return both pages with updated generated parts."""
    parts = {
        PAGE: overview.in_short(ENTRIES, ROOT / "results", "../results"),
        DETAILS: overview.markdown(ENTRIES, ROOT / "results", ".."),
    }
    return {path: _with(path, part) for path, part in parts.items()}


def _with(path: Path, part: str) -> str:
    before, start, rest = path.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.rpartition(END)
    assert start and end, f"{path} has lost its marks"
    return f"{before}{start}\n{part}\n{end}{after}"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    for path, text in updated().items():
        path.write_text(text, encoding="utf-8")
