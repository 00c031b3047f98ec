"""Paired comparisons, means with intervals, censored times, and families of tests, over seeds."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

# Bootstrap intervals and a permutation test for a mean paired difference.
#
# Two runs with the same seed share partition, initial model and random streams. Differences within a seed therefore
# compare strategies most precisely.

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
    ends = np.array([rows[:, 0], rows[:, 0]]) if rows.shape[1] > 1 else np.full((2, len(rows)), np.nan)
    varying = np.ptp(rows, axis=1) > _TIES * np.abs(rows).max(axis=1)  # constant rows have no bootstrap distribution
    if varying.any():
        ends[:, varying] = bootstrap(rows[varying], np.mean, level, resamples, seed)
    return Interval(*ends.reshape(2, *values.shape[:-1]))


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
    if np.allclose(both[0], ratio * both[1], rtol=_TIES, atol=0):  # a constant ratio has no bootstrap distribution
        return Interval(ratio, ratio)

    def of_seeds(chosen: np.ndarray, axis: int) -> np.ndarray:
        numerators, denominators = both[:, chosen.astype(int)].mean(axis=axis if axis < 0 else axis + 1)
        return numerators / denominators

    return bootstrap(np.arange(seeds), of_seeds, level, resamples, seed)


def bootstrap(
    sample: np.ndarray, statistic: Callable[..., Any], level: float, resamples: int, seed: int, method: str = "BCa"
) -> Interval:
    """Return the bootstrap interval of a statistic, with the expanded level of `mean_interval`.

    The sample is [..., n] with n at least 2. The method "BCa" needs a statistic that changes if one value is omitted.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is not between 0 and 1; the default is 0.95")
    n = sample.shape[-1]
    quantile = np.sqrt(n / (n - 1)) * stats.t.ppf((1 + level) / 2, n - 1)
    expanded = 1 - 2 * max(float(stats.norm.sf(quantile)), 0.5 / resamples)  # at most that of the outermost resamples
    generator: dict[str, Any] = {_GENERATOR: np.random.default_rng(seed)}
    ends = stats.bootstrap(
        (sample,), statistic, axis=-1, vectorized=True, method=method, n_resamples=resamples, batch=_BATCH,
        confidence_level=expanded, **generator,
    ).confidence_interval  # fmt: skip
    return Interval(*map(np.asarray, ends))


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
    """Return values as float64 [..., n]; a ValueError for no value or one that is not finite."""
    values = np.asarray(values, np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"there are no values of seeds in an array of shape {values.shape}; give at least one")
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite; use `restricted` for targets that were not reached")
    return values


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


# Censored observations: rounds, megabytes or seconds to a target that a run may not reach.
#
# A mean over the runs that reach the target would favor strategies that rarely do. Two quantities use all runs:
# the fraction that reaches the target, and the restricted mean, in which the other runs count the horizon. The
# restricted mean is the area under the survival curve. If all runs extend to the horizon it is a plain mean, so the
# methods for paired differences and families apply.
def share_arrived(amounts: ArrayLike, horizon: float = np.inf) -> np.ndarray:
    """Return the fraction of seeds, [...], that reach the target within the horizon.

    Args:
        amounts: rounds, megabytes or seconds to the target, [..., seeds]; NaN for a seed that never reaches it.
        horizon: upper limit, in the same unit.
    """
    return (np.asarray(amounts, np.float64) <= horizon).mean(axis=-1)


def restricted(amounts: ArrayLike, horizon: float) -> np.ndarray:
    """Return the amounts clipped at a horizon; a seed that does not reach the target by then counts the horizon.

    A difference of restricted means is the mean of paired differences of clipped amounts:
    `compare(restricted(a, h) - restricted(b, h), higher_is_better=False)`.

    Args:
        amounts: nonnegative amounts to the target, such as rounds, megabytes or seconds, [..., seeds]; NaN for a seed
            that never reaches it.
        horizon: positive upper limit, in the same unit. It must not exceed the length of any run: the rounds of the
            shortest run, or the total megabytes or seconds of the cheapest run.

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


ALPHA = 0.05
BETTER, WORSE, NOT_SIGNIFICANT, TOO_FEW_SEEDS = "better", "worse", "not significant", "too few seeds"


class Holm(NamedTuple):
    """Holm's step-down procedure on a family of m p-values."""

    adjusted: np.ndarray  # adjusted p-values, [m]; rejected at family-wise error alpha if at most alpha
    divisors: np.ndarray  # int [m]; each p-value is compared with alpha / divisor; ties have equal divisors


class Comparison(NamedTuple):
    """One comparison of a family."""

    difference: float  # mean over seeds
    low: float
    high: float
    level: float  # level of the interval: 1 - alpha / divisor, with the divisor of Holm's procedure
    p: float  # p-value of the sign-flip test
    p_holm: float  # p-value after Holm's correction
    seeds: int
    verdict: str


def holm(p_values: ArrayLike) -> Holm:
    """Return the p-values of a family after Holm's correction.

    The smallest of m p-values is multiplied by m, the next by m - 1, and so on. The adjusted p-values keep their order.

    Args:
        p_values: p-values of all comparisons that answer one question, [m].

    Raises:
        ValueError: a p-value is not in [0, 1].
    """
    p = np.asarray(p_values, np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p_values: a p-value is not in [0, 1]: {p.tolist()}")
    divisors = (p[None, :] >= p[:, None]).sum(axis=1)
    adjusted = np.empty_like(p)
    order = np.argsort(p)
    adjusted[order] = np.minimum(np.maximum.accumulate((divisors * p)[order]), 1.0)
    return Holm(adjusted, divisors)


def least_pairs(comparisons: int = 1, alpha: float = ALPHA) -> int:
    """Return the smallest number of pairs with which a comparison of a family can be significant.

    The smallest two-sided p of n sign flips is 2 / 2^n, which Holm multiplies by the size of the family. One comparison
    needs 6 pairs, ten need 9.

    Args:
        comparisons: number of comparisons in the family.
        alpha: family-wise error, in (0, 1).

    Raises:
        ValueError: alpha is not in (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: {alpha} is not between 0 and 1; the default is {ALPHA}")
    pairs = 1
    while comparisons * 2.0 ** (1 - pairs) > alpha:
        pairs += 1
    return pairs


def compare(
    differences: ArrayLike,
    higher_is_better: bool = True,
    alpha: float = ALPHA,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Comparison]:
    """Return the comparisons of a family, each with an interval, p-values and a verdict.

    The verdict is "better" or "worse" only if the sign-flip test rejects after Holm's correction and the bootstrap
    interval excludes zero. The interval has the level 1 - alpha / d, where d is Holm's divisor of alpha (m for the
    smallest of m p-values, 1 for the largest). Interval and test thus use the same share of the family's error.

    The test bounds the probability of any false verdict in the family by alpha; the interval can only remove verdicts.
    Each interval has a coverage of at least 1 - alpha for its own difference; there is no joint guarantee.

    With fewer pairs than `least_pairs`, the test cannot reject. The verdict is then "too few seeds", which says nothing
    about the strategies.

    Args:
        differences: finite differences paired by seed, one row per comparison, [m, n].
        higher_is_better: whether a positive difference is an improvement.
        alpha: family-wise error.
        resamples: number of bootstrap resamples, and of random flips for more than 14 pairs; raised for large families.
        seed: seed of both generators.

    Returns:
        m comparisons, in order; for a single pair the interval is NaN.

    Raises:
        ValueError: there are no pairs, or a difference is not finite.
    """
    differences = finite(differences)
    m, n = differences.shape
    flips = max(resamples, math.ceil(m / alpha))  # fewer flips could never reject in a large family
    p = sign_flip_test(differences, flips, seed)
    adjusted, divisors = holm(p)
    enough = n >= least_pairs(m, alpha)
    comparisons = []
    for row, p_alone, p_family, divisor in zip(differences, p, adjusted, divisors):
        level = 1 - alpha / int(divisor)
        low, high = map(float, mean_interval(row, level, resamples, seed))
        verdict = TOO_FEW_SEEDS if not enough else NOT_SIGNIFICANT
        if enough and p_family <= alpha and (low > 0 or high < 0):
            verdict = BETTER if (low > 0) == higher_is_better else WORSE
        comparisons.append(Comparison(float(row.mean()), low, high, level, float(p_alone), float(p_family), n, verdict))
    return comparisons


__all__ = [
    "ALPHA", "BETTER", "NOT_SIGNIFICANT", "TOO_FEW_SEEDS", "WORSE", "Comparison", "Holm", "Interval", "compare", "holm",
    "interquartile_mean", "interquartile_mean_interval", "least_pairs", "mean_interval", "performance_profile",
    "ratio_interval", "restricted", "share_arrived", "sign_flip_test",
]  # fmt: skip
