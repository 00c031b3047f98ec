"""A mean paired difference: a bootstrap interval and a permutation test.

Two runs of a seed share their partition, initial model and random streams, so the difference within a seed is what
tells strategies apart, and everything here works on it.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

RESAMPLES = 9_999
"""Of the bootstrap, and of the permutation test where it draws."""
EXACT_UP_TO = 14
"""Pairs of which all 2^14 sign flips are enumerated."""
_BATCH = 250  # resamples at a time, so that a stack of many samples fits in memory
_TIES = 1e-9  # sums of flipped differences that are this close, relative to the sum of their sizes, are equal
# SciPy renamed the argument in 1.15.
_GENERATOR = "rng" if "rng" in inspect.signature(stats.bootstrap).parameters else "random_state"


class Interval(NamedTuple):
    """The ends of a confidence interval, [...] each; NaN where there is a single observation."""

    low: np.ndarray
    high: np.ndarray


def mean_interval(values: ArrayLike, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return the BCa bootstrap interval of a mean, at a level that is expanded for small samples.

    Of ten normal values a plain BCa interval of 95 % covers the mean in 90 % of cases: resampling has the variance
    (n - 1) / n of the sample's, and nothing for not knowing the variance. The level is therefore raised to the one at
    which an interval from a normal distribution is as wide as Student's (Hesterberg, "What Teachers Should Know About
    the Bootstrap", The American Statistician 69(4), 2015: the expanded percentile interval, here of BCa's percentiles):

        (1 - level') / 2 = Phi(-sqrt(n / (n - 1)) t),   t the (1 + level) / 2 quantile of Student's law, n - 1 degrees.

    Below about six values, and at levels close to 1, the interval ends at the least and the greatest resampled mean,
    and covers less than its level says.

    Args:
        values: one a seed, e.g. paired differences, finite, [..., n].
        level: the coverage asked for, in (0, 1).
        resamples: of the bootstrap.
        seed: of its generator: equal arguments give equal intervals.

    Returns:
        The interval, in the values' unit; of width zero where all values are equal.

    Raises:
        ValueError: there is no value, or one that is not finite.
    """
    values = finite(values)
    rows = values.reshape(-1, values.shape[-1])
    ends = np.array([rows[:, 0], rows[:, 0]])
    varying = np.ptp(rows, axis=1) > _TIES * np.abs(rows).max(axis=1)  # of the others the bootstrap has no distribution
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
        above: the numerator's values, one a seed, finite, [n].
        below: the denominator's, of a mean that is far from zero, [n].
        level: the coverage asked for, in (0, 1).
        resamples: of the bootstrap.
        seed: of its generator.

    Returns:
        The interval; NaN for a single seed, of width zero where all seeds have the same ratio.

    Raises:
        ValueError: there is no value, or one that is not finite.
    """
    both = np.stack([finite(above), finite(below)])
    seeds = both.shape[-1]
    if seeds == 1:
        return Interval(np.array(np.nan), np.array(np.nan))
    ratio = np.asarray(both[0].mean() / both[1].mean())
    if np.allclose(both[0], ratio * both[1], rtol=_TIES, atol=0):  # else the bootstrap has no distribution
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
        sample: [..., n], at least two.
        statistic: (sample, axis) -> the sample without that axis.
        level: the coverage asked for, in (0, 1).
        resamples: how many.
        seed: of their generator.
        method: SciPy's name of it; "BCa" needs a statistic that leaving out one value changes.
    """
    generator: dict[str, Any] = {_GENERATOR: np.random.default_rng(seed)}
    found = stats.bootstrap(
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
    return found.confidence_interval


def sign_flip_test(differences: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Return the two-sided p-value of the sign-flip permutation test of a mean paired difference.

    Under the null hypothesis, a difference is as likely as its opposite: p is the share of all sign flips whose mean is
    at least as far from zero as the observed one. Up to 14 pairs all flips are enumerated; beyond, flips are drawn, and
    the observed one counts among them. The least p of n pairs is 2 / 2^n, and that of drawn flips 1 / (resamples + 1).

    Args:
        differences: one a pair, finite, [..., n].
        resamples: flips that are drawn, where not all are.
        seed: of their generator.

    Returns:
        float64 [...], in (0, 1]; 1 where all differences are zero.

    Raises:
        ValueError: there is no difference, or one that is not finite.
    """
    differences = finite(differences)
    n = differences.shape[-1]
    exact = n <= EXACT_UP_TO
    if exact:  # a flip and its opposite are equally far from zero: the first sign may stay
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
        ValueError: there is none, or one that is not finite.
    """
    values = np.asarray(values, np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"an array of shape {values.shape} holds no values of seeds")
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite; a target that was not reached is for `restricted`")
    return values


def _expanded(level: float, n: int, resamples: int) -> float:
    """Return the level at which the bootstrap of n values is asked; at most that of the outermost resamples."""
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is not between 0 and 1")
    quantile = np.sqrt(n / (n - 1)) * stats.t.ppf((1 + level) / 2, n - 1)
    return 1 - 2 * max(float(stats.norm.sf(quantile)), 0.5 / resamples)
