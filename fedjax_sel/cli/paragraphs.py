"""Text as wide as the terminal: wrapped, never cut."""

import shutil
import textwrap
from collections.abc import Iterable

WITHOUT_TERMINAL, NARROWEST = 100, 30  # columns


def width() -> int:
    """Return how many columns there are to write in."""
    return max(NARROWEST, shutil.get_terminal_size((WITHOUT_TERMINAL, 24)).columns)


def hanging(label: str, text: str, column: int, indent: int = 0) -> str:
    """Return a label and a text behind it, whose further lines begin where its first one does.

    Args:
        label: stands alone on its line where it is longer than the column.
        text: is wrapped between words; a word that is longer than a line keeps its letters together.
        column: where the text begins, counted from the indent.
        indent: columns in front of the label.
    """
    column = min(column, width() // 3)
    lead, margin = " " * indent, " " * (indent + column)
    begin = f"{lead}{label:<{column}}"
    if len(label) >= column:
        return f"{lead}{label}\n{fill(text, margin)}" if text else f"{lead}{label}"
    return begin.rstrip() if not text else begin + fill(text, margin)[len(margin) :]


def fill(text: str, margin: str = "", further: str | None = None) -> str:
    """Return a text in lines that fit; a word that is longer than a line keeps its letters together.

    Args:
        text: one paragraph.
        margin: in front of its lines.
        further: in front of all but the first; None: the same.
    """
    further = margin if further is None else further
    return textwrap.fill(
        text, width(), initial_indent=margin, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def page(text: str) -> str:
    """Return a docstring in lines that fit: paragraphs are filled, tables and formulas keep their lines and indents."""
    return "\n".join(_block(block) for block in _blocks(text.strip().splitlines()))


def _blocks(lines: Iterable[str]) -> Iterable[list[str]]:
    """Yield lines that belong together: a paragraph, an item of a list, a single line of a table, an empty one."""
    block: list[str] = []
    for line in lines:
        goes_on = block and block[0] and line.strip() and not line.startswith("* ")
        if goes_on and block[0].startswith("* "):
            goes_on = line.startswith("  ") and not line.startswith("   ")
        elif goes_on:
            goes_on = not line.startswith(" ") and not block[0].startswith(" ")
        if block and not goes_on:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _block(lines: list[str]) -> str:
    first = lines[0]
    if not first.strip():
        return ""
    lead = first[: len(first) - len(first.lstrip())]
    if len(lines) == 1 and len(first) <= width():
        return first
    hang = "    " if lead else "  " if first.startswith("* ") else ""
    return fill(" ".join(" ".join(lines).split()), lead, lead + hang)
