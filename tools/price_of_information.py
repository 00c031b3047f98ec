#!/usr/bin/env python3
"""Write docs/price_of_information.md from results/leaderboard."""

import argparse
from pathlib import Path

from studies.leaderboard import pages

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "price_of_information.md"
RESULTS = ROOT / "results" / "leaderboard"


def written() -> str:
    """Return the page."""
    return pages.price_of_information(RESULTS, "../results/leaderboard")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    PAGE.write_text(written(), encoding="utf-8")
