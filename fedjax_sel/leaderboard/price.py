"""The price of information: what strategies pay for what they know, and when it comes back.

Every sentence with a number or a name in it is made of the results; what stands between them only says what a table
shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.texts import cell
from fedjax_sel.leaderboard import across, information, measures, standings
from fedjax_sel.leaderboard.series import Series
from fedjax_sel.leaderboard.series import Setting as Held
from fedjax_sel.leaderboard.settings import ALGOS, BASELINE, SETTINGS, contender
from fedjax_sel.leaderboard.standings import Standings
from fedjax_sel.statistics import Comparison

BUDGETS = (0.125, 0.25, 0.5, 1.0)  # of the equal megabytes
PROFILED = "fl_dp3s"
NONE = "*Not run yet.*"
INTRODUCTION = """A strategy that asks clients before it selects sends models and floats for it. This page counts them:
what the same megabytes buy with each strategy, what is left of FedCor's lead as its probes get rarer, what absent
clients and lost reports do, when FL-DP3S's profile has paid for itself, and which strategy to take for which budget.
The settings, the strategies' numbers and the rules are those of the [leaderboard]({link}/README.md). Everything below
is made of its results by `python tools/price_of_information.py`; better and worse stand only where a sign-flip test
after Holm's correction and a bootstrap interval agree, and where they do not, nothing is told from chance."""


def markdown(found: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> str:
    """Return the page.

    Args:
        found: parts that are there.
        tables: theirs.
        link: from the page to the folder of results.
    """
    boards = {name: held for name, held in found.items() if name in SETTINGS}
    parts = ["# The price of information", INTRODUCTION.format(link=link)]
    parts += ["## Accuracy against bytes", *_bytes(boards, tables, link)]
    parts += ["## Rarer probes", *_probes(found)]
    parts += ["## Clients away, reports lost", *_absence(found)]
    parts += ["## When FL-DP3S's profile has paid for itself", *_profile(boards, tables)]
    parts += ["## Which strategy for which budget", *_budgets(boards, tables, link)]
    return "\n\n".join(parts) + "\n"


def _bytes(boards: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> list[str]:
    parts = []
    for title, names in across.groups(boards).items():
        together = across.of_settings({name: tables[name] for name in names})
        if not together:
            continue
        dear = {one.name: _times_random(one.name, names, boards) for one in together}
        lines = ["| | times random's MB | lead over random, last 10 rounds | at equal MB | at equal MB up | "
                 "at equal MB: better / worse |", "|---|---|---|---|---|---|"]  # fmt: skip
        measure = "accuracy_at_100_percent_of_megabytes"
        for one in sorted(together, key=lambda one: dear[one.name]):
            leads = [f"{statistics.interquartile_mean(values):+.3f}" for values in one.leads.values()]
            verdicts = one.verdicts[measure]
            count = f"{verdicts.count(statistics.BETTER)} / {verdicts.count(statistics.WORSE)} of {len(verdicts)}"
            shown = count if any(verdicts) else ""
            lines.append(f"| {cell(one.name)} | {dear[one.name]:.2f} | {' | '.join(leads)} | {shown} |")
        parts += [f"{title}, {len(names)} settings: interquartile means over settings and seeds.", "\n".join(lines)]
        parts.append(_bytes_in_words(together, dear, measure))
    if not parts:
        return [NONE]
    return [*parts, f"![accuracy by megabytes]({link}/accuracy_by_megabytes.png)"]


def _bytes_in_words(together: Sequence[across.Together], dear: Mapping[str, float], measure: str) -> str:
    def better(of: str) -> list[str]:
        return [one.name for one in together if statistics.BETTER in one.verdicts[of]]

    both = [name for name in better("last_rounds_accuracy") if name in better(measure)]
    lost = [name for name in better("last_rounds_accuracy") if name not in both]
    dearest = max(dear, key=lambda name: dear[name])
    return (
        f"Better than random selection in some setting by the last rounds' accuracy and also at equal megabytes: "
        f"{_listed(both)}. By the last rounds alone: {_listed(lost)}. The row that sends the most is {dearest}, with "
        f"{dear[dearest]:.2f} times random's megabytes."
    )


def _times_random(name: str, settings: Iterable[str], boards: Mapping[str, Held]) -> float:
    """Return what a row sends over what random selection sends, mean over settings and seeds."""
    ratios = [
        boards[one].rows[name].megabytes[:, -1].mean() / boards[one].rows[BASELINE].megabytes[:, -1].mean()
        for one in settings
    ]
    return float(np.mean(ratios))


def _probes(found: Mapping[str, Held]) -> list[str]:
    parts = []
    for setting in information.SETTINGS:
        held = found.get(f"information-probes-{setting}")
        usual = information.row_of_interval(information.USUAL_INTERVAL)
        if held is None or BASELINE not in held.rows:
            continue
        last = {name: measures.last_rounds(series) for name, series in held.rows.items()}
        rows = [name for name in last if name != BASELINE]
        if not rows:
            continue
        leads = dict(zip(rows, statistics.compare(np.stack([last[name] - last[BASELINE] for name in rows]))))
        others = [name for name in rows if name != usual] if usual in rows else []
        kept = (
            dict(zip(others, statistics.compare(np.stack([last[name] - last[usual] for name in others]))))
            if others
            else {}
        )
        full = leads[usual].difference if usual in leads and leads[usual].verdict == statistics.BETTER else np.nan
        lines = ["| | times random's MB | lead over random, last 10 rounds | share of the usual lead | less the "
                 "usual |", "|---|---|---|---|---|"]  # fmt: skip
        for name in rows:
            times = held.rows[name].megabytes[:, -1].mean() / held.rows[BASELINE].megabytes[:, -1].mean()
            share = "" if np.isnan(full) else f"{100 * leads[name].difference / full:.0f} %"
            against = standings.difference(kept[name], 3) if name in kept else ""
            lines.append(
                f"| {cell(name)} | {times:.2f} | {standings.difference(leads[name], 3)} | {share} | {against} |"
            )
        parts += [f"{SETTINGS[setting].title}:", "\n".join(lines)]
        worse = [name for name, one in kept.items() if one.verdict == statistics.WORSE]
        ahead = [name for name, one in leads.items() if one.verdict == statistics.BETTER]
        parts.append(f"Ahead of random selection: {_listed(ahead)}. Worse than the usual interval: {_listed(worse)}.")
    return parts or [NONE]


def _absence(found: Mapping[str, Held]) -> list[str]:
    parts = []
    for setting in information.SETTINGS:
        full = found.get(setting)
        studies = {
            f"{100 * information.AVAILABLE:g} % reachable": found.get(f"information-absent-{setting}"),
            f"{100 * information.LOST:g} % of reports lost": found.get(f"information-lost-{setting}"),
        }
        here = {words: held for words, held in studies.items() if held is not None and BASELINE in held.rows}
        if full is None or BASELINE not in full.rows or not here:
            continue
        leads = {"everybody there": _leads(full), **{words: _leads(held) for words, held in here.items()}}
        changes = {words: _changes(leads["everybody there"], leads[words]) for words in here}
        columns = [*leads, *(f"{words}: change of the lead" for words in here)]
        lines = ["| lead over random, last 10 rounds | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
        for algo in ALGOS:
            if algo == BASELINE or not any(algo in one for one in leads.values()):
                continue
            cells = [f"{one[algo].mean():+.3f}" if algo in one else "" for one in leads.values()]
            cells += [standings.difference(one[algo], 3) if algo in one else "" for one in changes.values()]
            lines.append(f"| {algo} | {' | '.join(cells)} |")
        parts += [f"{SETTINGS[setting].title}:", "\n".join(lines)]
        for words, one in changes.items():
            told = {kind: [algo for algo, found in one.items() if found.verdict == kind]
                    for kind in (statistics.WORSE, statistics.BETTER)}  # fmt: skip
            parts.append(
                f"{words}: the lead shrinks for {_listed(told[statistics.WORSE])}, and grows for "
                f"{_listed(told[statistics.BETTER])}; of the others nothing is told from chance."
            )
    return parts or [NONE]


def _leads(held: Held) -> dict[str, np.ndarray]:
    """Return each strategy's lead over random selection under equal conditions, [seeds]."""
    base = measures.last_rounds(held.rows[BASELINE])
    same = {
        algo: held.rows[algo]
        for algo in ALGOS
        if algo != BASELINE and algo in held.rows and held.rows[algo].seeds == held.rows[BASELINE].seeds
    }
    return {algo: measures.last_rounds(series) - base for algo, series in same.items()}


def _changes(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> dict[str, Comparison]:
    both = [algo for algo in before if algo in after and len(before[algo]) == len(after[algo])]
    if not both:
        return {}
    return dict(zip(both, statistics.compare(np.stack([after[algo] - before[algo] for algo in both]))))


def _profile(boards: Mapping[str, Held], tables: Mapping[str, Standings]) -> list[str]:
    columns = [f"lead at {100 * share:g} % of the equal MB" for share in BUDGETS]
    lines = ["| | MB of the profiles | " + " | ".join(columns) + " | ahead for good from (MB) |",
             "|---|---|" + "---|" * (len(BUDGETS) + 1)]  # fmt: skip
    paid, not_paid = [], []
    for name, held in boards.items():
        if not {PROFILED, BASELINE} <= set(held.rows) or held.rows[PROFILED].seeds != held.rows[BASELINE].seeds:
            continue
        ours, base, shared = held.rows[PROFILED], held.rows[BASELINE], tables[name].shared
        price = float((ours.megabytes[:, 0] - base.megabytes[:, 0]).mean())
        at = [
            measures.accuracy_at(ours, share * shared.megabytes, shared.guess)
            - measures.accuracy_at(base, share * shared.megabytes, shared.guess)
            for share in BUDGETS
        ]
        compared = statistics.compare(np.stack(at))
        (paid if compared[-1].verdict == statistics.BETTER else not_paid).append(held.about["title"])
        ahead = ahead_from(ours, base, shared.megabytes, shared.guess)
        cells = [standings.difference(one, 3) for one in compared]
        until = "not by the end" if ahead is None else f"{ahead:.0f} of {shared.megabytes:.0f}"
        lines.append(f"| {cell(held.about['title'])} | {price:.1f} | {' | '.join(cells)} | {until} |")
    if len(lines) == 2:
        return [NONE]
    return [
        "\n".join(lines),
        "The last column is the megabytes from which the mean over seeds, of ten rounds each, stays above that of "
        f"random selection up to the equal megabytes. With all of them FL-DP3S is better in: {_listed(paid, '; ')}; "
        f"not told to be in: {_listed(not_paid, '; ')}.",
    ]


def curve(series: Series, megabytes: np.ndarray, guess: float) -> np.ndarray:
    """Return the accuracy that megabytes buy, mean over seeds, [M]; see `measures.accuracy_at`.

    Args:
        series: of a row.
        megabytes: down and up together, [M].
        guess: accuracy where they pay for no round.
    """
    return np.array([measures.accuracy_at(series, float(one), guess).mean() for one in megabytes])


def grid_of(shared: measures.Common, points: int = 200) -> np.ndarray:
    """Return megabytes up to the equal ones, evenly spaced by their logarithm, [points]."""
    return np.geomspace(shared.megabytes / 100, shared.megabytes, points)


def ahead_from(ours: Series, base: Series, megabytes: float, guess: float) -> float | None:
    """Return the megabytes from which a row's mean stays above another's up to the equal ones; None where it does not.

    Args:
        ours: the row.
        base: the other one.
        megabytes: the equal ones.
        guess: accuracy where they pay for no round.
    """
    ends = np.unique(np.concatenate([one.megabytes.mean(axis=0) for one in (ours, base)]))
    ends = ends[ends <= megabytes * (1 + 1e-12)]
    above = curve(ours, ends, guess) > curve(base, ends, guess)
    if not len(ends) or not above[-1]:
        return None
    behind = np.flatnonzero(~above)
    return float(ends[behind[-1] + 1]) if len(behind) else float(ends[0])


class Advice(NamedTuple):
    """Whom to take for a budget."""

    best: str  # the row with the highest mean
    accuracy: float
    as_good: list[str]  # rows that are not told from it


def advice(held: Held, shared: measures.Common, share: float, rows: Sequence[str]) -> Advice:
    """Return the best row of a setting for a budget, and who is not told to be worse.

    Args:
        held: of the setting.
        shared: of all its rows.
        share: of the equal megabytes.
        rows: among which, at least one, of equal seeds.
    """
    numbers = {name: measures.accuracy_at(held.rows[name], share * shared.megabytes, shared.guess) for name in rows}
    best = max(numbers, key=lambda name: numbers[name].mean())
    others = [name for name in rows if name != best]
    found = statistics.compare(np.stack([numbers[name] - numbers[best] for name in others])) if others else []
    told = {name for name, one in zip(others, found) if one.verdict == statistics.WORSE}
    return Advice(best, float(numbers[best].mean()), [name for name in others if name not in told])


def _budgets(boards: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> list[str]:
    parts = []
    for optimizers, words in ((("fedavg",), "Under FedAvg"), (None, "Under either optimizer")):
        lines = ["| | " + " | ".join(f"{100 * share:g} % of the equal MB" for share in BUDGETS) + " |",
                 "|---|" + "---|" * len(BUDGETS)]  # fmt: skip
        some = False
        for name, held in boards.items():
            rows = [row for row in held.rows if optimizers is None or contender(row).optimizer in optimizers]
            if len({contender(row).optimizer for row in held.rows}) < 2 and optimizers is None:
                continue
            if len(rows) < 2 or len({held.rows[row].seeds for row in rows}) > 1:
                continue
            some, shared = True, tables[name].shared
            cells = []
            for share in BUDGETS:
                found = advice(held, shared, share, rows)
                also = f"; not told apart: {', '.join(found.as_good)}" if found.as_good else "; alone"
                megabytes = share * shared.megabytes
                cells.append(f"{megabytes:.0f} MB: **{cell(found.best)}** {found.accuracy:.3f}{cell(also)}")
            lines.append(f"| {cell(held.about['title'])} | {' | '.join(cells)} |")
        if some:
            parts += [f"{words}:", "\n".join(lines)]
    if not parts:
        return [NONE]
    words = (
        "In bold the row with the highest mean accuracy for the megabytes (mean of the last ten rounds that they pay "
        'for), among the rows that were run. "Not told apart" are rows that are not shown to be worse; that does not '
        "prove that they are equal. The best row was chosen on the same seeds, so that chance flatters its lead, also "
        "where it stands alone."
    )
    return [*parts, words, f"![the best strategy for a budget]({link}/budgets.png)"]


def _listed(names: Iterable[str], separator: str = ", ") -> str:
    return separator.join(names) or "none"
