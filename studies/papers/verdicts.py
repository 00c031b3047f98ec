"""Rules of the verdicts on reproductions.

The rules for orders were fixed before the runs. The equivalence margins for numbers were set after the first runs, from
the papers' claims rather than the results. results/papers/README.md prints these rules.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedjax_sel import statistics
from fedjax_sel.statistics import Comparison

AGREES, DIFFERS, NOT_COMPARABLE = "agrees", "differs", "not comparable"
REPRODUCED, NOT_REPRODUCED, CONTRADICTED = "reproduced", "not reproduced", "contradicted"
INCONCLUSIVE = "inconclusive"  # the interval or test is compatible with both answers
NOT_SHOWN_CLOSE = "not shown to be smaller than the margin"  # the interval excludes zero and crosses the margin
BY_CONSTRUCTION = "by construction"  # our interpretation or our data were chosen to yield it
ACCURACY_MARGIN = 0.03  # a third of the smallest accuracy gain that a paper's text claims (GPFL's, 0.093)
ROUNDS_MARGIN = 0.2  # fraction of the paper's rounds, below the smallest claimed gain (FedCor's, 26 %)
LEVEL = 0.95
DRAWS = 2000
FEWEST = 5  # fewest values for a reliable interval of their mean; two equal values give one of zero width
ORDER = (
    "An order is reproduced if the paired differences over seeds are significant by the joint sign-flip test of a "
    "family and by the bootstrap interval. A family is one claim in a setting. The order is contradicted if they are "
    f"significant the other way, and inconclusive otherwise. An order needs at least {statistics.least_pairs()} seeds. "
    "Pages written before the joint test have p-values, intervals and verdicts of Holm's correction."
)
NUMBERS = (
    "A number agrees if the whole 95 % interval of our value minus the paper's lies within the equivalence margin. "
    "Otherwise it differs if the interval excludes zero, and is inconclusive if it contains zero. The margins are "
    f"{ACCURACY_MARGIN:g} for accuracies and {100 * ROUNDS_MARGIN:g} % of the paper's number for rounds. They were set "
    "after the first runs; until then, a number agreed if the interval contained zero."
)


class Judged(NamedTuple):
    """Comparison of a paper's number with ours."""

    difference: float  # ours minus the paper's
    low: float
    high: float
    verdict: str


def of_mean(
    paper: float, paper_sd: float | None, paper_seeds: int, ours: Sequence[float] | np.ndarray, margin: float
) -> Judged:
    """Compare a mean over seeds with a published one.

    With a published standard deviation, the interval is Welch's 95 % interval of the difference of means. Otherwise it
    is our 95 % prediction interval for the mean of `paper_seeds` further seeds.

    Args:
        paper: published mean or single value.
        paper_sd: published standard deviation over seeds; None if not published.
        paper_seeds: number of seeds in the paper.
        ours: our values, finite, [seeds].
        margin: equivalence margin, in the unit of the number.

    Returns:
        The difference, its interval, and the verdict of `of_number`; "not comparable" with fewer than two seeds.
    """
    values = np.asarray(ours, np.float64)
    n, difference = len(values), float(values.mean()) - paper
    if n < 2:
        return Judged(difference, np.nan, np.nan, NOT_COMPARABLE)
    own = values.var(ddof=1) / n
    if paper_sd is None or paper_seeds < 2:
        half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.sqrt(values.var(ddof=1) * (1 / paper_seeds + 1 / n)))
    else:
        theirs = paper_sd**2 / paper_seeds
        total = own + theirs
        freedom = total**2 / (own**2 / (n - 1) + theirs**2 / (paper_seeds - 1)) if total > 0 else 1.0
        half = float(stats.t.ppf((1 + LEVEL) / 2, freedom) * np.sqrt(total))
    low, high = difference - half, difference + half
    return Judged(difference, low, high, of_number(low, high, n, 0.0, 0.0, margin))


def of_number(low: float, high: float, count: int, least: float, most: float, margin: float = 0.0) -> str:
    """Return the verdict on a number against a claimed number or range.

    Args:
        low: lower end of the number's 95 % interval; NaN with one seed.
        high: upper end of the interval.
        count: number of values in the mean.
        least: lower end of the claim; -inf for "at most".
        most: upper end of the claim; equal to `least` for a single number.
        margin: equivalence margin around the claim; 0 if the claim is a range.

    Returns:
        "agrees" if the interval lies within the claim and its margin; "differs" if it excludes the claim; otherwise
        "inconclusive". "not comparable" with one value, "too few seeds" with fewer than FEWEST values.
    """
    if np.isnan(low) or np.isnan(high):
        return NOT_COMPARABLE
    if count < FEWEST:
        return statistics.TOO_FEW_SEEDS
    if least - margin <= low and high <= most + margin:
        return AGREES
    return INCONCLUSIVE if low <= most and high >= least else DIFFERS


def of_share(shares: np.ndarray, bound: float) -> tuple[float, float, str]:
    """Judge the claim that a mean share exceeds a bound.

    Args:
        shares: share of each seed, [seeds]; the trials within a seed may depend on each other.
        bound: claimed bound.

    Returns:
        Student's 95 % interval of the mean share, and the verdict of `of_number`.
    """
    mean, n = float(shares.mean()), len(shares)
    half = np.nan if n < 2 else float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * shares.std(ddof=1) / np.sqrt(n))
    low, high = map(float, np.clip([mean - half, mean + half], 0, 1))
    return low, high, of_number(low, high, n, bound, np.inf)


def by_construction(verdict: str) -> str:
    """Replace a positive verdict by "by construction", for claims that our interpretation or data guarantee."""
    return BY_CONSTRUCTION if verdict in (AGREES, REPRODUCED) else verdict


def of_mean_curve(
    paper: float,
    paper_seeds: int,
    ours: np.ndarray,
    first: Callable[[np.ndarray], np.ndarray],
    late: float = 0.0,
    longest: int | None = None,
) -> Judged:
    """Compare the round in which the mean curve over seeds reaches a target with a published one.

    The mean curve reaches the target later than the average seed, because single seeds cross it and fall back. The mean
    curve yields only one number. Its variance is therefore estimated by a bootstrap over our seeds, with our and with
    the paper's number of seeds. The interval is the central 95 % of the differences of such draws, widened by the ratio
    of Student's t to the normal quantile. The margin is ROUNDS_MARGIN of the paper's number.

    Args:
        paper: published round.
        paper_seeds: number of seeds in the paper.
        ours: our curves, [seeds, rounds].
        first: function from curves [n, rounds] to the round in which each reaches the target, [n], NaN for never. NaN
            counts as all rounds.
        late: maximum delay of our round due to evaluation in only some rounds.
        longest: planned number of rounds. If the runs stopped earlier, a draw that does not reach the target has an
            unknown, later round. None: the runs have all their rounds.

    Returns:
        The difference, its interval and the verdict, as from `of_mean`; "inconclusive" if the verdict depends on the
        unknown rounds.
    """
    n, last = len(ours), ours.shape[1]
    difference = float(statistics.restricted(first(ours.mean(axis=0, keepdims=True)), last)[0]) - paper
    if n < 2:
        return Judged(difference, np.nan, np.nan, NOT_COMPARABLE)
    rng = np.random.default_rng(0)
    here, there = (first(rng.multinomial(size, np.full(n, 1 / n), DRAWS) / size @ ours) for size in (n, paper_seeds))
    wider = stats.t.ppf((1 + LEVEL) / 2, n - 1) / stats.norm.ppf((1 + LEVEL) / 2) * np.sqrt(n / (n - 1))
    ends, horizon = [(1 - LEVEL) / 2, (1 + LEVEL) / 2], max(last, longest or last)

    def interval(least: np.ndarray, most: np.ndarray) -> tuple[float, float]:
        low, high = wider * np.quantile(least, ends[0]), wider * np.quantile(most, ends[1])
        return difference - float(high) - late, difference - float(low)

    # The executed rounds are a lower bound for both draws; with early stopping, the true rounds may be later.
    soonest, latest = ([statistics.restricted(one, end) for one in (here, there)] for end in (last, horizon))
    apart = soonest[0] - soonest[1]
    ends_here = interval(apart, apart)
    open_ended = interval(soonest[0] - latest[1], latest[0] - soonest[1])
    verdict, later = (of_number(*of, n, 0.0, 0.0, ROUNDS_MARGIN * paper) for of in (ends_here, open_ended))
    return Judged(difference, *ends_here, verdict if verdict == later else INCONCLUSIVE)


def of_reaching(paper_reaches: bool, paper_seeds: int, arrived: Sequence[bool] | np.ndarray) -> str:
    """Return the verdict on whether all seeds reach a target; a paper prints "N/A" if some of its seeds do not.

    Under the null hypothesis, the paper's and our seeds are exchangeable. The verdict depends on the probability that
    all unsuccessful seeds (at least one for an N/A of the paper) fall on one side.

    Args:
        paper_reaches: whether the paper has a number, so that all of its seeds reach the target.
        paper_seeds: number of seeds in the paper.
        arrived: whether each of our seeds reaches the target, bool [seeds]; not all True if the paper has a number.

    Returns:
        "agrees" if both sides have unsuccessful seeds; "differs" if only one side has them, with a probability of at
        most 5 %; otherwise "inconclusive".
    """
    late, seeds = int(np.sum(~np.asarray(arrived, bool))), len(arrived)
    if late and not paper_reaches:
        return AGREES
    if paper_reaches:
        probability = float(stats.hypergeom.pmf(late, seeds + paper_seeds, late, seeds))
    else:
        probability = paper_seeds / (seeds + paper_seeds)
    return DIFFERS if probability <= 1 - LEVEL else INCONCLUSIVE


def of_bound(
    low: float,
    high: float,
    count: int,
    bound: float,
    above: bool = True,
    other: float | None = None,
    whole: bool = True,
) -> str:
    """Return the verdict on the claim that a mean lies above or below a bound.

    Args:
        low: lower end of the mean's 95 % interval; NaN with one seed.
        high: upper end of the interval.
        count: number of values in the mean.
        bound: bound of the claim; "reproduced" if the interval lies beyond it.
        above: whether the claim is that the mean lies above the bound.
        other: "contradicted" if the interval lies on the other side of this second bound; None: equal to `bound`.
        whole: whether the runs have all their rounds.

    Returns:
        "reproduced" or "contradicted"; between the two, "inconclusive" with one bound and "not reproduced" with two.
        "not comparable" with one value or fewer rounds, "too few seeds" with fewer than FEWEST values.
    """
    if np.isnan(low) or np.isnan(high) or not whole:
        return NOT_COMPARABLE
    if count < FEWEST:
        return statistics.TOO_FEW_SEEDS
    beyond = bound if other is None else other
    if low > bound if above else high < bound:
        return REPRODUCED
    if high < beyond if above else low > beyond:
        return CONTRADICTED
    return INCONCLUSIVE if other is None else NOT_REPRODUCED


def of_closeness(low: float, high: float, count: int, margin: float) -> str:
    """Return the verdict on the claim that a difference is small.

    Args:
        low: lower end of the difference's 95 % interval; NaN with one seed.
        high: upper end of the interval.
        count: number of values in the mean.
        margin: largest small difference.

    Returns:
        "reproduced" if the interval lies within the margin, "contradicted" if it lies beyond it on one side. Otherwise
        "not shown to be smaller than the margin" if the interval excludes zero, else "inconclusive". "not comparable"
        with one value, "too few seeds" with fewer than FEWEST values.
    """
    if np.isnan(low) or np.isnan(high):
        return NOT_COMPARABLE
    if count < FEWEST:
        return statistics.TOO_FEW_SEEDS
    if low >= -margin and high <= margin:
        return REPRODUCED
    if low > margin or high < -margin:
        return CONTRADICTED
    return INCONCLUSIVE if low <= 0 <= high else NOT_SHOWN_CLOSE


def of_order(found: Comparison, whole: bool = True) -> str:
    """Return the verdict on a claimed order from paired differences.

    Args:
        found: comparison of the claimed winner with another strategy, from `statistics.compare`.
        whole: whether the runs have all their rounds.

    Returns:
        "reproduced" if the winner is better, "contradicted" if it is worse, otherwise "inconclusive" or "too few
        seeds"; "not comparable" with fewer rounds.
    """
    if not whole:
        return NOT_COMPARABLE
    words = {statistics.BETTER: REPRODUCED, statistics.WORSE: CONTRADICTED, statistics.NOT_SIGNIFICANT: INCONCLUSIVE}
    return words.get(found.verdict, found.verdict)
