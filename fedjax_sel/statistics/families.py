"""Families of comparisons: Holm's correction, and a verdict for each comparison."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedjax_sel.statistics.paired import RESAMPLES, finite, mean_interval, sign_flip_test

ALPHA = 0.05
BETTER, WORSE, WITHIN_CHANCE, TOO_FEW_SEEDS = "better", "worse", "within chance", "too few seeds"


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
        verdict = TOO_FEW_SEEDS if not enough else WITHIN_CHANCE
        if enough and p_family <= alpha and (low > 0 or high < 0):
            verdict = BETTER if (low > 0) == higher_is_better else WORSE
        comparisons.append(Comparison(float(row.mean()), low, high, level, float(p_alone), float(p_family), n, verdict))
    return comparisons
