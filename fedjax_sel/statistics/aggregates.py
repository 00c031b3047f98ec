"""One number, or one curve, for many runs: over seeds, and over settings and seeds."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fedjax_sel.statistics.paired import RESAMPLES, Interval, bootstrap, finite


def interquartile_mean(scores: ArrayLike) -> float:
    """Return the mean of the middle half of all runs, settings and seeds together.

    A quarter is cut at either end, rounded down to whole runs.

    Args:
        scores: finite, [seeds] or [settings, seeds], of one scale in all settings.

    Raises:
        ValueError: there is no score, or one that is not finite.
    """
    return float(stats.trim_mean(finite(scores).ravel(), 0.25))


def interquartile_mean_interval(
    scores: ArrayLike, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the BCa bootstrap interval of the interquartile mean, at the expanded level of `mean_interval`.

    Whole seeds are resampled, with their scores in all settings: a seed's runs in several settings are not independent.
    Where the middle half is tied, so that no single seed matters, its ends are plain percentiles of the resamples. It
    speaks of other seeds in these settings, not of other settings.

    Args:
        scores: finite, [seeds] or [settings, seeds].
        level: the coverage asked for, in (0, 1).
        resamples: of the bootstrap.
        seed: of its generator.

    Returns:
        The interval; NaN for a single seed, of width zero where all seeds have equal scores.

    Raises:
        ValueError: there is no score, or one that is not finite.
    """
    table = np.atleast_2d(finite(scores))
    seeds = table.shape[1]

    def of_seeds(chosen: np.ndarray, axis: int) -> np.ndarray:
        runs = np.moveaxis(table[:, np.moveaxis(chosen, axis, -1).astype(int)], 0, -1)
        return stats.trim_mean(runs.reshape(*runs.shape[:-2], -1), 0.25, axis=-1)

    if seeds == 1:
        return Interval(np.array(np.nan), np.array(np.nan))
    without_one = of_seeds(np.array([np.delete(np.arange(seeds), out) for out in range(seeds)]), -1)
    # where leaving out a seed changes nothing, as where the middle half is tied, BCa has no acceleration to estimate
    method = "BCa" if np.ptp(without_one) > 0 else "percentile"
    return Interval(*map(np.asarray, bootstrap(np.arange(seeds), of_seeds, level, resamples, seed, method)))


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> np.ndarray:
    """Return the share of runs whose score is above each threshold.

    Args:
        scores: finite, [seeds] or [settings, seeds].
        thresholds: tau, [T].

    Returns:
        float64 [T], falling from 1 to 0 where the thresholds rise past all scores.

    Raises:
        ValueError: there is no score, or one that is not finite.
    """
    return (finite(scores).ravel() > np.asarray(thresholds, np.float64)[:, None]).mean(axis=1)
