"""Curves of a run: what is drawn at each place, over seeds, and where a place lies in rounds, megabytes and seconds."""

from typing import Any

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.reporting.html.numbers import short
from fedjax_sel.reporting.html.sources import Run
from fedjax_sel.runs.records import Result

MOST_PLACES = 1000
SEEN = "clients_seen"


def block(rounds: int) -> int:
    """Return how many rounds one point of a curve stands for."""
    return -(-rounds // MOST_PLACES)


def places(result: Result) -> dict[str, Any]:
    """Return where the points lie: a number a point, behind the last round that it stands for.

    Megabytes are means over seeds, down and up together, with what was bought before the first round. Seconds are those
    of the rounds alone: where a process compiled, its rounds count as long as the others take.
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
    """Return the seconds at the end of each round, and whether compilation is left out of them."""
    each = np.asarray(result.round_seconds, np.float64)
    known = ~np.isnan(each)
    if len(each) != result.num_rounds or not known.any():
        return np.asarray(result.elapsed_seconds, np.float64), False
    return np.where(known, each, each[known].mean()).cumsum(), True


def curves(run: Run) -> dict[str, Any]:
    """Return the run's curves: column -> mean, sample standard deviation, least and greatest over seeds at each point.

    A point has None where nothing was measured.
    """
    found = {name: summary(values) for name, values in run.result.measured.items() if not np.isnan(values).all()}
    seen = metrics.clients_seen(run.result.cohorts, run.result.config.partition.num_clients).astype(np.float64)
    seen[:, run.cohorts_known :] = np.nan
    if run.cohorts_known:
        found[SEEN] = summary(seen)
    return found


def summary(values: np.ndarray) -> dict[str, Any]:
    """Return what is drawn of one measure.

    Args:
        values: [seeds, rounds], NaN where nothing was measured; a point that stands for several rounds has the mean of
            those that were.
    """
    width = block(values.shape[1])
    padded = np.pad(values.astype(np.float64), ((0, 0), (0, -values.shape[1] % width)), constant_values=np.nan)
    points = metrics.mean_of_measured(padded.reshape(len(values), -1, width), axis=2)
    return over_seeds(points)


def over_seeds(points: np.ndarray) -> dict[str, Any]:
    """Return mean, deviation, least and greatest over seeds.

    Args:
        points: [seeds, points], NaN for a seed that has none.
    """
    known = ~np.isnan(points)
    count = known.sum(axis=0)
    mean = metrics.mean_of_measured(points, axis=0)
    squares = np.where(known, (points - mean) ** 2, 0.0).sum(axis=0)
    deviation = np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)
    least = np.where(known, points, np.inf).min(axis=0)
    greatest = np.where(known, points, -np.inf).max(axis=0)
    return {"mean": short(mean), "sd": short(deviation), "low": short(least), "high": short(greatest)}
