"""Several comparisons at once: Holm's correction, and a verdict in words."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedjax_sel.statistics.paired import RESAMPLES, finite, mean_interval, sign_flip_test

ALPHA = 0.05
BETTER, WORSE, WITHIN_CHANCE, TOO_FEW_SEEDS = "better", "worse", "within chance", "too few seeds"


class Holm(NamedTuple):
    """Holm's step-down procedure on a family of m p-values."""

    adjusted: np.ndarray  # [m]; at most alpha where the hypothesis is rejected with a family-wise error of alpha
    divisors: np.ndarray  # int [m]: a p-value is held against alpha over this; equal p-values have equal ones


class Comparison(NamedTuple):
    """One comparison of a family."""

    difference: float  # mean over seeds
    low: float
    high: float
    level: float  # of the interval: 1 - alpha / its divisor in Holm's procedure
    p: float  # of the sign-flip test, alone
    p_holm: float  # within its family
    seeds: int
    verdict: str


def holm(p_values: ArrayLike) -> Holm:
    """Return the p-values of a family after Holm's correction.

    The least of m is multiplied by m, the next by m - 1, and so on; none ends below one that was smaller before.

    Args:
        p_values: of all comparisons that are made to answer one question, [m].

    Raises:
        ValueError: one is not in [0, 1].
    """
    p = np.asarray(p_values, np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a p-value is not in [0, 1]")
    divisors = (p[None, :] >= p[:, None]).sum(axis=1)
    adjusted = np.empty_like(p)
    order = np.argsort(p)
    adjusted[order] = np.minimum(np.maximum.accumulate((divisors * p)[order]), 1.0)
    return Holm(adjusted, divisors)


def least_pairs(comparisons: int = 1, alpha: float = ALPHA) -> int:
    """Return the least number of pairs with which some comparison of a family can be told from chance.

    The least two-sided p of n sign flips is 2 / 2^n, which Holm multiplies by the size of the family: 6 pairs for one
    comparison, 9 for ten.

    Args:
        comparisons: in the family.
        alpha: the family-wise error, in (0, 1).

    Raises:
        ValueError: it is not.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: {alpha} is not between 0 and 1")
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
    """Return what a family of paired comparisons shows.

    "better" and "worse" are said only where both agree: the sign-flip test rejects after Holm's correction, and the
    bootstrap interval leaves out zero. The interval of a comparison has the level 1 - alpha / d, where d is what Holm
    divides alpha by for it (m for the least p-value of m, 1 for the greatest): so the interval and the test answer for
    the same share of the family's error, and neither alone decides. The test bounds the chance of any false verdict in
    the family by alpha; the interval can only take verdicts away. Each interval covers its own difference with at
    least 1 - alpha; all of them together are not promised to.

    With fewer pairs than `least_pairs` the test cannot reject, whatever the differences: the verdict is "too few
    seeds", which says nothing of the strategies.

    Args:
        differences: paired by seed, finite, one row a comparison, [m, n].
        higher_is_better: whether a positive difference is in favour.
        alpha: the family-wise error.
        resamples: of the bootstrap, and of the test beyond 14 pairs (more of a family that wants them).
        seed: of both generators.

    Returns:
        m comparisons, in order; of a single pair the interval is NaN.

    Raises:
        ValueError: there are no pairs, or a difference is not finite.
    """
    differences = finite(differences)
    m, n = differences.shape
    flips = max(resamples, math.ceil(m / alpha))  # with fewer the least p-value of a large family could not reject
    p = sign_flip_test(differences, flips, seed)
    adjusted, divisors = holm(p)
    enough = n >= least_pairs(m, alpha)
    found = []
    for row, p_alone, p_family, divisor in zip(differences, p, adjusted, divisors):
        level = 1 - alpha / int(divisor)
        low, high = map(float, mean_interval(row, level, resamples, seed))
        verdict = TOO_FEW_SEEDS if not enough else WITHIN_CHANCE
        if enough and p_family <= alpha and (low > 0 or high < 0):
            verdict = BETTER if (low > 0) == higher_is_better else WORSE
        found.append(Comparison(float(row.mean()), low, high, level, float(p_alone), float(p_family), n, verdict))
    return found
