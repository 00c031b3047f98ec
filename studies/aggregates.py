"""Statistics over settings and ratios, with the bootstrap intervals of `fedjax_sel.statistics`."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fedjax_sel.statistics import RESAMPLES, TIES, Interval, bootstrap, finite


def ratio_interval(
    above: ArrayLike, below: ArrayLike, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the BCa bootstrap interval of a ratio of two means over the same seeds, at the level of `mean_interval`.

    `above` and `below` are finite values of numerator and denominator, one per seed, [n]. The mean of `below` must be
    far from zero. The other arguments are those of `mean_interval`.

    Returns:
        The interval; NaN for a single seed, and of width zero if all seeds have the same ratio.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    both = np.stack([finite(above), finite(below)])
    seeds = both.shape[-1]
    if seeds == 1:
        return Interval(np.array(np.nan), np.array(np.nan))
    ratio = np.asarray(both[0].mean() / both[1].mean())
    if np.allclose(both[0], ratio * both[1], rtol=TIES, atol=0):  # a constant ratio has no bootstrap distribution
        return Interval(ratio, ratio)

    def of_seeds(chosen: np.ndarray, axis: int) -> np.ndarray:
        numerators, denominators = both[:, chosen.astype(int)].mean(axis=axis if axis < 0 else axis + 1)
        return numerators / denominators

    return bootstrap(np.arange(seeds), of_seeds, level, resamples, seed)


def interquartile_mean(scores: ArrayLike) -> float:
    """Return the mean of the middle half of all runs, pooled over settings and seeds.

    A quarter of the runs, rounded down, is removed at each end.

    Args:
        scores: finite scores on a common scale, [seeds] or [settings, seeds].

    Raises:
        ValueError: there are no scores, or one is not finite.
    """
    return float(stats.trim_mean(finite(scores).ravel(), 0.25))


def interquartile_mean_interval(
    scores: ArrayLike, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the BCa bootstrap interval of the interquartile mean, at the expanded level of `mean_interval`.

    Whole seeds are resampled with their scores in all settings, because a seed's runs in several settings are not
    independent. The interval generalizes to other seeds in these settings, not to other settings. If the middle half is
    tied, so that no single seed changes the mean, the ends are plain percentiles of the resamples.

    The scores are finite, [seeds] or [settings, seeds]. The other arguments are those of `mean_interval`.

    Returns:
        The interval; NaN for a single seed, and of width zero if all seeds have equal scores.

    Raises:
        ValueError: there are no scores, or one is not finite.
    """
    table = np.atleast_2d(finite(scores))
    seeds = table.shape[1]

    def of_seeds(chosen: np.ndarray, axis: int) -> np.ndarray:
        runs = np.moveaxis(table[:, np.moveaxis(chosen, axis, -1).astype(int)], 0, -1)
        return stats.trim_mean(runs.reshape(*runs.shape[:-2], -1), 0.25, axis=-1)

    if seeds == 1:
        return Interval(np.array(np.nan), np.array(np.nan))
    without_one = of_seeds(np.array([np.delete(np.arange(seeds), out) for out in range(seeds)]), -1)
    # If omitting a seed changes nothing, BCa's acceleration is undefined.
    method = "BCa" if np.ptp(without_one) > 0 else "percentile"
    return bootstrap(np.arange(seeds), of_seeds, level, resamples, seed, method)


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> np.ndarray:
    """Return the fraction of runs with a score above each threshold, [T].

    Args:
        scores: finite scores, [seeds] or [settings, seeds].
        thresholds: thresholds tau, [T].
    """
    return (finite(scores).ravel() > np.asarray(thresholds, np.float64)[:, None]).mean(axis=1)
