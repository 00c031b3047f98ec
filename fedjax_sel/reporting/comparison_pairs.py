"""Comparisons of strategies with a baseline, paired by seed, as pure functions of the results."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_sel import metrics, statistics
from fedjax_sel.core.texts import cell
from fedjax_sel.reporting.comparison import NOT_REACHED, Row, conditions
from fedjax_sel.runs.records import Result
from fedjax_sel.statistics import Comparison

BASELINE = "random"
LAST_ROUNDS_MEASURE, RESTRICTED_ROUNDS = f"last_{metrics.LAST_ROUNDS}_rounds", "rounds_to_target_restricted"
_DIGITS = {LAST_ROUNDS_MEASURE: 4, RESTRICTED_ROUNDS: 1}


class Pair(NamedTuple):
    """A strategy against the baseline under the same conditions, in one measure."""

    setting: str
    optimizer: str  # empty if only one is compared
    algo: str
    baseline: str
    measure: str  # LAST_ROUNDS_MEASURE or RESTRICTED_ROUNDS
    words: str  # display name of the measure
    horizon: int | None  # rounds of a seed that never reaches the target; None for an uncensored measure
    arrived: float | None  # share of the strategy's seeds that reach the target; None for an uncensored measure
    baseline_arrived: float | None
    found: Comparison | None  # strategy minus baseline; None if a seed of either has no value

    @property
    def conditions(self) -> str:
        """The setting and optimizer; pairs under the same conditions follow one table."""
        return conditions(self.setting, self.optimizer)


def pairs(rows: Sequence[Row], results: Sequence[Result]) -> list[Pair]:
    """Return each strategy against `random`, or against the first strategy under the same conditions without it.

    Holm's correction is over all strategies under the same conditions, for each measure.

    Args:
        rows: rows of the finished runs.
        results: results in the order of the rows.
    """
    found = []
    for shared in dict.fromkeys(row.conditions for row in rows):
        here = [(row, result) for row, result in zip(rows, results) if row.conditions == shared]
        baseline = next((one for one in here if one[0].algo == BASELINE), here[0])
        others = [one for one in here if one is not baseline]
        found += _of_last_rounds(baseline, others)
        found += _of_restricted_rounds(baseline, others) if baseline[0].target_accuracy is not None else []
    return found


def _of_last_rounds(baseline: tuple[Row, Result], others: Sequence[tuple[Row, Result]]) -> list[Pair]:
    first, result = baseline
    values = [metrics.mean_of_last_rounds(one.measured[one.test_measure]) for _, one in [baseline, *others]]
    words = f"test {result.measure_in_words}, mean of the last {metrics.LAST_ROUNDS} rounds"
    return [
        Pair(row.setting, row.optimizer, row.algo, first.algo, LAST_ROUNDS_MEASURE, words, None, None, None, compared)
        for (row, _), compared in zip(others, _family(values, result.higher_is_better))
    ]


def _of_restricted_rounds(baseline: tuple[Row, Result], others: Sequence[tuple[Row, Result]]) -> list[Pair]:
    first, result = baseline
    target = result.config.run.target_accuracy
    assert target is not None
    horizon = max(row.rounds for row, _ in [baseline, *others])  # a callback may have ended some runs early
    rounds = [one.rounds_to_target(target) for _, one in [baseline, *others]]
    words = f"rounds to {result.target_in_words}, restricted to {horizon}"
    shares = [float(statistics.share_arrived(one, horizon)) for one in rounds]
    families = _family([statistics.restricted(one, horizon) for one in rounds], higher_is_better=False)
    return [
        Pair(
            row.setting,
            row.optimizer,
            row.algo,
            first.algo,
            RESTRICTED_ROUNDS,
            words,
            horizon,
            share,
            shares[0],
            compared,
        )
        for (row, _), share, compared in zip(others, shares[1:], families)
    ]


def _family(values: Sequence[np.ndarray], higher_is_better: bool) -> list[Comparison | None]:
    """Compare all runs with the first one; runs with a NaN for some seed are excluded and give None."""
    differences = [np.asarray(one, np.float64) - values[0] for one in values[1:]]
    measured = [one for one in differences if np.isfinite(one).all()]
    compared = iter(statistics.compare(np.stack(measured), higher_is_better) if measured else [])
    return [next(compared) if np.isfinite(one).all() else None for one in differences]


def as_csv(pairs: Iterable[Pair]) -> str:
    """Return the pairs as CSV, one line per strategy and measure; "N/A" if a seed has no value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [name for name in Pair._fields if name not in ("words", "found")]
    writer.writerow([*columns, *Comparison._fields])
    for pair in pairs:
        cells = [_plain(getattr(pair, name)) for name in columns]
        numbers = [NOT_REACHED] * len(Comparison._fields) if pair.found is None else map(_plain, pair.found)
        writer.writerow([*cells, *numbers])
    return text.getvalue()


def _plain(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return "" if np.isnan(value) else f"{value:.7g}"


def texts_of(pair: Pair) -> list[str]:
    """Return the table cells of a pair: the difference, its interval, p after Holm, and the verdict."""
    return _cells(pair.found, _DIGITS[pair.measure])


def too_few_seeds(pairs: Sequence[Pair]) -> str:
    """Return a note if the pairs of one measure have too few seeds for any significance; else an empty string."""
    compared = [pair.found for pair in pairs if pair.found is not None]
    if not any(found.verdict == statistics.TOO_FEW_SEEDS for found in compared):
        return ""
    family = f"{len(compared)} comparisons" if len(compared) > 1 else "one comparison"
    return (
        f"Too few seeds ({compared[0].seeds}): no difference can be significant in {family} with fewer than "
        f"{statistics.least_pairs(len(compared))} seeds."
    )


def by_conditions(pairs: Sequence[Pair]) -> dict[str, str]:
    """Return Markdown by conditions, with one table for each measure."""
    found: dict[str, dict[str, list[Pair]]] = {}
    for pair in pairs:
        found.setdefault(pair.conditions, {}).setdefault(pair.measure, []).append(pair)
    return {shared: "\n\n".join(map(_table, measures.values())) for shared, measures in found.items()}


def _table(pairs: Sequence[Pair]) -> str:
    lines = [f"| {pairs[0].words} | difference | interval | p after Holm | verdict |", "|---|---|---|---|---|"]
    lines += [f"| {cell(pair.algo)} minus {cell(pair.baseline)} | {' | '.join(texts_of(pair))} |" for pair in pairs]
    few = too_few_seeds(pairs)
    return "\n".join([*lines, "", few] if few else lines)


def _cells(found: Comparison | None, digits: int) -> list[str]:
    if found is None:
        return [NOT_REACHED, NOT_REACHED, NOT_REACHED, "not measured"]
    interval = f"{found.low:+.{digits}f} to {found.high:+.{digits}f} ({100 * found.level:.4g} %)"
    return [
        f"{found.difference:+.{digits}f}",
        "" if np.isnan(found.low) else interval,
        f"{found.p_holm:.2g}",
        found.verdict,
    ]
