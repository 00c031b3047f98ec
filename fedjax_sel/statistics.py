"""Paired comparisons, means with intervals, censored times, and families of tests, over seeds."""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping
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
EXACT_UP_TO = 15
"""The largest number of pairs for which all sign flips are enumerated."""
_BATCH = 250  # resamples per batch, so that a stack of many samples fits in memory
TIES = 1e-9  # tolerance for equal statistics of two sign flips
_LEADERS = 4  # strategies in a head-to-head table
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
    varying = np.ptp(rows, axis=1) > TIES * np.abs(rows).max(axis=1)  # constant rows have no bootstrap distribution
    if varying.any():
        ends[:, varying] = bootstrap(rows[varying], np.mean, level, resamples, seed)
    return Interval(*ends.reshape(2, *values.shape[:-1]))


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
    mean is at least as far from zero as the observed mean. Up to 15 pairs all flips are enumerated, and the smallest p
    is 2 / 2^n. Otherwise flips are drawn, the observed one is included, and the smallest p is 1 / (resamples + 1).

    Args:
        differences: finite paired differences, [..., n].
        resamples: number of drawn flips, for more than 15 pairs.
        seed: seed of the generator.

    Returns:
        p-values, float64 [...], in (0, 1]; 1 if all differences are zero.

    Raises:
        ValueError: there are no differences, or one is not finite.
    """
    observed, flipped = _flipped(differences, resamples, seed)
    return (flipped >= observed - TIES).mean(axis=-1)


def joint_sign_flip_test(differences: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Return the p-values of a family, float64 [m], from the step-down maximum of Student's t over joint sign flips.

    A flip changes the sign of a seed's differences in all comparisons at once, because a seed's runs depend on each
    other. The comparisons are ordered by |t|. The p-value of each is the fraction of flips in which the largest |t| of
    this and all later comparisons is at least the observed |t|, and at least the p-value before it (Westfall and Young,
    "Resampling-Based Multiple Testing", 1993; Romano and Wolf, JASA 100(469), 2005). Rejecting p <= alpha bounds the
    probability of any false rejection by alpha, if the differences without an effect are jointly symmetric: a seed's
    differences and their negatives are equally likely as a whole. A single comparison has `sign_flip_test`'s p-value.

    The differences have one row per comparison, [m, n]. Other arguments and errors are those of `sign_flip_test`.
    """
    observed, flipped = _flipped(_rows(differences), resamples, seed)
    order = np.argsort(-observed[:, 0])
    largest = np.maximum.accumulate(flipped[order[::-1]])[::-1]  # of each row and the rows with a smaller |t|
    p = np.empty(len(order))
    p[order] = np.maximum.accumulate((largest >= observed[order] - TIES).mean(axis=1))
    return p


def _flipped(differences: ArrayLike, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's statistic, [..., 1], and those of its sign flips, [..., flips].

    The statistic is |sum d| / sqrt(sum d^2). Flips keep the denominator, so |mean| and Student's |t| increase with it.
    """
    differences = finite(differences)
    n = differences.shape[-1]
    if n <= EXACT_UP_TO:  # a flip and its negative are equally far from zero, so the first sign is fixed
        signs = 1.0 - 2.0 * ((np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1)
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, n))
        signs = np.vstack([np.ones(n), signs])  # the observed signs are one of the flips
    norms = np.linalg.norm(differences, axis=-1, keepdims=True)
    scaled = differences / np.where(norms > 0, norms, 1.0)
    return np.abs(scaled.sum(axis=-1, keepdims=True)), np.abs(scaled @ signs.T)


def finite(values: ArrayLike) -> np.ndarray:
    """Return values as float64 [..., n]; a ValueError for no value or one that is not finite."""
    values = np.asarray(values, np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"there are no values of seeds in an array of shape {values.shape}; give at least one")
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite; use `restricted` for targets that were not reached")
    return values


def _rows(differences: ArrayLike) -> np.ndarray:
    differences = finite(differences)
    if differences.ndim != 2:
        raise ValueError(f"differences: the shape {differences.shape} is not [comparisons, seeds]; give [differences]")
    return differences


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


class Comparison(NamedTuple):
    """One comparison of a family."""

    difference: float  # mean over seeds
    low: float  # ends of the interval, which is not corrected for the family
    high: float
    p: float  # p-value of the sign-flip test of this comparison alone
    p_family: float  # p-value of the joint test of the family
    leads: int  # seeds in which the strategy is better
    seeds: int
    verdict: str

    @property
    def is_significant(self) -> bool:
        """Whether the verdict is "better" or "worse"."""
        return self.verdict in (BETTER, WORSE)


def least_pairs(alpha: float = ALPHA) -> int:
    """Return the smallest number of pairs with which a comparison can be significant: 6 at a family-wise error of 0.05.

    The smallest two-sided p of n sign flips is 2 / 2^n, in a family of any size. A family reaches it if all
    differences of each comparison have one sign. Comparisons with mixed signs can raise the smallest p.

    Raises:
        ValueError: alpha is not in (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: {alpha} is not between 0 and 1; the default is {ALPHA}")
    return 1 + math.ceil(-math.log2(alpha))


def compare(
    differences: ArrayLike,
    higher_is_better: bool = True,
    alpha: float = ALPHA,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Comparison]:
    """Return the comparisons of a family, each with an interval, p-values and a verdict.

    The verdict is "better" or "worse" if `joint_sign_flip_test` rejects and the bootstrap interval excludes zero. The
    test bounds the probability of any false verdict in the family by alpha; the interval can only remove verdicts. Each
    interval has the level 1 - alpha for its own difference; there is no joint guarantee.

    With fewer pairs than `least_pairs`, the test cannot reject. The verdict is then "too few seeds", which says nothing
    about the strategies.

    Args:
        differences: finite differences paired by seed, one row per comparison, [m, n].
        higher_is_better: whether a positive difference is an improvement.
        alpha: family-wise error.
        resamples: number of bootstrap resamples, and of random flips for more than 15 pairs.
        seed: seed of both generators.

    Returns:
        m comparisons, in order; for a single pair the interval is NaN.

    Raises:
        ValueError: there are no pairs, a difference is not finite, or the shape is another.
    """
    differences = _rows(differences)
    seeds = differences.shape[1]
    numbers = np.column_stack([
        differences.mean(axis=1), *mean_interval(differences, 1 - alpha, resamples, seed),
        sign_flip_test(differences, resamples, seed), joint_sign_flip_test(differences, resamples, seed),
    ]).tolist()  # fmt: skip
    leads = ((differences > 0) == higher_is_better) & (differences != 0)
    comparisons = []
    for (difference, low, high, p, p_family), ahead in zip(numbers, leads.sum(axis=1).tolist()):
        verdict = TOO_FEW_SEEDS if seeds < least_pairs(alpha) else NOT_SIGNIFICANT
        if p_family <= alpha and (low > 0 or high < 0):
            verdict = BETTER if (low > 0) == higher_is_better else WORSE
        comparisons.append(Comparison(difference, low, high, p, p_family, ahead, seeds, verdict))
    return comparisons


def head_to_head(values: Mapping[str, ArrayLike], higher_is_better: bool = True) -> dict[tuple[str, str], Comparison]:
    """Return the comparisons of every pair of the four best by the mean, as one family; the first name is the better.

    `values` are those of the strategies that are better than their baselines, by name, finite and paired by seed, [n].
    With fewer than two, there are no comparisons.
    """
    ordered = sorted(values, key=lambda name: float(finite(values[name]).mean()), reverse=higher_is_better)
    duels = list(itertools.combinations(ordered[:_LEADERS], 2))
    differences = [np.subtract(values[first], values[second]) for first, second in duels]
    return dict(zip(duels, compare(differences, higher_is_better))) if duels else {}


__all__ = [
    "ALPHA", "BETTER", "NOT_SIGNIFICANT", "TOO_FEW_SEEDS", "WORSE", "Comparison", "Interval", "compare", "head_to_head",
    "joint_sign_flip_test", "least_pairs", "mean_interval", "restricted", "share_arrived", "sign_flip_test",
]  # fmt: skip
