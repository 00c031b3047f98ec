"""All entries in one table, with what was found where it was run: the generated part of docs/reproductions.md."""

import collections
import csv
from collections.abc import Mapping
from pathlib import Path

from fedjax_sel.core.texts import cell
from fedjax_sel.papers import published
from fedjax_sel.papers.published import Published
from fedjax_sel.reproduction import heading, page, verdicts
from fedjax_sel.reproduction.entry import Entry

NOT_RUN = "not run yet"
_MANY = {verdicts.AGREES: "agree", verdicts.DIFFERS: "differ", verdicts.REPRODUCED: verdicts.REPRODUCED}
NO_ENTRY = "no entry"
PAPERS, LOOKS = "papers", "looks"
"""The folders of pages: `papers/ENTRY` of what the entries say, `looks/NAME/ENTRY` of shorter runs beside it."""


def markdown(entries: Mapping[str, Entry], results: Path, link: str) -> str:
    """Return the table of all published results, and the rules.

    Args:
        entries: by name.
        results: the folder that holds `PAPERS` and `LOOKS`.
        link: to that folder from the text.
    """
    lines = ["| what | the claim | found here | command | here it takes |", "|---|---|---|---|---|"]
    lines += [_row(paper, entries.get(name), results, link) for name, paper in published.ENTRIES.items()]
    by_rule: dict[str, list[str]] = collections.defaultdict(list)
    for name, entry in entries.items():
        by_rule[entry.rule].append(name)
    rules = [f"* **{', '.join(names)}**. {rule}" for rule, names in by_rule.items()]
    return "\n".join([*lines, "", "## The rules", "", *rules]) + "\n"


def _row(paper: Published, entry: Entry | None, results: Path, link: str) -> str:
    claim = cell(f"{paper.title}. {paper.claim}")
    if entry is None:
        return f"| {paper.id} | {claim} | {NO_ENTRY} | | |"
    found = _linked(results / PAPERS / entry.name, results, link)
    for folder in sorted(results.glob(f"{LOOKS}/*/{entry.name}")):
        if look := _look(folder):
            found += f"; {look}: {_linked(folder, results, link)}"
    return f"| {paper.id} | {claim} | {found} | `fedjax-sel reproduce {entry.name}` | {cell(entry.cost)} |"


def _look(folder: Path) -> str:
    """Return what a shorter run found, and of what it is one; empty where nothing of it is finished."""
    about, rows = heading.told(folder), folder / "rows.csv"
    if about is None or about.finished == 0 or not rows.exists():
        return ""
    with rows.open(newline="", encoding="utf-8") as file:
        settings = dict.fromkeys(row["setting"] for row in csv.DictReader(file))
    return f"a look, {'; '.join(filter(None, (*settings, about.scale)))}"


def _linked(folder: Path, results: Path, link: str) -> str:
    found = finding(folder)
    return found if found == NOT_RUN else f"[{found}]({link}/{folder.relative_to(results).as_posix()}/{page.PAGE})"


def finding(folder: Path) -> str:
    """Return how often each verdict was given, such as "3 agree, 1 differs", and how many of the runs it is of.

    What no paper has, but is asked beside it, is not counted.

    Args:
        folder: of an entry's page, which may not be there.
    """
    rows = folder / "rows.csv"
    if not rows.exists():
        return NOT_RUN
    with rows.open(newline="", encoding="utf-8") as file:
        found = collections.Counter(row["verdict"] for row in csv.DictReader(file) if row["paper"] and row["verdict"])
    order = [verdict for verdict in (*_MANY, *sorted(found)) if verdict in found]
    counted = [f"{found[one]} {_MANY.get(one, one) if found[one] > 1 else one}" for one in dict.fromkeys(order)]
    about = heading.told(folder)
    return (", ".join(counted) or "no verdict") + (f" ({about.part})" if about and about.part else "")
