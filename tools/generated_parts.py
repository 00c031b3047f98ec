#!/usr/bin/env python3
"""Writes the parts of pages that are made from the code and from results: what strategies buy, parameters, tables.

    python tools/generated_parts.py

Run it after a change to what they show; a test compares. The reference of the API is left to the site.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_TO_THE_SITE = "api"


def pages() -> list[Path]:
    """Return the pages whose generated parts are committed."""
    found = (ROOT / "docs").rglob("*.md")
    return sorted(path for path in found if LEFT_TO_THE_SITE not in path.relative_to(ROOT / "docs").parts)


def updated(text: str) -> str:
    """Return a page with its generated parts anew.

    Args:
        text: the page as it is.
    """
    sys.path.insert(0, str(ROOT / "tools" / "site"))
    try:
        import generated

        return generated.filled(text, ROOT, marked=True)
    finally:
        sys.path.remove(str(ROOT / "tools" / "site"))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = updated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))
