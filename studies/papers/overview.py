"""Tables of all entries with their findings: docs/reproductions.md, and all details in results/papers."""

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


IN_SHORT = {
    "fedgp/table1": ("fewest rounds to a target", "fewer than AFL in two of three settings"),
    "fedgp/fig1": ("each pick lowers the loss most", "as described"),
    "fedgp/fig2": ("faster than all baselines", "more accurate in all three settings"),
    "fedgp/fig3": ("longer intervals cost very little", "not with one label"),
    "fedgp/fig4": ("embeddings cluster by label", "with one label"),
    "fedgp/fig5": ("annealing hardly changes the accuracy", "over all rounds"),
    "fedgp/fig6": ("smaller coefficient, more uniform selection", "in five of six steps"),
    "fedgp/linearity": ("loss changes are nearly linear", "over 0.9 of their variance"),
    "fedcor/table1": ("fewest rounds to a target", "fewer in six of nine"),
    "fedcor/centralised": ("accuracy of centralized training", "within 0.03 for the MLP"),
    "fedcor/hours": ("a seed takes hours", "seconds, on another machine"),
    "fedcor/fig1": ("correlated pair is almost the best", "better than the largest losses only"),
    "fedcor/fig2": ("loss changes look Gaussian", "close; a test rejects some"),
    "fedcor/fig3": ("covariance hardly moves, cosine above 0.97", "it moves more"),
    "fedcor/fig4": ("most accurate", "in all settings"),
    "fedcor/fig5": ("longer intervals cost very little", "mostly, over all rounds"),
    "fedcor/fig6": ("smaller coefficient, more uniform selection", "with two labels"),
    "fedcor/fig7": ("embeddings cluster by label", "with one label"),
    "fedcor/fig8": ("annealing hardly changes the accuracy", "over all rounds"),
    "fedcor/fig9": ("covariance mostly above a cosine of 0.9", "with one label; otherwise inconclusive"),
    "fedcor/fig10": ("smaller coefficient, more uniform selection", "in all nine steps"),
    "fedcor/fig11": ("the same on CIFAR-10", ""),
    "fedcor/fig12": ("loss changes look Gaussian", "close; a test rejects some"),
    "fedcor/fig13": ("the same on CIFAR-10", ""),
    "fedcor/appendix_b": ("proxy strategy converges like 1/t", "to the optimum of all clients only"),
    "fedcor/appendix_b2": ("nearly uncorrelated cohorts, as the proxy's", "less than random, but not nearly zero"),
    "gpfl/table1": ("946.8 images per client", "600 per client"),
    "gpfl/table2": ("highest final accuracy", "no lead over random selection"),
    "gpfl/fig1": ("momentum oscillates less", "by construction"),
    "gpfl/fig3": ("ahead of all baselines on the way", "small lead over random selection"),
    "gpfl/fig4": ("selects all clients first, FedCor last", "by construction; FedCor is not last"),
    "gpfl/fig5": ("long tails of GPFL and FedCor", "no such tails"),
    "gpfl/fig6": ("faster than power-of-choice and FedCor", "FedCor: 1.3 times random selection"),
    "gpfl/fig7": ("linear weight of exploration is best", "never significantly"),
    "gpfl/theorem1": ("bound on the regret", "negative as printed"),
    "fl_dp3s/fig1": ("fastest at every skewness", "two seeds so far"),
    "fl_dp3s/calibrated": ("twice as fast as random selection", "more accurate, not twice as fast"),
    "fl_dp3s/fig2": ("lowest GEMD of all strategies", "two seeds so far"),
    "fl_dp3s/fig3": ("first-layer profiles are best", "one seed: no better"),
    "fl_dp3s/fig4": ("profiles depend on the initialization", "as claimed"),
    "fl_dp3s/fig5": ("kernels hardly depend on it", "as claimed"),
    "fl_dp3s/fig6": ("training hardly depends on it", "one seed: less than random selection's"),
    "fl_dp3s/gemd": ("lower GEMD than random selection", "in all settings"),
    "fl_dp3s/theorem1": ("layer outputs are Gaussian", "close; a test rejects many"),
}
"""Claim and finding of each entry in a few words."""
PAPER_NAMES = {"fedcor": "FedCor", "fedgp": "FedGP", "gpfl": "GPFL", "fl_dp3s": "FL-DP3S"}
HOLDS = (verdicts.AGREES, verdicts.REPRODUCED)
UNDECIDED, LOOK = "undecided", "look"
CHANGED = "†"
"""Mark of a page whose rule, margin or rows were changed or extended after a first run."""
_HISTORY = re.compile(r"first (two )?(runs?|rules?|page|two)\b|at first|\blast runs?\b|other runs|(was|were) judged")
FAILS = (verdicts.DIFFERS, verdicts.CONTRADICTED, verdicts.NOT_REPRODUCED)


def in_short(entries: Mapping[str, Entry], results: Path, link: str) -> str:
    """Return one table per paper: claim with a link to its page, finding, and verdict with the mark of changed rules.

    Args:
        entries: entries by name.
        results: parent folder of `PAPERS` and `LOOKS`.
        link: link from the text to that folder.
    """
    parts = []
    for paper, title in PAPER_NAMES.items():
        lines, missing = ["| claim | ours | holds |", "|---|---|---|"], []
        for name, published_one in published.ENTRIES.items():
            if name.split("/")[0] != paper:
                continue
            claim, ours = IN_SHORT[name]
            where, folder = _place(published_one.title, name), results / PAPERS / name
            looks = [one for one in sorted(results.glob(f"{LOOKS}/*/{name}")) if _look(one)]
            shown = folder if (folder / page.PAGE).exists() else next(iter(looks), None)
            if shown is None:
                missing.append(where)
                continue
            where = f"[{where}]({link}/{shown.relative_to(results).as_posix()}/{page.PAGE})"
            verdict = _verdict(folder) if shown == folder else LOOK
            verdict += CHANGED * bool(_HISTORY.search(entries[name].rule))
            lines.append(f"| {where}: {cell(claim)} | {cell(ours)} | {verdict} |")
        parts.append(f"## {title}\n\n" + "\n".join(lines))
        if missing:
            parts.append(f"{NOT_RUN.capitalize()}: {', '.join(missing)}.")
    return "\n\n".join(parts) + "\n"


def _place(title: str, name: str) -> str:
    """Return where the paper has a claim, such as "Fig. 3"."""
    entry = re.fullmatch(r"([a-z_]+?)_?(b2?|\d*)", name.split("/")[1])
    assert entry is not None, name
    kind, number = entry.groups()
    if found := re.search(r"Table [IV]+|Assumption [\d.]+|Theorem \d", title):
        return found[0]
    words = {"fig": "Fig.", "table": "Table", "appendix": "Appendix"}
    return f"{words[kind]} {number.upper().replace('B2', 'B.2')}" if kind in words else "text"


def _verdict(folder: Path) -> str:
    found = [row["verdict"] for row in _judged(folder) if row["verdict"] != verdicts.NOT_COMPARABLE]
    holds, fails = (sum(verdict in kinds for verdict in found) for kinds in (HOLDS, FAILS))
    if not holds and not fails:
        return UNDECIDED
    return f"{holds} of {len(found)}" + (f", {fails} fail{'s' if fails == 1 else ''}" if fails else "")


def markdown(entries: Mapping[str, Entry], results: Path, link: str) -> str:
    """Return the table of all published results, and the rules.

    Args:
        entries: entries by name.
        results: parent folder of `PAPERS` and `LOOKS`.
        link: link from the text to that folder.
    """
    lines = ["| what | the claim | found here | here it takes |", "|---|---|---|---|"]
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
        return f"| {paper.id} | {claim} | {NO_ENTRY} | |"
    found = _linked(results / PAPERS / entry.name, results, link)
    for folder in sorted(results.glob(f"{LOOKS}/*/{entry.name}")):
        if look := _look(folder):
            found += f"; {look}: {_linked(folder, results, link)}"
    return f"| {paper.id} | {claim} | {found} | {cell(entry.cost)} |"


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
        f"because figures share runs. Among these: {_counted(distinct.values())}."
    )
