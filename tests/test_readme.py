"""What the README lists is what there is."""

from pathlib import Path

from fedjax_sel import strategies

README = (Path(__file__).parents[1] / "README.md").read_text()


def first_column(heading: str) -> list[str]:
    """Names in the first column of the table under a header row that begins with `heading`."""
    lines = README.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading)) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append(line.split("|")[1].strip().strip("`"))
    return rows


def test_the_strategies_are_all_there_and_no_others():
    assert sorted(first_column("| name | idea |")) == sorted(strategies.names())
