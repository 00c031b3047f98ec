"""What is not ours as a part of a larger text: names of people's choosing in tables and pictures, paths, errors."""

import re


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
    """Return what an error of somebody else's says in one line: its type, and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
