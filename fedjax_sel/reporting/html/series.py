"""Curves of a run: statistics over seeds at each point, and the points' rounds, megabytes and seconds."""

from typing import Any

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.reporting.html.numbers import short
from fedjax_sel.reporting.html.sources import Run
from fedjax_sel.runs.records import Result

MOST_PLACES = 1000
SEEN = "clients_seen"


def block(rounds: int) -> int:
    """Return the number of rounds per point of a curve."""
    return -(-rounds // MOST_PLACES)


def places(result: Result) -> dict[str, Any]:
    """Return the horizontal coordinates of the points, each at the end of its last round.

    Megabytes are means over seeds for both directions, including queries before the first round. Seconds exclude
    compilation: rounds of a chunk with compilation count as the mean of the other rounds.
    """
    width = block(result.num_rounds)
    ends = np.minimum(np.arange(width, result.num_rounds + width, width), result.num_rounds)
    moved = (result.ledger.bytes_down + result.ledger.bytes_up).cumsum(axis=1).mean(axis=0) / 1e6
    seconds, steady = _seconds(result)
    return {
        "round": ends.tolist(),
        "megabytes": short(moved[ends - 1]),
        "seconds": short(seconds[ends - 1]),
        "steady": steady,
    }


def _seconds(result: Result) -> tuple[np.ndarray, bool]:
    """Return the seconds at the end of each round, and whether they exclude compilation."""
    each = np.asarray(result.round_seconds, np.float64)
    timed = ~np.isnan(each)
    if len(each) != result.num_rounds or not timed.any():
        return np.asarray(result.elapsed_seconds, np.float64), False
    return np.where(timed, each, each[timed].mean()).cumsum(), True


def curves(run: Run) -> dict[str, Any]:
    """Return the run's curves by column: mean, sample standard deviation, minimum and maximum over seeds.

    A point without a measurement is None.
    """
    found = {name: summary(values) for name, values in run.result.measured.items() if not np.isnan(values).all()}
    seen = metrics.clients_seen(run.result.cohorts, run.result.config.partition.num_clients).astype(np.float64)
    seen[:, run.cohorts_known :] = np.nan
    if run.cohorts_known:
        found[SEEN] = summary(seen)
    return found


def summary(values: np.ndarray) -> dict[str, Any]:
    """Return the curve of one measure; a point for several rounds is the mean of its measured rounds.

    Args:
        values: the measure, [seeds, rounds]; NaN if not measured.
    """
    width = block(values.shape[1])
    padded = np.pad(values.astype(np.float64), ((0, 0), (0, -values.shape[1] % width)), constant_values=np.nan)
    points = metrics.mean_of_measured(padded.reshape(len(values), -1, width), axis=2)
    return over_seeds(points)


def over_seeds(points: np.ndarray) -> dict[str, Any]:
    """Return mean, deviation, minimum and maximum over seeds.

    Args:
        points: values [seeds, points]; NaN if missing.
    """
    measured = ~np.isnan(points)
    count = measured.sum(axis=0)
    mean = metrics.mean_of_measured(points, axis=0)
    squares = np.where(measured, (points - mean) ** 2, 0.0).sum(axis=0)
    deviation = np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)
    low = np.where(measured, points, np.inf).min(axis=0)
    high = np.where(measured, points, -np.inf).max(axis=0)
    return {"mean": short(mean), "sd": short(deviation), "low": short(low), "high": short(high)}
