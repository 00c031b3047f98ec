"""Table of all entries with their findings: the generated part of docs/reproductions.md."""

import collections
import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedjax_sel.core.parsing import cell
from studies.papers import heading, page, published, verdicts
from studies.papers.entries import fedcor_variants
from studies.papers.entry import Entry
from studies.papers.published import Published

NOT_RUN = "not run yet"
_MANY = {verdicts.AGREES: "agree", verdicts.DIFFERS: "differ", verdicts.REPRODUCED: verdicts.REPRODUCED}
NO_ENTRY = "no entry"
PAPERS, LOOKS = "papers", "looks"
"""Folders of pages: `papers/ENTRY` for full-scale runs, `looks/NAME/ENTRY` for shorter ones."""


def markdown(entries: Mapping[str, Entry], results: Path, link: str) -> str:
    """Return the table of all published results, and the rules.

    Args:
        entries: entries by name.
        results: parent folder of `PAPERS` and `LOOKS`.
        link: link from the text to that folder.
    """
    lines = ["| what | the claim | found here | command | here it takes |", "|---|---|---|---|---|"]
    lines += [_row(paper, entries.get(name), results, link) for name, paper in published.ENTRIES.items()]
    lines += ["", _total(entries, results)]
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
    return f"| {paper.id} | {claim} | {found} | `python -m studies reproduce {entry.name}` | {cell(entry.cost)} |"


def _look(folder: Path) -> str:
    """Return the settings and the scale of a shorter run; empty if no run is finished."""
    about, rows = heading.read(folder), folder / "rows.csv"
    if about is None or about.finished == 0 or not rows.exists():
        return ""
    with rows.open(newline="", encoding="utf-8") as file:
        settings = dict.fromkeys(row["setting"] for row in csv.DictReader(file))
    return f"a look, {'; '.join(filter(None, (*settings, about.scale)))}"


def _linked(folder: Path, results: Path, link: str) -> str:
    found = finding(folder)
    return found if found == NOT_RUN else f"[{found}]({link}/{folder.relative_to(results).as_posix()}/{page.PAGE})"


def finding(folder: Path) -> str:
    """Return the number of each verdict, such as "3 agree, 1 differs", and the number of finished runs if incomplete.

    Rows without a published claim are not counted.

    Args:
        folder: folder of an entry's page; may be missing.
    """
    if not (folder / "rows.csv").exists():
        return NOT_RUN
    found = _counted(row["verdict"] for row in _judged(folder))
    about = heading.read(folder)
    return (found or "no verdict") + (f" ({about.part})" if about and about.part else "")


def _judged(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a page with a published claim and a verdict; empty without a page."""
    rows = folder / "rows.csv"
    if not rows.exists():
        return []
    with rows.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["paper"] and row["verdict"]]


def _counted(found: Iterable[str]) -> str:
    counts = collections.Counter(found)
    order = [verdict for verdict in (*_MANY, *sorted(counts)) if verdict in counts]
    return ", ".join(f"{counts[one]} {_MANY.get(one, one) if counts[one] > 1 else one}" for one in dict.fromkeys(order))


def _total(entries: Mapping[str, Entry], results: Path) -> str:
    """Return a sentence on the number of rows with a verdict, and of distinct comparisons among them.

    Figures share runs. Two rows are the same comparison if setting, quantity and values are equal. FedCor's and FedGP's
    studies name the main comparison's run by its interval or coefficient, so these names are mapped first. P-values
    depend on the family and are ignored.
    """
    rows, distinct = 0, dict[tuple[str, ...], str]()
    for name in entries:
        for row in _judged(results / PAPERS / name):
            what = fedcor_variants.of_main_names(name.split("/")[0], row["setting"], row["what"])
            ours = re.sub(r" \(p = .*\)", "", row["ours"])
            rows += 1
            distinct.setdefault((row["setting"], what, row["paper"], ours), row["verdict"])
    return (
        f"The pages of whole entries have {rows} rows with a verdict, which are {len(distinct)} distinct comparisons, "
        f"because figures share runs: {_counted(distinct.values())}."
    )
