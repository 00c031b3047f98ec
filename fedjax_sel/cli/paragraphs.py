"""Text wrapped to the terminal's width, without truncation."""

import shutil
import textwrap
from collections.abc import Iterable

WITHOUT_TERMINAL, NARROWEST = 100, 30  # columns


def width() -> int:
    """Return the usable width, in columns."""
    return max(NARROWEST, shutil.get_terminal_size((WITHOUT_TERMINAL, 24)).columns)


def hanging(label: str, text: str, column: int, indent: int = 0) -> str:
    """Format a label with a wrapped text beside it, all lines of the text aligned.

    Args:
        label: the label; a label longer than the column gets its own line.
        text: the text, wrapped between words; long words are not broken.
        column: start of the text, in columns after the indent.
        indent: columns before the label.
    """
    column = min(column, width() // 3)
    lead, margin = " " * indent, " " * (indent + column)
    start = f"{lead}{label:<{column}}"
    if len(label) >= column:
        return f"{lead}{label}\n{fill(text, margin)}" if text else f"{lead}{label}"
    return start.rstrip() if not text else start + fill(text, margin)[len(margin) :]


def fill(text: str, margin: str = "", further: str | None = None) -> str:
    """Wrap a paragraph between words; long words are not broken.

    Args:
        text: one paragraph.
        margin: prefix of the lines.
        further: prefix of all lines but the first; None means `margin`.
    """
    further = margin if further is None else further
    return textwrap.fill(
        text, width(), initial_indent=margin, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def page(text: str) -> str:
    """Wrap a docstring's paragraphs; tables and formulas keep their lines and indents."""
    return "\n".join(_block(block) for block in _blocks(text.strip().splitlines()))


def _blocks(lines: Iterable[str]) -> Iterable[list[str]]:
    """Yield blocks of lines: a paragraph, a list item, one line of a table, or an empty line."""
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
