#!/usr/bin/env python3
"""Write the generated part of docs/reproductions.md from the entries and from the pages in results."""

import argparse
from pathlib import Path

from studies.papers import overview
from studies.papers.entries import ENTRIES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproductions.md"
MARK = "<!-- tools/reproductions_page.py writes what follows -->\n"


def updated(text: str) -> str:
    """Return the page with an updated generated part.

    Args:
        text: the current page.
    """
    start, mark, _ = text.partition(MARK)
    assert mark, f"{PAGE} has lost its mark"
    return start + mark + "\n" + overview.markdown(ENTRIES, ROOT / "results", "../results")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
