#!/usr/bin/env python3
"""Write docs/price_of_information.md and results/papers_setting/price.md from results/papers_setting."""

import argparse
from pathlib import Path

from studies.papers_setting import pages, price

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "papers_setting"
PAGE, DETAILS = ROOT / "docs" / "price_of_information.md", RESULTS / price.DETAILS


def written() -> tuple[str, str]:
    """Return both pages."""
    return pages.price_of_information(RESULTS, "../results/papers_setting")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    for path, text in zip((PAGE, DETAILS), written()):
        path.write_text(text, encoding="utf-8")
