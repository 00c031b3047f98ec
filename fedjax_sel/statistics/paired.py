"""Bootstrap intervals and a permutation test for a mean paired difference.

Two runs with the same seed share partition, initial model and random streams. Differences within a seed therefore
compare strategies most precisely.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

RESAMPLES = 9_999
"""The number of bootstrap resamples, and of random sign flips in the permutation test."""
EXACT_UP_TO = 14
"""The largest number of pairs for which all sign flips are enumerated."""
_BATCH = 250  # resamples per batch, so that a stack of many samples fits in memory
_TIES = 1e-9  # relative tolerance for equal sums of flipped differences
# SciPy 1.15 renamed the argument.
_GENERATOR = "rng" if "rng" in inspect.signature(stats.bootstrap).parameters else "random_state"


class Interval(NamedTuple):
    """The ends of a confidence interval, [...] each; NaN for a single observation."""

    low: np.ndarray
    high: np.ndarray


def mean_interval(values: ArrayLike, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return the BCa bootstrap interval of a mean, at a level that is expanded for small samples.

    For ten normal values, a plain 95 % BCa interval covers the mean in 90 % of cases. Resampling has (n - 1) / n of the
    sample's variance, and ignores that the variance is estimated. The level is therefore raised until a normal interval
    is as wide as Student's. This is the expanded percentile interval (Hesterberg, "What Teachers Should Know About the
    Bootstrap", The American Statistician 69(4), 2015), applied to BCa's percentiles:

        (1 - level') / 2 = Phi(-sqrt(n / (n - 1)) t),   t the (1 + level) / 2 quantile of Student's law, n - 1 degrees.

    With fewer than about six values, or at levels close to 1, the interval ends at the smallest and largest resampled
    mean, and its coverage is below its level.

    Args:
        values: finite values, one per seed, e.g. paired differences, [..., n].
        level: nominal coverage, in (0, 1).
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap's generator; equal arguments give equal intervals.

    Returns:
        The interval, in the values' unit; of width zero if all values are equal.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    values = finite(values)
    rows = values.reshape(-1, values.shape[-1])
    ends = np.array([rows[:, 0], rows[:, 0]])
    varying = np.ptp(rows, axis=1) > _TIES * np.abs(rows).max(axis=1)  # constant rows have no bootstrap distribution
    if rows.shape[1] == 1:
        ends = np.full_like(ends, np.nan)
    elif varying.any():
        ends[:, varying] = bootstrap(rows[varying], np.mean, level, resamples, seed)
    return Interval(*ends.reshape(2, *values.shape[:-1]))


def ratio_interval(
    above: ArrayLike, below: ArrayLike, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the BCa bootstrap interval of a ratio of two means over the same seeds, at the level of `mean_interval`.

    Args:
        above: finite values of the numerator, one per seed, [n].
        below: finite values of the denominator, one per seed, [n]; their mean must be far from zero.
        level: nominal coverage, in (0, 1).
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap's generator.

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
    if np.allclose(both[0], ratio * both[1], rtol=_TIES, atol=0):  # a constant ratio has no bootstrap distribution
        return Interval(ratio, ratio)

    def of_seeds(chosen: np.ndarray, axis: int) -> np.ndarray:
        numerators, denominators = both[:, chosen.astype(int)].mean(axis=axis if axis < 0 else axis + 1)
        return numerators / denominators

    return Interval(*map(np.asarray, bootstrap(np.arange(seeds), of_seeds, level, resamples, seed)))


def bootstrap(
    sample: np.ndarray, statistic: Callable[..., Any], level: float, resamples: int, seed: int, method: str = "BCa"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the bootstrap interval of a statistic, with the expanded level of `mean_interval`.

    Args:
        sample: values, [..., n] with n at least 2.
        statistic: (sample, axis) -> statistic over that axis.
        level: nominal coverage, in (0, 1).
        resamples: number of resamples.
        seed: seed of the generator.
        method: SciPy's name of the method; "BCa" needs a statistic that changes if one value is omitted.
    """
    generator: dict[str, Any] = {_GENERATOR: np.random.default_rng(seed)}
    result = stats.bootstrap(
        (sample,),
        statistic,
        axis=-1,
        vectorized=True,
        method=method,
        confidence_level=_expanded(level, sample.shape[-1], resamples),
        n_resamples=resamples,
        batch=_BATCH,
        **generator,
    )
    return result.confidence_interval


def sign_flip_test(differences: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Return the two-sided p-value of the sign-flip permutation test of a mean paired difference.

    Under the null hypothesis, a difference and its negative are equally likely. p is the fraction of sign flips whose
    mean is at least as far from zero as the observed mean. Up to 14 pairs all flips are enumerated, and the smallest p
    is 2 / 2^n. Otherwise flips are drawn, the observed one is included, and the smallest p is 1 / (resamples + 1).

    Args:
        differences: finite paired differences, [..., n].
        resamples: number of drawn flips, for more than 14 pairs.
        seed: seed of the generator.

    Returns:
        p-values, float64 [...], in (0, 1]; 1 if all differences are zero.

    Raises:
        ValueError: there are no differences, or one is not finite.
    """
    differences = finite(differences)
    n = differences.shape[-1]
    exact = n <= EXACT_UP_TO
    if exact:  # a flip and its negative are equally far from zero, so the first sign is fixed
        signs = 1.0 - 2.0 * ((np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1)
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, n))
    rounding = _TIES * np.abs(differences).sum(axis=-1, keepdims=True)
    observed = np.abs(differences.sum(axis=-1, keepdims=True))
    as_far = (np.abs(differences @ signs.T) >= observed - rounding).sum(axis=-1)
    return as_far / len(signs) if exact else (as_far + 1.0) / (resamples + 1.0)


def finite(values: ArrayLike) -> np.ndarray:
    """Return values as float64 [..., n].

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    values = np.asarray(values, np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"there are no values of seeds in an array of shape {values.shape}; give at least one")
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite; use `restricted` for targets that were not reached")
    return values


def _expanded(level: float, n: int, resamples: int) -> float:
    """Return the expanded level for n values, at most the level of the outermost resamples."""
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is not between 0 and 1; the default is 0.95")
    quantile = np.sqrt(n / (n - 1)) * stats.t.ppf((1 + level) / 2, n - 1)
    return 1 - 2 * max(float(stats.norm.sf(quantile)), 0.5 / resamples)
