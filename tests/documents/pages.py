"""The pages that people read, as tests see them: their blocks of code, and how these are run."""

import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```[ \t]*$", re.DOTALL | re.MULTILINE)
_SAVED = re.compile(r"[Ss]ave this as `([\w.]+)`[^`]*\Z")


class Block(NamedTuple):
    """A block of code."""

    page: Path
    line: int  # of its first line, from 1
    language: str
    code: str
    saved_as: str | None  # the file that the words before it tell to save it as


def everywhere() -> list[Path]:
    """The README, and all pages of docs/."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path | str, *languages: str) -> list[Block]:
    """The blocks of a page in order; of some languages alone."""
    page = ROOT / page
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        indent, language, code = match.groups()
        if languages and language not in languages:
            continue
        saved = _SAVED.search(text[: match.start()])
        line = text[: match.start(3)].count("\n") + 1
        code = re.sub(f"(?m)^{indent}", "", code)
        found.append(Block(page, line, language, code, saved and saved[1]))
    return found


def run(blocks: list[Block], names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Runs blocks of Python one after another, as one program; what is to be saved is saved. Returns its names."""
    names = {} if names is None else names
    for block in blocks:
        if block.saved_as is not None:
            Path(block.saved_as).write_text(block.code, encoding="utf-8")
            continue
        placed = "\n" * (block.line - 1) + block.code  # a traceback names the page's line
        exec(compile(placed, str(block.page), "exec"), names)
    return names
