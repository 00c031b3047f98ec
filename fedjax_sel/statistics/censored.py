"""Rounds or megabytes to a target, which a run may end without reaching: censored observations.

A mean over those that arrived would flatter a strategy that rarely does. What can be estimated for all is the share
that arrives, and the mean up to a horizon, where a run that did not arrive by then counts the horizon. It is the area
under the curve of "not there yet", and with all runs watched up to the horizon it is a plain mean, so that what
`paired` and `families` say of means holds for it.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedjax_sel.statistics.paired import RESAMPLES, Interval, mean_interval


def share_arrived(amounts: ArrayLike, horizon: float = np.inf) -> np.ndarray:
    """Return the share of seeds that reach the target within the horizon.

    Args:
        amounts: rounds or megabytes to the target, NaN for a seed that never arrives, [..., seeds].
        horizon: the most that counts, in the same unit.

    Returns:
        float64 [...].
    """
    return (np.asarray(amounts, np.float64) <= horizon).mean(axis=-1)


def restricted(amounts: ArrayLike, horizon: float) -> np.ndarray:
    """Return the amounts up to a horizon: a seed that does not arrive by then counts the horizon.

    Paired differences of restricted means are the means of differences of these:
    `compare(restricted(a, h) - restricted(b, h), higher_is_better=False)`.

    Args:
        amounts: rounds or megabytes to the target, not negative, NaN for a seed that never arrives, [..., seeds].
        horizon: positive, in the same unit, and no more than what every run was watched for: the rounds that all ran,
            or the megabytes that the run which spent the least spent in all.

    Returns:
        float64 [..., seeds].

    Raises:
        ValueError: the horizon is not positive and finite, or an amount is negative.
    """
    amounts = np.asarray(amounts, np.float64)
    if not 0 < horizon < np.inf:
        raise ValueError(f"horizon: {horizon} is not positive and finite")
    if (amounts < 0).any():
        raise ValueError("an amount is negative")
    return np.minimum(np.where(np.isnan(amounts), horizon, amounts), horizon)


def restricted_mean(amounts: ArrayLike, horizon: float) -> np.ndarray:
    """Return the mean of what the target takes, up to a horizon.

    Args:
        amounts: as for `restricted`, [..., seeds].
        horizon: likewise.

    Returns:
        float64 [...].
    """
    return restricted(amounts, horizon).mean(axis=-1)


def restricted_mean_interval(
    amounts: ArrayLike, horizon: float, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the interval of `mean_interval` for a restricted mean.

    Args:
        amounts: as for `restricted`, [..., seeds].
        horizon: likewise.
        level: the coverage asked for, in (0, 1).
        resamples: of the bootstrap.
        seed: of its generator.
    """
    return mean_interval(restricted(amounts, horizon), level, resamples, seed)
