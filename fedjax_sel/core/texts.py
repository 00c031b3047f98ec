"""Sanitizers for user-chosen names, paths and foreign error messages inside tables, plots and messages."""

import re

_LONGEST = 300  # maximum length of an error message, characters


def cell(name: str) -> str:
    """Escape a name for a cell of a Markdown table."""
    return " ".join(name.split()).replace("|", r"\|")


def label(name: str) -> str:
    """Escape a name for Matplotlib: no math mode at dollars, no leading underscore, which legends hide."""
    text = " ".join(name.split()).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def without_folders(text: str) -> str:
    """Shorten every absolute path in a text to its last component, so that pages show no local folders."""
    return re.sub(r"(?<![\w.])/(?:[^\s'\"/]*/)+", "", text)


def reason(error: BaseException) -> str:
    """Summarize a foreign error in one line: its type and the first line of its message, truncated."""
    line = first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, truncated; "" if the message is empty."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # its own `__str__` raises
        return ""
    line = lines[0] if lines else ""
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
