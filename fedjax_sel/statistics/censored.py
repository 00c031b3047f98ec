"""Censored observations: rounds or megabytes to a target that a run may not reach.

A mean over the runs that reach the target would favor strategies that rarely do. Two quantities use all runs:
the fraction that reaches the target, and the restricted mean, in which the other runs count the horizon. The restricted
mean is the area under the survival curve. If all runs extend to the horizon it is a plain mean, so the methods of
`paired` and `families` apply.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedjax_sel.statistics.paired import RESAMPLES, Interval, mean_interval


def share_arrived(amounts: ArrayLike, horizon: float = np.inf) -> np.ndarray:
    """Return the fraction of seeds that reach the target within the horizon.

    Args:
        amounts: rounds or megabytes to the target, [..., seeds]; NaN for a seed that never reaches it.
        horizon: upper limit, in the same unit.

    Returns:
        Fractions, float64 [...].
    """
    return (np.asarray(amounts, np.float64) <= horizon).mean(axis=-1)


def restricted(amounts: ArrayLike, horizon: float) -> np.ndarray:
    """Return the amounts clipped at a horizon; a seed that does not reach the target by then counts the horizon.

    A difference of restricted means is the mean of paired differences of clipped amounts:
    `compare(restricted(a, h) - restricted(b, h), higher_is_better=False)`.

    Args:
        amounts: nonnegative rounds or megabytes to the target, [..., seeds]; NaN for a seed that never reaches it.
        horizon: positive upper limit, in the same unit. It must not exceed the length of any run: the rounds of the
            shortest run, or the total megabytes of the cheapest run.

    Returns:
        Clipped amounts, float64 [..., seeds].

    Raises:
        ValueError: the horizon is not positive and finite, or an amount is negative.
    """
    amounts = np.asarray(amounts, np.float64)
    if not 0 < horizon < np.inf:
        raise ValueError(f"horizon: {horizon} is not positive and finite; give the length of the shortest run")
    if (amounts < 0).any():
        raise ValueError(f"amounts: {np.nanmin(amounts):g} is negative; give NaN for a target that was not reached")
    return np.minimum(np.where(np.isnan(amounts), horizon, amounts), horizon)


def restricted_mean(amounts: ArrayLike, horizon: float) -> np.ndarray:
    """Return the mean amount to the target, restricted to a horizon.

    Args:
        amounts: amounts as for `restricted`, [..., seeds].
        horizon: horizon as for `restricted`.

    Returns:
        Restricted means, float64 [...].
    """
    return restricted(amounts, horizon).mean(axis=-1)


def restricted_mean_interval(
    amounts: ArrayLike, horizon: float, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the interval of `mean_interval` for a restricted mean.

    Args:
        amounts: amounts as for `restricted`, [..., seeds].
        horizon: horizon as for `restricted`.
        level: nominal coverage, in (0, 1).
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap's generator.
    """
    return mean_interval(restricted(amounts, horizon), level, resamples, seed)
