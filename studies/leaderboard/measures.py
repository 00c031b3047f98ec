"""One number a seed: what a table says of a row, from the series of all rows of its setting.

What is equal for all rows of a setting: the target, which is what random selection ends with; the megabytes that even
the row which sends the least sends in all; and the rounds.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedjax_sel import metrics, statistics
from studies.leaderboard.series import Series
from studies.leaderboard.settings import BASELINE

LAST_THIRD = 3  # of few paid rounds that many-th count: ten would be half of the way to where the rest has got
LAST_SHARE = 0.2  # of the rounds, whose measured worst deciles count
SHARES = (0.25, 0.5, 1.0)  # of the equal megabytes
FEWEST = 0.05  # of them: less pays for a few rounds, which are alike


class Common(NamedTuple):
    """What is equal for all rows of a setting."""

    rounds: int
    target: float | None  # test accuracy; None while random selection has not run
    megabytes: float  # down and up together, which every row has sent by its end
    megabytes_up: float  # up alone
    guess: float  # accuracy of a model that knows nothing


def common(rows: Mapping[str, Series], num_classes: int) -> Common:
    """Return what is equal for all rows of a setting.

    Args:
        rows: at least one, of equal rounds.
        num_classes: of the data.
    """
    return Common(
        min(series.rounds for series in rows.values()),
        target_of(rows[BASELINE]) if BASELINE in rows else None,
        min(float(series.megabytes[:, -1].min()) for series in rows.values()),
        min(float(series.bytes_up.sum(axis=1).min()) for series in rows.values()) / 1e6,
        1.0 / num_classes,
    )


def target_of(baseline: Series) -> float | None:
    """Return the test accuracy to which rounds and megabytes are counted: what random selection ends with.

    It is the mean over seeds and the last ten rounds, rounded down to a whole percent.

    Args:
        baseline: random selection under FedAvg.

    Returns:
        A share; None where it is below one percent.
    """
    percent = int(np.floor(100 * last_rounds(baseline).mean() * (1.0 + metrics.ROUNDING)))
    return percent / 100 if percent > 0 else None


def last_rounds(series: Series) -> np.ndarray:
    """Return the mean test accuracy of the last ten rounds, [seeds]."""
    return metrics.mean_of_last_rounds(series.test_accuracy)


def worst_decile(series: Series) -> np.ndarray:
    """Return the accuracy of the tenth of clients with the lowest, [seeds]: mean of what the last fifth measured."""
    return metrics.mean_of_last_rounds(series.worst_decile_accuracy, max(1, round(LAST_SHARE * series.rounds)))


def paid_rounds(series: Series, megabytes: float, spent: np.ndarray | None = None) -> np.ndarray:
    """Return how many rounds so many megabytes pay for, [seeds].

    Args:
        series: of a row.
        megabytes: that may be spent.
        spent: megabytes that count, until each round's end, [seeds, rounds]; None: those down and up together.
    """
    return ((series.megabytes if spent is None else spent) <= megabytes * (1 + 1e-12)).sum(axis=1)


def accuracy_at(series: Series, megabytes: float, guess: float, spent: np.ndarray | None = None) -> np.ndarray:
    """Return the test accuracy that so many megabytes buy, [seeds].

    It is the mean of the last third of the rounds that they pay for, and of ten rounds at most: of dear rounds only few
    are paid for, and the first ones say little of what the last ones are worth.

    Args:
        series: of a row.
        megabytes: that may be spent.
        guess: accuracy where they pay for no round.
        spent: megabytes that count, until each round's end, [seeds, rounds]; None: those down and up together.
    """
    paid = paid_rounds(series, megabytes, spent)
    values = np.asarray(series.test_accuracy, np.float64)
    counted = np.minimum(-(-paid // LAST_THIRD), metrics.LAST_ROUNDS)
    ends = zip(values, paid, counted)
    return np.array([one[end - count : end].mean() if end else guess for one, end, count in ends])


def curve(series: Series, megabytes: np.ndarray, guess: float) -> np.ndarray:
    """Return the accuracy that megabytes buy, mean over seeds, [M]; see `accuracy_at`.

    Args:
        series: of a row.
        megabytes: down and up together, [M].
        guess: accuracy where they pay for no round.
    """
    return np.array([accuracy_at(series, float(one), guess).mean() for one in megabytes])


def grid_of(shared: Common, points: int = 200) -> np.ndarray:
    """Return megabytes up to the equal ones, evenly spaced by their logarithm, [points]."""
    return np.geomspace(FEWEST * shared.megabytes, shared.megabytes, points)


def area_by_rounds(series: Series) -> np.ndarray:
    """Return the mean test accuracy of all rounds, [seeds]: the area under its curve, as a share."""
    return metrics.mean_of_measured(series.test_accuracy, axis=1)


def area_by_megabytes(series: Series, megabytes: float, guess: float) -> np.ndarray:
    """Return the mean test accuracy over the megabytes sent, [seeds]: the area under its curve, as a share.

    Between two rounds the accuracy is that of the round before; before the first one it is that of a guess.

    Args:
        series: of a row.
        megabytes: up to which, down and up together.
        guess: accuracy before the first round ends.
    """
    ends = np.minimum(np.concatenate([series.megabytes, np.full((len(series.seeds), 1), np.inf)], axis=1), megabytes)
    widths = np.diff(ends, axis=1, prepend=0.0)
    held = np.concatenate([np.full((len(series.seeds), 1), guess), series.test_accuracy], axis=1)
    return (widths * held).sum(axis=1) / megabytes


def rounds_to_target(series: Series, target: float) -> np.ndarray:
    """Return the first round (from 1) whose mean with the nine before it reaches the target, [seeds]; NaN: none does.

    A single round would reach what a run ends with by chance, long before its end.
    """
    rounds = series.rounds
    running = np.full(series.test_accuracy.shape, np.nan)
    if rounds >= metrics.LAST_ROUNDS:
        windows = np.lib.stride_tricks.sliding_window_view(series.test_accuracy, metrics.LAST_ROUNDS, axis=1)
        running[:, metrics.LAST_ROUNDS - 1 :] = metrics.mean_of_measured(windows, axis=2)
    return metrics.rounds_to_target(running, target)


def of_row(series: Series, shared: Common) -> dict[str, np.ndarray]:
    """Return every number of a row, one a seed, by name.

    A seed that does not arrive at the target counts all rounds, and all megabytes that it sent: less than it needs.

    Args:
        series: of the row.
        shared: of its setting.
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
    if shared.target is None:
        return found
    rounds = rounds_to_target(series, shared.target)
    until = statistics.restricted(rounds, shared.rounds)
    return found | {
        "arrived": np.isfinite(rounds).astype(float),
        "rounds_to_target": until,
        "megabytes_down_to_target": metrics.amount_at_round(series.bytes_down / 1e6, until),
        "megabytes_up_to_target": metrics.amount_at_round(series.bytes_up / 1e6, until),
    }
