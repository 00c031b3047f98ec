"""The effect of unavailable clients and lost reports on the strategies' leads."""

from collections.abc import Mapping

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.statistics import Comparison
from studies.boards import measures
from studies.boards.grid import BASELINE
from studies.boards.series import Series
from studies.boards.series import Setting as Held
from studies.papers_setting import information, standings
from studies.papers_setting.price import wording
from studies.papers_setting.settings import ALGOS, SETTINGS

ALL = "all clients available"
AVAILABILITY = (
    "The available clients are drawn again in each round, before any query: FedCor probes, and power-of-choice draws "
    "its candidates from, available clients only. All clients answer queries at the start (FL-DP3S, AFL, FedSAE, "
    "DivFL, Fed-CBS), which favors these strategies. A lost report gets lost after training, with all its information."
)


def section(found: Mapping[str, Held]) -> list[str]:
    """Return the leads with all clients available, with some unavailable, and with lost reports."""
    parts: list[str] = []
    missing: list[str] = []
    for setting in information.SETTINGS:
        full = found.get(setting)
        studies = {
            f"{100 * information.AVAILABLE:g} % available": found.get(f"information-absent-{setting}"),
            f"{100 * information.LOST:g} % of reports lost": found.get(f"information-lost-{setting}"),
        }
        here = {words: held for words, held in studies.items() if held is not None and BASELINE in held.rows}
        if full is None or BASELINE not in full.rows or not here:
            missing.append(setting)
            continue
        # Only a study with the main tables' seeds and rounds is compared with it.
        like = {words: held for words, held in here.items() if _alike(held.rows[BASELINE], full.rows[BASELINE])}
        leads = {ALL: _leads(full), **{words: _leads(held) for words, held in here.items()}}
        changes = {words: _changes(leads[ALL], leads[words]) for words in like}
        columns = [*leads, *(f"{words}: change of the lead" for words in changes)]
        ahead = {words: _compared(one) for words, one in leads.items()}
        lines = ["| lead over random, last 10 rounds | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
        for algo in ALGOS:
            if algo == BASELINE or not any(algo in one for words, one in leads.items() if words != ALL):
                continue
            cells = [_lead(leads[words], ahead[words], algo) for words in leads]
            cells += [standings.difference(one[algo], 3) if algo in one else "" for one in changes.values()]
            lines.append(f"| {algo} | {' | '.join(cells)} |")
        parts += [f"{SETTINGS[setting].title} (a lead in bold is significant):", "\n".join(lines)]
        better = {words: wording.listed(wording.with_verdict(one, statistics.BETTER)) for words, one in ahead.items()}
        each = "; ".join(f"{words}: {names}" for words, names in better.items())
        parts.append(f"Significantly ahead of random selection: {each}.")
        parts += [
            f"{words}: the difference to random selection falls significantly for "
            f"{wording.listed(wording.with_verdict(one, statistics.WORSE))}, and rises for "
            f"{wording.listed(wording.with_verdict(one, statistics.BETTER))}; the other changes are not significant."
            for words, one in changes.items()
        ]
        if like:
            parts.append(_of_random(full.rows[BASELINE], {words: held.rows[BASELINE] for words, held in like.items()}))
    return [*parts, AVAILABILITY, *wording.missing(missing)] if parts else [wording.NONE]


def _alike(one: Series, other: Series) -> bool:
    return one.seeds == other.seeds and one.rounds == other.rounds


def _leads(held: Held) -> dict[str, np.ndarray]:
    """Return each strategy's lead over random selection under equal conditions, [seeds]."""
    base = held.rows[BASELINE]
    same = {
        algo: held.rows[algo]
        for algo in ALGOS
        if algo != BASELINE and algo in held.rows and _alike(held.rows[algo], base)
    }
    return {algo: measures.last_rounds(series) - measures.last_rounds(base) for algo, series in same.items()}


def _lead(leads: Mapping[str, np.ndarray], ahead: Mapping[str, Comparison], algo: str) -> str:
    if algo not in leads:
        return ""
    significant = ahead[algo].is_significant
    return f"**{leads[algo].mean():+.3f}**" if significant else f"{leads[algo].mean():+.3f}"


def _changes(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> dict[str, Comparison]:
    return _compared({algo: after[algo] - before[algo] for algo in before if algo in after})


def _compared(differences: Mapping[str, np.ndarray]) -> dict[str, Comparison]:
    """Compare one family of differences, [seeds] each."""
    if not differences:
        return {}
    return dict(zip(differences, statistics.compare(np.stack(list(differences.values())))))


def _of_random(full: Series, studies: Mapping[str, Series]) -> str:
    """Return a sentence on random selection's own loss of accuracy."""
    before = measures.last_rounds(full)
    found = _compared({words: measures.last_rounds(series) - before for words, series in studies.items()})
    losses = [f"{words}: {standings.difference(one, 3)}" for words, one in found.items()]
    return f"Change of random selection's own accuracy, {before.mean():.3f} with {ALL}: {'; '.join(losses)}."
