"""Intervals, tests and verdicts of few seeds: against SciPy, by hand, and by simulation."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedjax_sel import statistics

TEN = np.array([0.012, -0.003, 0.021, 0.007, 0.015, 0.001, -0.006, 0.018, 0.009, 0.011])
LAWS = {  # name -> (a sample of a shape, its mean)
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "skewed": (lambda rng, shape: rng.gamma(8.0, size=shape), 8.0),  # skewness 0.7
}


def test_an_interval_is_scipys_bca_interval_at_the_expanded_level():
    quantile = np.sqrt(10 / 9) * stats.t.ppf(0.975, 9)
    level = 1 - 2 * stats.norm.sf(quantile)
    assert 0.98 < level < 0.985
    expected = stats.bootstrap(
        (TEN,), np.mean, method="BCa", confidence_level=level, n_resamples=20_000, random_state=np.random.default_rng(5)
    ).confidence_interval
    np.testing.assert_allclose(statistics.mean_interval(TEN), expected, atol=4e-4)
    low, high = statistics.mean_interval(TEN)
    assert statistics.mean_interval(TEN, seed=1) != (low, high) == statistics.mean_interval(TEN)


def test_an_interval_of_a_skewed_sample_is_not_symmetric():
    values = np.array([1, 1, 1, 2, 2, 2, 3, 3, 4, 12.0])
    low, high = statistics.mean_interval(values)
    assert high - values.mean() > 1.3 * (values.mean() - low) > 0


def test_intervals_of_a_stack_are_those_of_its_samples():
    stack = np.stack([TEN, TEN**2, np.full(10, 3.0), -TEN]).reshape(2, 2, 10)
    low, high = statistics.mean_interval(stack)
    assert low.shape == high.shape == (2, 2)
    for place in np.ndindex(2, 2):
        np.testing.assert_allclose((low[place], high[place]), statistics.mean_interval(stack[place]), rtol=1e-12)
    assert low[1, 0] == high[1, 0] == 3.0


def test_the_least_and_the_greatest_levels_stay_in_the_sample():
    for values in (TEN, TEN[:2], TEN[:6]):
        for level in (0.01, 0.95, 0.999, 1 - 1e-9):
            low, high = statistics.mean_interval(values, level)
            assert values.min() <= low <= high <= values.max()


@pytest.mark.parametrize("law", LAWS)
def test_intervals_cover_what_they_say(law):
    """1,500 samples of ten: a standard error of 0.6 %. A plain BCa interval covers 89 %."""
    _covers(law, samples=1500, resamples=1999)


def test_a_plain_bca_interval_of_ten_values_covers_too_little():
    """What the level is expanded for, and docs/statistics.md says: 90 %."""
    samples = np.random.default_rng(11).normal(size=(2000, 10))
    low, high = stats.bootstrap(
        (samples,), np.mean, axis=-1, n_resamples=999, batch=200, random_state=np.random.default_rng(0)
    ).confidence_interval
    assert 0.88 < np.mean((low <= 0) & (high >= 0)) < 0.92


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 20])
@pytest.mark.parametrize("law", LAWS)
def test_intervals_cover_what_they_say_in_many_samples(law, n):
    _covers(law, samples=40_000, resamples=3999, n=n)


@pytest.mark.slow
def test_at_levels_close_to_one_intervals_cover_less_than_they_say():
    """The first comparison of the leaderboard's families: 98 to 99 %."""
    rng, covered = np.random.default_rng(11), []
    for part in range(40):
        low, high = statistics.mean_interval(rng.normal(size=(500, 10)), 1 - 0.05 / 14, seed=part)
        covered += list((low <= 0) & (high >= 0))
    assert 0.98 < np.mean(covered) < 0.99


def _covers(law, samples, resamples, n=10):
    draw, mean = LAWS[law]
    rng = np.random.default_rng(11)
    covered = []
    for part in range(0, samples, 500):  # each with resamples of its own
        low, high = statistics.mean_interval(draw(rng, (500, n)), 0.95, resamples, seed=part)
        covered += list((low <= mean) & (mean <= high))
    assert 0.93 <= np.mean(covered) <= 0.97, np.mean(covered)


def test_signs_flipped_by_hand():
    differences = np.array([3.0, 1.0, 2.0])  # sums of the flips: +-6, +-4, +-2, 0 twice
    assert statistics.sign_flip_test(differences) == 2 / 8
    assert statistics.sign_flip_test([3.0, -1.0, 2.0]) == 4 / 8
    assert statistics.sign_flip_test([3.0, -1.0, -2.0]) == 1
    np.testing.assert_array_equal(statistics.sign_flip_test([[3, 1, 2], [-3, -1, -2]]), [0.25, 0.25])


@pytest.mark.parametrize("n", [1, 2, 6, 9])
def test_p_values_equal_an_enumeration_and_scipys(n):
    for differences in np.random.default_rng(n).normal(0.5, 1.0, (5, n)):
        means = [np.dot(signs, differences) / n for signs in itertools.product((-1, 1), repeat=n)]
        expected = np.mean(np.abs(means) >= abs(differences.mean()) - 1e-12)
        assert statistics.sign_flip_test(differences) == expected
        if n > 1:
            of_scipy = stats.permutation_test(
                (differences, np.zeros(n)), lambda a, b, axis: (a - b).mean(axis=axis),
                permutation_type="samples", n_resamples=np.inf, vectorized=True,
            )  # fmt: skip
            np.testing.assert_allclose(statistics.sign_flip_test(differences), of_scipy.pvalue)


def test_flips_are_drawn_beyond_fourteen_pairs():
    differences = np.random.default_rng(0).normal(0.45, 1.0, 15)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=15)))
    exact = np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12)
    drawn = statistics.sign_flip_test(differences)
    assert 0.02 < exact < 0.5 and abs(drawn - exact) < 4 * np.sqrt(exact / 9999)
    assert drawn != exact and drawn == statistics.sign_flip_test(differences)
    assert statistics.sign_flip_test(np.ones(40)) == 1e-4  # none of 9,999: never zero
    fourteen = differences[:14]
    exact = np.mean(np.abs(signs[: 2**14, 1:] @ fourteen) >= abs(fourteen.sum()) - 1e-12)
    assert statistics.sign_flip_test(fourteen) == exact


def test_ties_that_rounding_breaks_are_ties():
    """0.1 + 0.2 - 0.3 is not zero in binary: 0.3 - 0.1 - 0.2 must count as far as its opposite."""
    assert statistics.sign_flip_test([0.1, 0.2, -0.3]) == 1
    assert statistics.sign_flip_test(np.zeros(8)) == 1


def test_holm_against_an_example_worked_by_hand():
    """0.01 x 4; 0.02 x 3; 0.03 x 2; 0.04 x 1, but none below the one before; the order of the family is kept."""
    found = statistics.holm([0.03, 0.01, 0.04, 0.005])
    np.testing.assert_allclose(found.adjusted, [0.06, 0.03, 0.06, 0.02])
    assert found.divisors.tolist() == [2, 3, 1, 4]
    tied = statistics.holm([0.02, 0.02, 0.9])
    np.testing.assert_allclose(tied.adjusted, [0.06, 0.06, 0.9])
    assert tied.divisors.tolist() == [3, 3, 1]
    assert statistics.holm([0.6, 0.7]).adjusted.tolist() == [1.0, 1.0]
    for wrong in ([0.1, np.nan], [1.1], [-0.1]):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            statistics.holm(wrong)


def test_how_many_pairs_a_family_needs():
    assert [statistics.least_pairs(m) for m in (1, 2, 10, 12, 13)] == [6, 7, 9, 9, 10]
    for m in (1, 2, 10):
        least = statistics.least_pairs(m)
        for n, words in ((least, {"better"}), (least - 1, {"too few seeds"})):
            found = statistics.compare(np.linspace(0.99, 1.01, m * n).reshape(m, n))
            assert {one.verdict for one in found} == words


def test_verdicts():
    noise = np.random.default_rng(2).normal(0, 0.01, 10)
    rows = np.stack([noise - noise.mean() + shift for shift in (0.0, 0.05, -0.05)])
    assert [one.verdict for one in statistics.compare(rows)] == ["not significant", "better", "worse"]
    assert [one.verdict for one in statistics.compare(rows, higher_is_better=False)] == [
        "not significant", "worse", "better",
    ]  # fmt: skip
    chance, better, worse = statistics.compare(rows)
    assert (better.p, better.p_holm, better.seeds) == (2 / 1024, 6 / 1024, 10)
    assert better.level == worse.level == 1 - 0.05 / 3 and chance.level == 0.95
    assert (better.low, better.high) == statistics.mean_interval(rows[1], 1 - 0.05 / 3)
    assert better.difference == pytest.approx(0.05) and chance.p == 1


def test_a_test_that_rejects_is_not_enough_where_the_interval_does_not():
    """And the other way round: an interval without zero is not enough where the test does not reject."""
    rng = np.random.default_rng(4)
    disagreements = set()
    for differences in rng.normal(0.75, 1.0, (300, 10)):
        (found,) = statistics.compare(differences[None], resamples=999)
        excludes = found.low > 0 or found.high < 0
        if excludes != (found.p_holm <= 0.05):
            disagreements.add(excludes)
            assert found.verdict == "not significant"
        else:
            assert (found.verdict == "better") == excludes
    assert disagreements == {True, False}


@pytest.mark.slow
def test_false_alarms_of_a_family_are_rare():
    """Three comparisons with one baseline and no effect anywhere: 6,000 families, a standard error of 0.3 %."""
    _false_alarms(6000, "normal", strategies=3)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("strategies", [1, 3, 10])
def test_false_alarms_of_many_families_are_rare(law, strategies):
    _false_alarms(30_000, law, strategies)


def _false_alarms(families, law, strategies):
    draw, _ = LAWS[law]
    scores = draw(np.random.default_rng(21), (families, strategies + 1, 10))
    differences = scores[:, 1:] - scores[:, :1]
    p = statistics.sign_flip_test(differences)
    rejected = np.array([statistics.holm(of_family).adjusted.min() <= 0.05 for of_family in p])

    def alarm(place):
        found = statistics.compare(differences[place], resamples=999, seed=place)
        return any(one.verdict in ("better", "worse") for one in found)

    # the test has to reject for an alarm: of the other families it is enough to look at some
    assert not any(map(alarm, np.flatnonzero(~rejected)[:50]))
    assert 0 < sum(map(alarm, np.flatnonzero(rejected))) / families < 0.05


@pytest.mark.slow
def test_a_large_family_of_many_pairs_can_reject():
    differences = np.tile(0.1 + 0.001 * np.arange(16), (600, 1))
    assert statistics.least_pairs(600) <= 16
    assert {found.verdict for found in statistics.compare(differences, resamples=199)} == {"better"}
    with pytest.raises(ValueError, match="alpha"):
        statistics.least_pairs(3, -0.05)


def test_differences_that_are_all_zero_and_a_single_pair():
    (found,) = statistics.compare(np.zeros((1, 10)))
    assert found == (0.0, 0.0, 0.0, 0.95, 1.0, 1.0, 10, "not significant")
    (found,) = statistics.compare(np.full((1, 10), 0.25))
    assert (found.low, found.high, found.p, found.verdict) == (0.25, 0.25, 2 / 1024, "better")
    (found,) = statistics.compare([[0.1] * 9 + [np.nextafter(0.1, 1)]])  # as equal as rounding leaves them
    assert (found.low, found.high, found.verdict) == (0.1, 0.1, "better")
    (found,) = statistics.compare([[0.5]])
    assert np.isnan([found.low, found.high]).all()
    assert (found.difference, found.p, found.seeds, found.verdict) == (0.5, 1.0, 1, "too few seeds")
    assert all(
        one.verdict == "too few seeds" for one in statistics.compare(np.ones((1, 5)) + 0.01 * np.arange(5))
    )  # p = 0.0625, though all agree


@pytest.mark.parametrize("values", [[0.1, np.nan], [np.inf, 1.0], [], 0.3])
def test_what_is_not_finite_or_not_there_is_refused(values):
    rows = np.asarray(values)[None]
    for function in (statistics.mean_interval, statistics.sign_flip_test, statistics.interquartile_mean):
        with pytest.raises(ValueError, match=r"not finite|no values"):
            function(values)
    if rows.ndim == 2:
        with pytest.raises(ValueError, match=r"not finite|no values"):
            statistics.compare(rows)
    with pytest.raises(ValueError, match="level"):
        statistics.mean_interval(TEN, 95)


def test_interquartile_means():
    assert statistics.interquartile_mean([1, 2, 3, 100]) == 2.5
    assert statistics.interquartile_mean(np.arange(10.0) ** 2) == np.mean(np.arange(2, 8) ** 2)
    table = np.array([[1, 2, 3, 4], [5, 6, 7, 80]])  # of both settings together: 3, 4, 5, 6
    assert statistics.interquartile_mean(table) == 4.5


def test_an_interquartile_mean_has_an_interval_over_whole_seeds():
    rng = np.random.default_rng(3)
    seeds = rng.normal(size=10)
    low, high = statistics.interquartile_mean_interval(np.stack([seeds, seeds + 1e-9]))
    alone = statistics.interquartile_mean_interval(seeds)
    # a copy of a setting tells nothing new: ten seeds stay ten (of twenty, three quarters of the width would be left)
    assert high - low == pytest.approx(alone.high - alone.low, rel=0.15)
    assert low < statistics.interquartile_mean(seeds) < high
    independent = statistics.interquartile_mean_interval(rng.normal(size=(4, 10)))
    assert independent.high - independent.low < 0.75 * (high - low)
    assert np.isnan(statistics.interquartile_mean_interval([[1.0], [2.0]])).all()
    assert statistics.interquartile_mean_interval(np.ones((2, 10))) == (1, 1)
    tied = statistics.interquartile_mean_interval([0, 1, 1, 1, 1, 1, 1, 1, 1, 2.0])
    assert tied.low <= 1 <= tied.high


@pytest.mark.slow
def test_interquartile_intervals_cover():
    """300 tables of two settings and ten seeds, whose interquartile mean is zero by symmetry."""
    covered = []
    for place, scores in enumerate(np.random.default_rng(8).normal(size=(300, 2, 10))):
        low, high = statistics.interquartile_mean_interval(scores, resamples=499, seed=place)
        covered.append(low <= 0 <= high)
    assert 0.92 <= np.mean(covered) <= 0.985, np.mean(covered)


def test_the_code_of_the_page():
    page = (Path(__file__).parents[1] / "docs" / "statistics.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    names = {}
    exec(code, names)
    assert names["comparison"].verdict == re.findall(r"print\(comparison.verdict\)  # (.+)", code)[0]


def test_ratios_have_an_interval_over_seeds():
    rng = np.random.default_rng(0)
    below = rng.uniform(1, 3, 10)
    low, high = statistics.ratio_interval(2 * below + rng.normal(0, 0.1, 10), below)
    assert 1.8 < low < 2 < high < 2.2
    wide = statistics.ratio_interval(2 * rng.permutation(below), below)  # what the pairs do not share
    assert wide.low < low and high < wide.high
    assert statistics.ratio_interval([2.0, 4.0], [1.0, 2.0]) == (2.0, 2.0)
    assert statistics.ratio_interval([2.0, 0.0, 4.0], [1.0, 0.0, 2.0]) == (2.0, 2.0)  # a value may be zero
    assert np.isnan(statistics.ratio_interval([2.0], [1.0])).all()


def test_performance_profiles():
    scores = np.array([[0.1, 0.5], [0.5, 0.9]])
    np.testing.assert_array_equal(
        statistics.performance_profile(scores, [0.0, 0.1, 0.4, 0.5, 0.89, 1]), [1, 0.75, 0.75, 0.25, 0.25, 0]
    )


def test_a_seed_that_never_arrives_counts_the_horizon():
    rounds = np.array([10, 30, np.nan, 50])
    assert statistics.share_arrived(rounds) == 0.75 and statistics.share_arrived(rounds, 40) == 0.5
    np.testing.assert_array_equal(statistics.restricted(rounds, 40), [10, 30, 40, 40])
    assert statistics.restricted(rounds, 60).mean() == (10 + 30 + 60 + 50) / 4
    assert statistics.restricted([np.nan] * 3, 60).mean() == 60
    # the area under the curve of those that are not there yet, round by round
    not_yet = [np.mean(~(rounds <= passed)) for passed in range(60)]
    assert statistics.restricted(rounds, 60).mean() == pytest.approx(np.sum(not_yet))
    difference = statistics.restricted(rounds, 60) - statistics.restricted([20, np.nan, np.nan, 10], 60)
    assert difference.mean() == statistics.restricted(rounds, 60).mean() - (20 + 60 + 60 + 10) / 4
    for wrong in (0, np.inf, np.nan):
        with pytest.raises(ValueError, match="horizon"):
            statistics.restricted(rounds, wrong)
    with pytest.raises(ValueError, match="negative"):
        statistics.restricted([-1.0], 60)
