"""The rules by which a reproduction is judged. They were written before the runs, and know nothing of their results.

A number of a paper is held against the seeds here; an order that a paper claims (A needs fewer rounds than B) against
paired differences. docs/reproductions.md prints these rules.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedjax_sel import statistics
from fedjax_sel.statistics import Comparison

AGREES, DIFFERS, NOT_COMPARABLE = "agrees", "differs", "not comparable"
REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
CONTRADICTED, UNDECIDED = "contradicted", "not told from chance"  # of orders: significantly the other way; neither way
LEVEL = 0.95
DRAWS = 2000
FEWEST = 5  # values whose mean has an interval that may be believed; of two that agree it has no width
ORDER = (
    "An order is reproduced if paired differences over seeds are told from chance by the sign-flip test after Holm's "
    "correction (a family is one claim in a setting) and by the bootstrap interval, and contradicted if they are the "
    f"other way. Fewer than {statistics.least_pairs(3)} seeds cannot tell three orders."
)


class Judged(NamedTuple):
    """A number of a paper beside ours."""

    difference: float  # ours minus the paper's
    low: float
    high: float
    verdict: str


def of_mean(paper: float, paper_sd: float | None, paper_seeds: int, ours: Sequence[float] | np.ndarray) -> Judged:
    """Return whether a mean over seeds agrees with a published one.

    With a published deviation: Welch's interval of the difference of means, 95 %. Without one: whether it lies where
    the mean of as many further seeds here would, by the 95 % prediction interval. "agrees" where zero is inside.

    Args:
        paper: the published mean, or single value.
        paper_sd: its standard deviation over seeds; None where it is not published.
        paper_seeds: over how many.
        ours: one value a seed, finite.

    Returns:
        The difference, its interval, and the verdict; "not comparable" with fewer than two seeds, "too few seeds"
        with fewer than FEWEST.
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
    return _judged(difference, difference - half, difference + half, n)


def _judged(difference: float, low: float, high: float, count: int) -> Judged:
    verdict = AGREES if low <= 0 <= high else DIFFERS
    return Judged(difference, low, high, if_enough(verdict, count))


def of_mean_curve(
    paper: float,
    paper_seeds: int,
    ours: np.ndarray,
    first: Callable[[np.ndarray], np.ndarray],
    late: float = 0.0,
    longest: int | None = None,
) -> Judged:
    """Return whether the round in which a mean over seeds is somewhere agrees with a published one.

    It lies later than the mean of the rounds in which the seeds are there, which cross and fall back, and it is one
    number. So its scatter is that of drawing with replacement from our seeds: as many as ours, and as many as the
    paper's. "agrees" where our difference is within the middle 95 % of the differences of such draws, widened as an
    interval of so few is by Student's t.

    Args:
        paper: the published round.
        paper_seeds: over how many seeds its mean is.
        ours: values of the seeds here after every round, [seeds, rounds].
        first: curves [n, rounds] -> the round in which each is there, NaN where one never is, [n]. That counts all
            rounds.
        late: how many rounds too late ours may be, because it is not measured in every round.
        longest: rounds that ours could have had; with fewer they ended early, and a draw that is not there by then
            would be later, nobody knows by how much. None: as many as they have.

    Returns:
        The difference, its interval, and the verdict, as of `of_mean`; "not told from chance" where it depends on
        when those draws would be there.
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

    # What was run bounds both draws; those of a run that ended early may be later.
    soonest, latest = ([statistics.restricted(one, end) for one in (here, there)] for end in (last, horizon))
    apart = soonest[0] - soonest[1]
    judged = _judged(difference, *interval(apart, apart), n)
    open_ended = interval(soonest[0] - latest[1], latest[0] - soonest[1])
    if judged.verdict == DIFFERS and open_ended[0] <= 0 <= open_ended[1]:
        return judged._replace(verdict=UNDECIDED)
    return judged


def if_enough(verdict: str, count: int) -> str:
    """Return a verdict that follows from the interval of a mean; "too few seeds" of fewer than FEWEST.

    Args:
        verdict: of a number.
        count: values of which it is the mean.
    """
    return verdict if count >= FEWEST or verdict == NOT_COMPARABLE else statistics.TOO_FEW_SEEDS


def of_reaching(paper_reaches: bool, paper_seeds: int, arrived: Sequence[bool] | np.ndarray) -> str:
    """Return whether seeds arrive at a target here as they do in the paper, which says "N/A" where some do not.

    If all seeds are alike, those that do not arrive fall on any of the paper's and ours with the same probability. That
    they all fall on one side (ours, or for an N/A of the paper's its own, one at least) has to be improbable.

    Args:
        paper_reaches: whether the paper has a number there: all of its seeds arrive.
        paper_seeds: how many these are.
        arrived: whether a seed here reaches the target, bool [seeds]; where the paper has a number, not all.

    Returns:
        "agrees" where some seed does not arrive, here and there; "differs" where all do on one side, and that has a
        probability of at most 5 %; else "not told from chance".
    """
    late, seeds = int(np.sum(~np.asarray(arrived, bool))), len(arrived)
    if late and not paper_reaches:
        return AGREES
    if paper_reaches:
        probability = float(stats.hypergeom.pmf(late, seeds + paper_seeds, late, seeds))
    else:
        probability = paper_seeds / (seeds + paper_seeds)
    return DIFFERS if probability <= 1 - LEVEL else UNDECIDED


def of_bound(
    low: float,
    high: float,
    count: int,
    bound: float,
    above: bool = True,
    other: float | None = None,
    whole: bool = True,
) -> str:
    """Return whether a mean lies on the side of a bound on which a claim has it.

    Args:
        low: end of its 95 % interval; NaN with one seed.
        high: the other one.
        count: values of which it is the mean.
        bound: reproduced where all of the interval lies beyond it.
        above: whether the claim is that the mean lies above.
        other: contradicted where all of the interval lies on its other side; None: the bound itself.
        whole: whether the runs have all their rounds.

    Returns:
        "reproduced" or "contradicted"; in between "not told from chance", or "not reproduced" where there are two
        bounds; "not comparable" with one value or fewer rounds, "too few seeds" with fewer than FEWEST.
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
    return UNDECIDED if other is None else NOT_REPRODUCED


def of_closeness(low: float, high: float, count: int, margin: float) -> str:
    """Return whether a difference is small, as a paper claims.

    Args:
        low: end of its 95 % interval; NaN with one seed.
        high: the other one.
        count: values of which it is the mean.
        margin: what counts as small.

    Returns:
        "reproduced" where all of the interval is within the margin, "contradicted" where all is beyond it on one side,
        else "not told from chance"; "not comparable" with one value, "too few seeds" with fewer than FEWEST.
    """
    if np.isnan(low) or np.isnan(high):
        return NOT_COMPARABLE
    if count < FEWEST:
        return statistics.TOO_FEW_SEEDS
    if low >= -margin and high <= margin:
        return REPRODUCED
    return CONTRADICTED if low > margin or high < -margin else UNDECIDED


def of_order(found: Comparison, whole: bool = True) -> str:
    """Return what paired differences say of an order that a paper claims.

    Args:
        found: the claimed winner minus another, in a family of `statistics.compare`.
        whole: whether the runs have all their rounds.

    Returns:
        "reproduced" where the winner is better, "contradicted" where it is worse, else "not told from chance" or
        "too few seeds"; "not comparable" with fewer rounds.
    """
    if not whole:
        return NOT_COMPARABLE
    words = {statistics.BETTER: REPRODUCED, statistics.WORSE: CONTRADICTED, statistics.WITHIN_CHANCE: UNDECIDED}
    return words.get(found.verdict, found.verdict)
