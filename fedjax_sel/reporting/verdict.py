"""The verdict of a comparison: a headline, one line per strategy, and results at equal budgets in words."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.reporting import comparison
from fedjax_sel.reporting.comparison import Pair, Row, Spread, short
from fedjax_sel.runs.run_files import Result
from fedjax_sel.statistics import BETTER, WORSE, least_pairs

SEEDS = 10
"""Recommended number of seeds."""


class Line(NamedTuple):
    """One strategy's line, as texts; differences are from the baseline."""

    algo: str
    value: str  # mean of the last rounds
    difference: str
    interval: str
    verdict: str
    megabytes: str
    ratio: str  # megabytes relative to the baseline


class Verdict(NamedTuple):
    """The verdict under one set of conditions."""

    headline: str
    measure: str
    lines: list[Line]  # best first
    seeds: int  # recommended number of seeds if there are too few for any significance, else 0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def too_few(seeds: int, comparisons: int) -> str:
    """Return a phrase if no difference can be significant with these seeds, else an empty string."""
    if not comparisons or seeds >= (least := least_pairs(comparisons)):
        return ""
    few = f"{_counted(seeds, 'seed')} {'is' if seeds == 1 else 'are'} too few to tell"
    return f"{few} ({least} needed for {_counted(comparisons, 'comparison')})"


def of_rows(rows: Sequence[Row], pairs: Sequence[Pair], unfinished: Mapping[str, str]) -> Verdict:
    """Return the verdict on rows under the same conditions, from the numbers of their tables.

    Args:
        rows: table rows, finished or not.
        pairs: paired differences of the finished rows.
        unfinished: rounds so far by strategy, e.g. "7 of 20", for unfinished rows.
    """
    found = {pair.algo: pair for pair in pairs if pair.measure == comparison.LAST_ROUNDS_MEASURE}
    baseline = next((row for row in rows if row.algo not in found and row.algo not in unfinished), None)
    sign = -1 if rows[0].higher_is_better else 1
    ordered = sorted(rows, key=lambda row: (math.isnan(row.last_rounds.mean), sign * row.last_rounds.mean))
    lines = [_line(row, found.get(row.algo), baseline if found else None, unfinished.get(row.algo)) for row in ordered]
    compared = [pair for pair in found.values() if pair.found is not None]
    few = too_few(rows[0].final.seeds, len(compared))
    seeds = max(SEEDS, least_pairs(len(compared))) if few else 0
    return Verdict(_headline(compared, few, len(rows), unfinished), rows[0].measure, lines, seeds)


def _line(row: Row, pair: Pair | None, baseline: Row | None, unfinished: str | None) -> Line:
    moved, ratio = _moved(row), ""
    if baseline is not None and not unfinished:
        ratio = f"{moved / _moved(baseline):.3g}x"
    difference = interval = verdict = ""
    if unfinished:
        verdict = f"{unfinished} rounds"
    elif row is baseline:
        difference = "baseline"
    elif pair is not None:
        verdict = "not measured" if pair.found is None else pair.found.verdict
        if pair.found is not None:
            difference = f"{pair.found.difference:+.3f}"
            interval = "" if np.isnan(pair.found.low) else f"{pair.found.low:+.3f} to {pair.found.high:+.3f}"
    return Line(row.algo, _value(row.last_rounds), difference, interval, verdict, f"{short(moved)} MB", ratio)


def _moved(row: Row) -> float:
    return row.megabytes_down.mean + row.megabytes_up.mean


def _value(value: Spread) -> str:
    return comparison.NOT_REACHED if np.isnan(value.mean) else f"{value.mean:.3f}"


def _headline(compared: Sequence[Pair], few: str, runs: int, unfinished: Mapping[str, str]) -> str:
    if not compared:
        if runs == 1:
            return "One strategy: nothing to compare it with"
        return "No verdict yet: it needs two finished runs" if unfinished else "No verdict: a measure is missing"
    if few:
        return f"No winner yet: {few}"
    verdicts = {
        wanted: [
            pair.algo
            for pair in sorted(compared, key=lambda pair: -abs(pair.found.difference) if pair.found else 0.0)
            if pair.found is not None and pair.found.verdict == wanted
        ]
        for wanted in (BETTER, WORSE)
    }
    baseline = compared[0].baseline
    parts = [f"{wanted} than {baseline}: {', '.join(names)}" for wanted, names in verdicts.items() if names]
    text = "; ".join(parts) or f"no significant difference from {baseline}"
    seeds = compared[0].found.seeds if compared[0].found else 0
    return f"{text[0].upper()}{text[1:]} ({_counted(seeds, 'seed')}, {_counted(len(compared), 'comparison')})"


def at_equal_budgets(rows: Sequence[Row], results: Sequence[Result]) -> list[str]:
    """Return sentences on finished runs: the measure at equal megabytes and seconds, and the costs of the target."""
    if len(rows) < 2:
        return []
    spent = [(one.ledger.bytes_down + one.ledger.bytes_up).cumsum(axis=1) / 1e6 for one in results]
    totals = [float(one[:, -1].min()) for one in spent]
    budget, cheapest = min(totals), rows[totals.index(min(totals))].algo
    values = [
        comparison.spread(metrics.value_at(one.measured[one.test_measure], moved, budget))
        for one, moved in zip(results, spent)
    ]
    measure = f"test {rows[0].measure} is"
    found = [f"At the {short(budget)} MB of {cheapest}, {measure} {_listed(rows, values)}."]
    if rows[0].equal_seconds is not None:
        timed = _listed(rows, [row.at_equal_seconds for row in rows])
        found.append(f"After {short(rows[0].equal_seconds)} simulated seconds, {measure} {timed}.")
    if rows[0].target_accuracy is not None:
        found.append(f"To reach {rows[0].target_in_words}: {'; '.join(map(_to_target, rows))}.")
    return found


def _listed(rows: Sequence[Row], values: Sequence[Spread | None]) -> str:
    texts = [
        f"{'not evaluated' if value is None else _value(value)} for {row.algo}" for row, value in zip(rows, values)
    ]
    return ", ".join(texts[:-1]) + f" and {texts[-1]}"


def _to_target(row: Row) -> str:
    rounds, down, up = row.rounds_to_target, row.megabytes_down_to_target, row.megabytes_up_to_target
    if rounds is None or down is None or up is None:
        return ""
    if rounds.reached < rounds.seeds:
        return f"{row.algo} in {rounds.reached} of {_counted(rounds.seeds, 'seed')}"
    return f"{row.algo} after {short(rounds.mean)} rounds and {short(down.mean + up.mean)} MB"
