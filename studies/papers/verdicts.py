"""The rules by which a reproduction is judged.

The rules of orders were written before the runs. The equivalence margins of numbers were set after the first runs; they
come from the papers' own claims and not from the results. docs/reproductions.md prints these rules.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedjax_sel import statistics
from fedjax_sel.statistics import Comparison

AGREES, DIFFERS, NOT_COMPARABLE = "agrees", "differs", "not comparable"
REPRODUCED, NOT_REPRODUCED, CONTRADICTED = "reproduced", "not reproduced", "contradicted"
INCONCLUSIVE = "inconclusive"  # the interval or test leaves both answers open
NOT_SHOWN_CLOSE = "not shown to be smaller than the margin"  # a difference that leaves out zero and crosses the margin
BY_CONSTRUCTION = "by construction"  # our reading or our data were chosen to give it
ACCURACY_MARGIN = 0.03  # a third of the least gain in accuracy that a paper's text claims (GPFL's, 0.093)
ROUNDS_MARGIN = 0.2  # share of the paper's rounds: below the least gain that a text claims (FedCor's, 26 %)
LEVEL = 0.95
DRAWS = 2000
FEWEST = 5  # values whose mean has an interval that may be believed; of two that agree it has no width
ORDER = (
    "An order is reproduced if paired differences over seeds are statistically significant by the sign-flip test after "
    "Holm's correction (a family is one claim in a setting) and by the bootstrap interval, contradicted if they are "
    f"significant the other way, and inconclusive otherwise. Fewer than {statistics.least_pairs(3)} seeds cannot tell "
    "three orders."
)
NUMBERS = (
    "A number agrees if the whole 95 % interval of ours minus the paper's lies within the equivalence margin; "
    "otherwise it differs if the interval leaves out zero, and is inconclusive if it contains zero. The margins, "
    f"{ACCURACY_MARGIN:g} for accuracies and {100 * ROUNDS_MARGIN:g} % of the paper's number for rounds, were set "
    "after the first runs (until then a number agreed wherever the interval contained zero)."
)


class Judged(NamedTuple):
    """A number of a paper beside ours."""

    difference: float  # ours minus the paper's
    low: float
    high: float
    verdict: str


def of_mean(
    paper: float, paper_sd: float | None, paper_seeds: int, ours: Sequence[float] | np.ndarray, margin: float
) -> Judged:
    """Return whether a mean over seeds agrees with a published one.

    With a published deviation: Welch's interval of the difference of means, 95 %. Without one: the 95 % prediction
    interval of the mean of as many further seeds here.

    Args:
        paper: the published mean, or single value.
        paper_sd: its standard deviation over seeds; None where it is not published.
        paper_seeds: over how many.
        ours: one value a seed, finite.
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
    """Return whether a number agrees with a claimed one, by its interval.

    Args:
        low: end of its 95 % interval; NaN with one seed.
        high: the other one.
        count: values of which it is the mean.
        least: lower end of what is claimed; -inf for "at most".
        most: upper end of it; the same as `least` for a single number.
        margin: equivalence margin around the claim; 0 where the claim is a range.

    Returns:
        "agrees" where the whole interval lies within the claim and its margin; otherwise "differs" where it leaves out
        the claim, and "inconclusive" where it overlaps it; "not comparable" with one value, "too few seeds" with fewer
        than FEWEST.
    """
    if np.isnan(low) or np.isnan(high):
        return NOT_COMPARABLE
    if count < FEWEST:
        return statistics.TOO_FEW_SEEDS
    if least - margin <= low and high <= most + margin:
        return AGREES
    return INCONCLUSIVE if low <= most and high >= least else DIFFERS


def of_share(successes: int, trials: int, bound: float) -> tuple[float, float, str]:
    """Return Wilson's 95 % interval of a share, and whether the share exceeds a bound as claimed.

    Args:
        successes: trials with the property.
        trials: all of them, counted as independent.
        bound: agrees where the whole interval lies above it, differs where it lies below.
    """
    low, high = stats.binomtest(successes, trials).proportion_ci(LEVEL, "wilson")
    return float(low), float(high), AGREES if low > bound else DIFFERS if high < bound else INCONCLUSIVE


def by_construction(verdict: str) -> str:
    """Return "by construction" for a positive verdict on what the reading or the data were chosen to give."""
    return BY_CONSTRUCTION if verdict in (AGREES, REPRODUCED) else verdict


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
    paper's. The interval is the middle 95 % of the differences of such draws, widened as an interval of so few is by
    Student's t; the margin is ROUNDS_MARGIN of the paper's number.

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
        The difference, its interval, and the verdict, as of `of_mean`; "inconclusive" where it depends on when those
        draws would be there.
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
    ends_here = interval(apart, apart)
    open_ended = interval(soonest[0] - latest[1], latest[0] - soonest[1])
    verdict, later = (of_number(*of, n, 0.0, 0.0, ROUNDS_MARGIN * paper) for of in (ends_here, open_ended))
    return Judged(difference, *ends_here, verdict if verdict == later else INCONCLUSIVE)


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
        probability of at most 5 %; else "inconclusive".
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
        "reproduced" or "contradicted"; in between "inconclusive", or "not reproduced" where there are two
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
    return INCONCLUSIVE if other is None else NOT_REPRODUCED


def of_closeness(low: float, high: float, count: int, margin: float) -> str:
    """Return whether a difference is small, as a paper claims.

    Args:
        low: end of its 95 % interval; NaN with one seed.
        high: the other one.
        count: values of which it is the mean.
        margin: what counts as small.

    Returns:
        "reproduced" where all of the interval is within the margin, "contradicted" where all is beyond it on one side;
        between them "not shown to be smaller than the margin" where the interval leaves out zero, else "inconclusive";
        "not comparable" with one value, "too few seeds" with fewer than FEWEST.
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
    """Return what paired differences say of an order that a paper claims.

    Args:
        found: the claimed winner minus another, in a family of `statistics.compare`.
        whole: whether the runs have all their rounds.

    Returns:
        "reproduced" where the winner is better, "contradicted" where it is worse, else "inconclusive" or "too few
        seeds"; "not comparable" with fewer rounds.
    """
    if not whole:
        return NOT_COMPARABLE
    words = {statistics.BETTER: REPRODUCED, statistics.WORSE: CONTRADICTED, statistics.WITHIN_CHANCE: INCONCLUSIVE}
    return words.get(found.verdict, found.verdict)
