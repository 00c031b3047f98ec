"""The rules, by hand and by simulation."""

import numpy as np
import pytest
from scipy import stats

from fedjax_sel import metrics, statistics
from studies.papers import verdicts


def test_a_published_deviation_is_welchs_interval():
    ours, rng = np.array([80.0, 95.0, 110.0, 120.0, 102.0]), np.random.default_rng(0)
    theirs = rng.normal(size=6)
    theirs = 60.0 + 12.0 * (theirs - theirs.mean()) / theirs.std(ddof=1)
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    judged = verdicts.of_mean(60.0, 12.0, 6, ours, 10.0)
    np.testing.assert_allclose([judged.low, judged.high], expected, rtol=1e-12)
    assert judged.difference == pytest.approx(ours.mean() - 60.0)
    assert judged.verdict == verdicts.DIFFERS
    assert verdicts.of_mean(95.0, 12.0, 6, ours, 10.0).verdict == verdicts.INCONCLUSIVE
    assert verdicts.of_mean(95.0, 12.0, 6, ours, 40.0).verdict == verdicts.AGREES


def test_a_single_run_is_held_against_the_next_run_here():
    ours = [1.0, 1.0, 2.0, 3.0, 3.0]  # mean 2, sd 1: half of the interval is t * sqrt(1 + 1/5)
    half = 2.7764451051977987 * np.sqrt(6 / 5)
    judged = verdicts.of_mean(2.0, None, 1, ours, 1.0)
    np.testing.assert_allclose([judged.low, judged.high], [-half, half])
    assert verdicts.of_mean(2.0 + half - 0.01, None, 1, ours, 1.0).verdict == verdicts.INCONCLUSIVE
    assert verdicts.of_mean(2.0 + half + 0.01, None, 1, ours, 1.0).verdict == verdicts.DIFFERS


@pytest.mark.parametrize(
    "low,high,verdict",
    [
        (-0.02, 0.01, verdicts.AGREES),
        (0.01, 0.02, verdicts.AGREES),  # another number than the claimed one, but equivalent
        (-0.28, 0.39, verdicts.INCONCLUSIVE),
        (-0.01, 0.04, verdicts.INCONCLUSIVE),
        (0.01, 0.04, verdicts.DIFFERS),
        (-0.3, -0.1, verdicts.DIFFERS),
        (np.nan, np.nan, verdicts.NOT_COMPARABLE),
    ],
)
def test_a_number_agrees_only_within_its_margin(low, high, verdict):
    assert verdicts.of_number(low, high, 5, 0.0, 0.0, 0.03) == verdict
    assert verdicts.of_number(0.5 + low, 0.5 + high, 5, 0.5, 0.5, 0.03) == verdict
    assert np.isnan(low) or verdicts.of_number(low, high, 4, 0.0, 0.0, 0.03) == statistics.TOO_FEW_SEEDS


@pytest.mark.parametrize(
    "low,high,verdict",
    [
        (0.4, 0.9, verdicts.AGREES),
        (-0.28, 0.39, verdicts.INCONCLUSIVE),  # contains zero and overlaps "34 % to 99 %"
        (0.1, 2.0, verdicts.INCONCLUSIVE),
        (1.82, 6.85, verdicts.DIFFERS),
        (-0.2, 0.3, verdicts.DIFFERS),
    ],
)
def test_a_range_agrees_where_it_holds_the_whole_interval(low, high, verdict):
    assert verdicts.of_number(low, high, 10, 0.34, 0.99) == verdict


@pytest.mark.parametrize(
    "low,high,verdict",
    [(0.01, 0.04, verdicts.AGREES), (0.03, 0.05, verdicts.INCONCLUSIVE), (0.05, 0.06, verdicts.DIFFERS)],
)
def test_at_most(low, high, verdict):
    assert verdicts.of_number(low, high, 5, -np.inf, 0.04) == verdict


@pytest.mark.parametrize(
    "shares,verdict",
    [
        ([0.9, 0.8, 0.85, 0.9, 0.8], verdicts.AGREES),
        ([0.78, 0.49, 0.67, 0.49, 0.76], verdicts.INCONCLUSIVE),  # FedCor Fig. 9 with two labels: 64 % of 245 pairs
        ([0.2, 0.1, 0.15, 0.2, 0.1], verdicts.DIFFERS),
        ([1.0, 1.0], "too few seeds"),
        ([1.0], verdicts.NOT_COMPARABLE),
    ],
)
def test_a_share_is_most_where_its_interval_over_seeds_lies_above_one_half(shares, verdict):
    low, high, found = verdicts.of_share(np.array(shares), 0.5)
    assert found == verdict
    if len(shares) == 5:
        expected = stats.t.interval(0.95, 4, np.mean(shares), stats.sem(shares))
        np.testing.assert_allclose((low, high), np.clip(expected, 0, 1))


@pytest.mark.parametrize(
    "verdict,expected",
    [
        (verdicts.AGREES, verdicts.BY_CONSTRUCTION),
        (verdicts.REPRODUCED, verdicts.BY_CONSTRUCTION),
        (verdicts.CONTRADICTED, verdicts.CONTRADICTED),
        (verdicts.NOT_COMPARABLE, verdicts.NOT_COMPARABLE),
    ],
)
def test_what_a_reading_was_chosen_to_give(verdict, expected):
    assert verdicts.by_construction(verdict) == expected


def test_what_cannot_be_compared():
    judged = verdicts.of_mean(3.0, 1.0, 5, [2.0], 1.0)
    assert judged.verdict == verdicts.NOT_COMPARABLE and judged.difference == -1.0 and np.isnan(judged.low)
    for seeds in range(2, verdicts.FEWEST):  # of two that are alike the interval would have no width
        assert verdicts.of_mean(24.0, None, 50, [25.0] * seeds, 5.0).verdict == statistics.TOO_FEW_SEEDS


def test_values_without_spread_agree_with_themselves_only():
    assert verdicts.of_mean(25.0, None, 1, [25.0] * 5, 0.0).verdict == verdicts.AGREES
    assert verdicts.of_mean(20.0, None, 1, [25.0] * 5, 4.9).verdict == verdicts.DIFFERS
    assert verdicts.of_mean(25.0, 0.0, 5, [25.0] * 5, 0.0).verdict == verdicts.AGREES


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("own,paper_seeds,ratio", [(5, 5, 1.0), (10, 5, 3.0), (5, 1, 1.0), (10, 1, 1.0)])
def test_a_paper_of_the_same_law_does_not_differ_in_nineteen_of_twenty_cases(own, paper_seeds, ratio):
    rng = np.random.default_rng(0)
    same = []
    for _ in range(4000):
        theirs, ours = rng.normal(100.0, ratio * 20.0, paper_seeds), rng.normal(100.0, 20.0, own)
        spread = theirs.std(ddof=1) if paper_seeds > 1 else None
        judged = verdicts.of_mean(float(theirs.mean()), spread, paper_seeds, ours, 0.0)
        same.append(judged.verdict == verdicts.INCONCLUSIVE)
    assert 0.94 <= np.mean(same) <= 0.965  # Welch's is a little wide for five seeds


def test_a_mean_of_many_seeds_without_a_deviation_scatters_less_than_one_run():
    rng = np.random.default_rng(0)
    same = [
        verdicts.of_mean(float(rng.normal(100.0, 20.0, 50).mean()), None, 50, rng.normal(100.0, 20.0, 10), 0.0).verdict
        == verdicts.INCONCLUSIVE
        for _ in range(4000)
    ]
    assert 0.94 <= np.mean(same) <= 0.96
    values = [90.0, 110.0, 95.0, 105.0, 100.0]
    one, many = (verdicts.of_mean(120.0, None, seeds, values, 0.0) for seeds in (1, 50))
    assert (one.verdict, many.verdict) == (verdicts.INCONCLUSIVE, verdicts.DIFFERS)


def rising(rng, seeds, slower=1.0, noise=0.05):
    """Accuracies that rise with noise of their own and another pace in each seed, measured in every fifth round."""
    rounds = np.arange(1, 261)
    pace = slower * rng.normal(60.0, 12.0, (seeds, 1))
    values = 1.0 - np.exp(-rounds / pace) + rng.normal(0.0, noise, (seeds, 260))
    return np.where(rounds % 5 == 0, values, np.nan)


def first(curves):
    return statistics.restricted(metrics.rounds_to_target(curves, 0.9), 260)


@pytest.mark.slow
def test_the_round_of_a_mean_curve_does_not_differ_from_that_of_the_same_law(monkeypatch):
    monkeypatch.setattr(verdicts, "DRAWS", 300)
    rng = np.random.default_rng(0)
    same, differ = [], []
    for _ in range(200):
        papers = float(first(rising(rng, 50).mean(axis=0, keepdims=True))[0])
        same.append(verdicts.of_mean_curve(papers, 50, rising(rng, 10), first, 4).verdict != verdicts.DIFFERS)
        differ.append(verdicts.of_mean_curve(papers, 50, rising(rng, 10, 0.5), first, 4).verdict == verdicts.DIFFERS)
    assert 0.91 <= np.mean(same) <= 0.98 and np.mean(differ) > 0.95


@pytest.mark.slow
def test_a_mean_curve_that_ended_early_differs_from_no_later_one_for_that(monkeypatch):
    """A run ends when all are there: draws that would be there later are cut off, and may be as late as the paper."""
    monkeypatch.setattr(verdicts, "DRAWS", 300)
    rng = np.random.default_rng(5)
    cut, blind = [], []
    for _ in range(150):
        papers = float(first(rising(rng, 50, noise=0.08).mean(axis=0, keepdims=True))[0])
        ours = rising(rng, 10, noise=0.08)
        there = [*metrics.rounds_to_target(ours, 0.9), *metrics.rounds_to_target(ours.mean(axis=0)[None], 0.9)]
        early = ours[:, : int(np.nanmax(there)) + 1]
        arrivals = [lambda curves: metrics.rounds_to_target(curves, 0.9)] * 2
        cut.append(verdicts.of_mean_curve(papers, 50, early, arrivals[0], 4, longest=260).verdict)
        blind.append(verdicts.of_mean_curve(papers, 50, early, arrivals[1], 4).verdict)
    assert cut.count(verdicts.DIFFERS) <= 0.05 * 150 < blind.count(verdicts.DIFFERS), cut.count(verdicts.DIFFERS)
    # The cut withholds verdicts, and makes none.
    assert all(one in (other, verdicts.INCONCLUSIVE) for one, other in zip(cut, blind))
    sure = np.where(np.arange(1, 21) >= 15, 1.0, 0.0)[None].repeat(5, axis=0)
    assert verdicts.of_mean_curve(30, 50, sure, first, 4, longest=260).verdict == verdicts.DIFFERS  # none is later


def test_a_mean_curve_that_is_measured_late():
    ours = np.where(np.arange(1, 21) >= 15, 1.0, 0.0)[None].repeat(5, axis=0)
    for paper, late, verdict in ((15, 0, "agrees"), (11, 0, "differs"), (11, 4, "inconclusive"), (10, 4, "differs"),
                                 (16, 4, "differs"), (13, 0, "agrees")):  # fmt: skip
        judged = verdicts.of_mean_curve(paper, 50, ours, first, late)
        assert judged.verdict == verdict and judged.difference == 15 - paper
    assert verdicts.of_mean_curve(15, 50, ours[:4], first).verdict == statistics.TOO_FEW_SEEDS
    assert verdicts.of_mean_curve(15, 50, ours[:1], first).verdict == verdicts.NOT_COMPARABLE


def test_a_paper_that_is_far_off_differs():
    rng = np.random.default_rng(1)
    differ = [
        verdicts.of_mean(160.0, 20.0, 5, rng.normal(100.0, 20.0, 10), 20.0).verdict == verdicts.DIFFERS
        for _ in range(200)
    ]
    assert np.mean(differ) > 0.95


@pytest.mark.parametrize(
    "paper_reaches,late,verdict",
    [
        (True, 1, verdicts.INCONCLUSIVE),  # of 15 seeds the one is among our ten with probability 2/3
        (True, 5, verdicts.INCONCLUSIVE),  # 252 of 3003
        (True, 6, verdicts.DIFFERS),  # 210 of 5005: less than 5 %
        (False, 1, verdicts.AGREES),
        (False, 10, verdicts.AGREES),
        (False, 0, verdicts.INCONCLUSIVE),  # the one of 15 is among the paper's five with probability 1/3
    ],
)
def test_na_stands_where_some_seed_does_not_arrive(paper_reaches, late, verdict):
    assert verdicts.of_reaching(paper_reaches, 5, [False] * late + [True] * (10 - late)) == verdict


def test_a_single_seed_of_a_paper_that_is_late_among_many_here_that_are_not():
    assert verdicts.of_reaching(False, 1, [True] * 18) == verdicts.INCONCLUSIVE
    assert verdicts.of_reaching(False, 1, [True] * 19) == verdicts.DIFFERS


@pytest.mark.parametrize(
    "shift,seeds,verdict",
    [
        (-3.0, 8, verdicts.REPRODUCED),
        (3.0, 8, verdicts.CONTRADICTED),
        (0.0, 8, verdicts.INCONCLUSIVE),
        (-3.0, 4, statistics.TOO_FEW_SEEDS),
    ],
)
def test_an_order_in_words(shift, seeds, verdict):
    noise = np.random.default_rng(2).normal(size=seeds)
    [one] = statistics.compare((noise - noise.mean() + shift)[None], higher_is_better=False)
    assert verdicts.of_order(one) == verdict


@pytest.mark.parametrize(
    "low,high,verdict",
    [
        (-0.02, 0.02, verdicts.REPRODUCED),
        (0.01, 0.02, verdicts.REPRODUCED),
        (-0.05, -0.04, verdicts.CONTRADICTED),
        (0.04, 0.05, verdicts.CONTRADICTED),
        (-0.05, 0.01, verdicts.INCONCLUSIVE),
        (-0.052, -0.007, verdicts.NOT_SHOWN_CLOSE),
        (0.001, 0.031, verdicts.NOT_SHOWN_CLOSE),
        (np.nan, np.nan, verdicts.NOT_COMPARABLE),
    ],
)
def test_closeness(low, high, verdict):
    assert verdicts.of_closeness(low, high, 5, 0.03) == verdict
    assert np.isnan(low) or verdicts.of_closeness(low, high, 4, 0.03) == statistics.TOO_FEW_SEEDS


@pytest.mark.parametrize(
    "low,high,above,below",
    [
        (0.6, 0.8, verdicts.REPRODUCED, verdicts.CONTRADICTED),
        (0.2, 0.4, verdicts.CONTRADICTED, verdicts.REPRODUCED),
        (0.4, 0.6, verdicts.INCONCLUSIVE, verdicts.INCONCLUSIVE),
        (0.5, 0.5, verdicts.INCONCLUSIVE, verdicts.INCONCLUSIVE),
        (np.nan, np.nan, verdicts.NOT_COMPARABLE, verdicts.NOT_COMPARABLE),
    ],
)
def test_a_bound(low, high, above, below):
    assert verdicts.of_bound(low, high, 5, 0.5) == above
    assert np.isnan(low) or verdicts.of_bound(low, high, 4, 0.5) == statistics.TOO_FEW_SEEDS
    assert verdicts.of_bound(low, high, 5, 0.5, above=False) == below
    assert verdicts.of_bound(low, high, 5, 0.5, whole=False) == verdicts.NOT_COMPARABLE


@pytest.mark.parametrize(
    "low,high,verdict",
    [
        (0.6, 0.8, verdicts.REPRODUCED),
        (0.4, 0.6, verdicts.NOT_REPRODUCED),
        (0.1, 0.3, verdicts.NOT_REPRODUCED),
        (0.0, 0.1, verdicts.CONTRADICTED),
    ],
)
def test_between_two_bounds_a_property_is_not_there(low, high, verdict):
    assert verdicts.of_bound(low, high, 5, 0.5, other=0.2) == verdict
    assert verdicts.of_bound(-high, -low, 5, -0.5, above=False, other=-0.2) == verdict


def test_the_rule_of_orders_says_how_many_seeds():
    assert "An order needs at least 6 seeds." in verdicts.ORDER
