"""What is not ours as a part of a larger text: names of people's choosing in tables and pictures, paths, errors."""

import re

_LONGEST = 300  # characters of an error's message


def cell(name: str) -> str:
    """Return a name as a cell of a Markdown table: it neither ends the cell nor the line."""
    return " ".join(name.split()).replace("|", r"\|")


def label(name: str) -> str:
    """Return a name as Matplotlib shows it: no formula between dollars, and none of those that a legend leaves out."""
    text = " ".join(name.split()).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def without_folders(text: str) -> str:
    """Return the text with every absolute path cut down to its last part: a page names no folder of a machine."""
    return re.sub(r"(?<![\w.])/(?:[^\s'\"/]*/)+", "", text)


def reason(error: BaseException) -> str:
    """Return what an error of somebody else's says in one line: its type, and the first line of its message, cut."""
    line = first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, cut where it is long; "" where there is none."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # its own `__str__` raises
        return ""
    line = lines[0] if lines else ""
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
