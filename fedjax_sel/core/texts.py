"""Names of people's choosing (paths, plug-ins, data sets) as parts of a larger text: a Markdown table, a picture."""


def cell(name: str) -> str:
    """Return a name as a cell of a Markdown table: it neither ends the cell nor the line."""
    return " ".join(name.split()).replace("|", r"\|")


def label(name: str) -> str:
    """Return a name as Matplotlib shows it: no formula between dollars, and none of those that a legend leaves out."""
    text = " ".join(name.split()).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
