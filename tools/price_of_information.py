#!/usr/bin/env python3
"""Write docs/price_of_information.md from results/papers_setting."""

import argparse
from pathlib import Path

from studies.papers_setting import pages

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "papers_setting"
PAGE = ROOT / "docs" / "price_of_information.md"


def written() -> str:
    """Return the page."""
    return pages.price_of_information(RESULTS, "../results/papers_setting")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    PAGE.write_text(written(), encoding="utf-8")
