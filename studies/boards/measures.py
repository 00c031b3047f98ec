"""Metrics of a row per seed, from the series of all rows of its setting.

All rows of a setting share reference values: the number of rounds, the target accuracy (the final accuracy of random
selection), the equal megabytes (the smallest total communication of a seed of random selection), and, with a clock, the
equal seconds (the smallest total of any row and seed). A row that sends less is compared in its last round.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedjax_sel import metrics, statistics
from studies.boards.grid import BASELINE
from studies.boards.series import Series

LAST_SHARE = 0.2  # final share of the rounds in the worst-decile accuracy
SHARES = (0.25, 0.5, 1.0)  # shares of the equal megabytes
FEWEST = 0.05  # smallest plotted share of the equal megabytes; less pays for very few rounds

FAIRNESS = (
    "gini_of_selections", "jain_of_selections", "participation_gap", "gini_of_clients", "jain_of_clients",
)  # fmt: skip
"""Names of the fairness measures of a run: of selections, then of the clients' accuracy."""


class Common(NamedTuple):
    """Reference values that all rows of a setting share."""

    rounds: int
    target: float | None  # test accuracy; None without a run of random selection
    megabytes: float  # equal megabytes, download and upload
    megabytes_up: float  # equal megabytes, upload only
    guess: float  # accuracy of random guessing
    seconds: float | None = None  # equal seconds, simulated; None without a clock


def common(rows: Mapping[str, Series], num_classes: int) -> Common:
    """Return the reference values of a setting.

    Args:
        rows: series of at least one row, with equal numbers of rounds.
        num_classes: number of classes.
    """
    reference = [rows[BASELINE]] if BASELINE in rows else list(rows.values())
    clockless = any(series.seconds is None for series in rows.values())
    return Common(
        min(series.rounds for series in rows.values()),
        target_of(rows[BASELINE]) if BASELINE in rows else None,
        min(float(series.megabytes[:, -1].min()) for series in reference),
        min(float(series.bytes_up.sum(axis=1).min()) for series in reference) / 1e6,
        1.0 / num_classes,
        None if clockless else min(float(series.time[:, -1].min()) for series in rows.values()),
    )


def target_of(baseline: Series) -> float | None:
    """Return the target accuracy: the final test accuracy of random selection.

    It is the mean over seeds and the last ten rounds, rounded down to a whole percent.

    Args:
        baseline: series of random selection under FedAvg.

    Returns:
        The target as a fraction; None if it is below one percent.
    """
    percent = int(np.floor(100 * last_rounds(baseline).mean() * (1.0 + metrics.ROUNDING)))
    return percent / 100 if percent > 0 else None


def last_rounds(series: Series) -> np.ndarray:
    """Return the mean test accuracy of the last ten rounds, [seeds]."""
    return metrics.mean_of_last_rounds(series.test_accuracy)


def worst_decile(series: Series) -> np.ndarray:
    """Return the mean worst-decile client accuracy over the last fifth of the rounds, [seeds]."""
    return metrics.mean_of_last_rounds(series.worst_decile_accuracy, max(1, round(LAST_SHARE * series.rounds)))


def paid_rounds(series: Series, megabytes: float, spent: np.ndarray | None = None) -> np.ndarray:
    """Return the number of rounds within a communication budget, [seeds].

    Args:
        series: series of a row.
        megabytes: communication budget, MB, or a budget in the unit of `spent`.
        spent: cumulative cost after each round, [seeds, rounds]; None: download and upload.
    """
    return metrics.paid_rounds(series.megabytes if spent is None else spent, megabytes)


def accuracy_at(series: Series, megabytes: float, guess: float, spent: np.ndarray | None = None) -> np.ndarray:
    """Return the test accuracy at a communication budget, [seeds]; see `metrics.value_at`.

    Args:
        series: series of a row.
        megabytes: communication budget, MB, or a budget in the unit of `spent`.
        guess: accuracy if the budget pays for no round.
        spent: cumulative cost after each round, [seeds, rounds]; None: download and upload.
    """
    return metrics.value_at(series.test_accuracy, series.megabytes if spent is None else spent, megabytes, guess)


def curve(series: Series, megabytes: np.ndarray, guess: float) -> np.ndarray:
    """Return the mean accuracy over seeds at several communication budgets, [M]; see `accuracy_at`.

    Args:
        series: series of a row.
        megabytes: communication budgets, download and upload, MB [M].
        guess: accuracy if a budget pays for no round.
    """
    return np.array([accuracy_at(series, float(one), guess).mean() for one in megabytes])


def grid_of(shared: Common, points: int = 200) -> np.ndarray:
    """Return logarithmically spaced budgets up to the equal megabytes, [points]."""
    return np.geomspace(FEWEST * shared.megabytes, shared.megabytes, points)


def area_by_rounds(series: Series) -> np.ndarray:
    """Return the mean test accuracy over all rounds, [seeds]: the normalized area under its curve."""
    return metrics.mean_of_measured(series.test_accuracy, axis=1)


def area_by_megabytes(series: Series, megabytes: float, guess: float) -> np.ndarray:
    """Return the mean test accuracy over the communication, [seeds]: the normalized area under its curve.

    The accuracy is piecewise constant: between two evaluations, it is the accuracy of the earlier one.

    Args:
        series: series of a row.
        megabytes: upper end of the communication, download and upload, MB.
        guess: accuracy before the end of the first round.
    """
    ends = np.minimum(np.concatenate([series.megabytes, np.full((len(series.seeds), 1), np.inf)], axis=1), megabytes)
    widths = np.diff(ends, axis=1, prepend=0.0)
    held = metrics.held(np.concatenate([np.full((len(series.seeds), 1), guess), series.test_accuracy], axis=1))
    return (widths * held).sum(axis=1) / megabytes


def rounds_to_target(series: Series, target: float) -> np.ndarray:
    """Return the first round (from 1) whose running mean over ten rounds reaches the target, [seeds]; NaN: none does.

    The running mean is necessary because single rounds can exceed the final accuracy early by chance.
    """
    rounds = series.rounds
    running = np.full(series.test_accuracy.shape, np.nan)
    if rounds >= metrics.LAST_ROUNDS:
        windows = np.lib.stride_tricks.sliding_window_view(series.test_accuracy, metrics.LAST_ROUNDS, axis=1)
        running[:, metrics.LAST_ROUNDS - 1 :] = metrics.mean_of_measured(windows, axis=2)
    return metrics.rounds_to_target(running, target)


def of_row(series: Series, shared: Common) -> dict[str, np.ndarray]:
    """Return all metrics of a row by name, each [seeds].

    A seed that does not reach the target counts all its rounds and megabytes, which is a lower bound.

    Args:
        series: series of the row.
        shared: reference values of its setting.
    """
    found = {
        "last_rounds_accuracy": last_rounds(series),
        "worst_decile_accuracy": worst_decile(series),
        "area_by_rounds": area_by_rounds(series),
        "area_by_megabytes": area_by_megabytes(series, shared.megabytes, shared.guess),
        "rounds_at_equal_megabytes": paid_rounds(series, shared.megabytes),
        **{
            f"accuracy_at_{100 * share:g}_percent_of_megabytes": accuracy_at(
                series, share * shared.megabytes, shared.guess
            )
            for share in SHARES
        },
    }
    found["accuracy_at_equal_megabytes_up"] = accuracy_at(
        series, shared.megabytes_up, shared.guess, series.bytes_up.cumsum(axis=1) / 1e6
    )
    if shared.seconds is not None:
        found["seconds"] = series.time[:, -1]
        found["accuracy_at_equal_seconds"] = accuracy_at(series, shared.seconds, shared.guess, series.time)
    if shared.target is None:
        return found
    rounds = rounds_to_target(series, shared.target)
    until = statistics.restricted(rounds, shared.rounds)
    if series.seconds is not None and shared.seconds is not None:
        # Seconds of rows that do not arrive are comparable only up to the equal seconds.
        seconds = metrics.amount_at_round(series.seconds, rounds)
        found["seconds_to_target"] = statistics.restricted(seconds, shared.seconds)
        found["arrived_in_seconds"] = (seconds <= shared.seconds).astype(float)
    return found | {
        "arrived": np.isfinite(rounds).astype(float),
        "rounds_to_target": until,
        "megabytes_down_to_target": metrics.amount_at_round(series.bytes_down / 1e6, until),
        "megabytes_up_to_target": metrics.amount_at_round(series.bytes_up / 1e6, until),
    }
