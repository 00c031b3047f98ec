#!/usr/bin/env python3
"""Write the parts of pages that are generated from the code and from results: costs, parameters, tables.

    python tools/generated_parts.py

Run it after a change to the code or the results; a test compares. The site build generates the API reference.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def updated(text: str) -> str:
    """Return a page with updated generated parts.

    Args:
        text: the current page.
    """
    sys.path.insert(0, str(ROOT / "tools" / "site"))
    try:
        import generated

        return generated.filled(text, ROOT, marked=True)
    finally:
        sys.path.remove(str(ROOT / "tools" / "site"))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    for page in sorted((ROOT / "docs").rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = updated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))
