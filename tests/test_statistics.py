"""Intervals, tests and verdicts of few seeds: against SciPy, by hand, and by simulation."""

import itertools

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


@pytest.mark.slow
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
    """A level of 99.6 %: 98 to 99 %."""
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


def test_flips_are_drawn_beyond_fifteen_pairs():
    differences = np.random.default_rng(0).normal(0.45, 1.0, 16)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=16)))
    exact = np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12)
    drawn = statistics.sign_flip_test(differences)
    assert 0.02 < exact < 0.5 and abs(drawn - exact) < 4 * np.sqrt(exact / 9999)
    assert drawn != exact and drawn == statistics.sign_flip_test(differences)
    assert statistics.sign_flip_test(np.ones(40)) == 1e-4  # none of 9,999: never zero
    fifteen = differences[:15]
    exact = np.mean(np.abs(signs[: 2**15, 1:] @ fifteen) >= abs(fifteen.sum()) - 1e-12)
    assert statistics.sign_flip_test(fifteen) == exact


def test_ties_that_rounding_breaks_are_ties():
    """0.1 + 0.2 - 0.3 is not zero in binary: 0.3 - 0.1 - 0.2 must count as far as its opposite."""
    assert statistics.sign_flip_test([0.1, 0.2, -0.3]) == 1
    assert statistics.sign_flip_test(np.zeros(8)) == 1


def twin(rows):
    """The joint p-values by enumeration of all flips, with SciPy's t: plain loops."""
    rows = np.asarray(rows, np.float64)

    def t(rows):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(np.abs(stats.ttest_1samp(rows, 0.0, axis=1).statistic), posinf=1e12)

    flipped = np.array([t(rows * signs) for signs in itertools.product((-1, 1), repeat=rows.shape[1])])
    observed, p, before = t(rows), np.ones(len(rows)), 0.0
    remaining = sorted(range(len(rows)), key=lambda row: -observed[row])
    while remaining:
        row = remaining[0]
        before = max(before, np.mean(flipped[:, remaining].max(axis=1) >= observed[row] * (1 - 1e-9)))
        p[row] = before
        remaining = remaining[1:]
    return p


@pytest.mark.parametrize("n", [4, 7, pytest.param(9, marks=pytest.mark.slow)])
def test_joint_p_values_equal_an_enumeration_with_scipys_t(n):
    rng = np.random.default_rng(n)
    for m in (1, 2, 6):
        rows = rng.normal(size=(m, n)) + 0.7 * rng.normal(size=n) + rng.uniform(-1, 1.5, (m, 1))
        np.testing.assert_allclose(statistics.joint_sign_flip_test(rows), twin(rows), rtol=1e-12)
    rows[0] = rows[1]  # equal rows have equal p-values
    np.testing.assert_allclose(found := statistics.joint_sign_flip_test(rows), twin(rows), rtol=1e-12)
    assert found[0] == found[1]


def test_the_joint_test_of_one_comparison_is_the_sign_flip_test():
    for n in (3, 10, 15, 20):
        for row in np.random.default_rng(n).normal(0.3, 1.0, (5, n)):
            assert statistics.joint_sign_flip_test(row[None]) == statistics.sign_flip_test(row)


def test_joint_p_values_are_at_least_those_of_each_comparison_and_zeros_have_one():
    rows = np.random.default_rng(3).normal(0.5, 1.0, (8, 9))
    rows[2] = 0
    joint, alone = statistics.joint_sign_flip_test(rows), statistics.sign_flip_test(rows)
    assert (joint >= alone).all() and joint[2] == alone[2] == 1
    np.testing.assert_array_equal(statistics.joint_sign_flip_test(-1000 * rows), joint)
    assert statistics.joint_sign_flip_test(np.zeros((2, 5))).tolist() == [1, 1]


def test_how_many_pairs_a_family_of_any_size_needs():
    assert statistics.least_pairs() == 6 and statistics.least_pairs(1 / 32) == 6 and statistics.least_pairs(0.01) == 8
    for m in (1, 2, 10, 600):
        for n, words in ((6, {"better"}), (5, {"too few seeds"})):
            found = statistics.compare(np.linspace(0.99, 1.01, m * n).reshape(m, n), resamples=199)
            assert {one.verdict for one in found} == words
    with pytest.raises(ValueError, match="alpha"):
        statistics.least_pairs(-0.05)


def test_comparisons_with_mixed_signs_raise_the_smallest_p():
    unanimous = np.array([1.0, 1, 1, 1, 1, 2])
    mixed = np.array([1.0, 1, 1, 1, 1, -1.01])  # a flip gives it a larger t than the first row's
    assert statistics.joint_sign_flip_test([unanimous])[0] == 2 / 64
    assert statistics.joint_sign_flip_test([unanimous, mixed])[0] == 4 / 64


def test_verdicts():
    noise = np.random.default_rng(2).normal(0, 0.01, 10)
    rows = np.stack([noise - noise.mean() + shift for shift in (0.0, 0.05, -0.05)])
    assert [one.verdict for one in statistics.compare(rows)] == ["not significant", "better", "worse"]
    assert [one.verdict for one in statistics.compare(rows, higher_is_better=False)] == [
        "not significant", "worse", "better",
    ]  # fmt: skip
    chance, better, worse = statistics.compare(rows)
    assert (better.p, better.leads, better.seeds) == (2 / 1024, 10, 10) and worse.leads == 0
    assert [one.p_family for one in (chance, better, worse)] == statistics.joint_sign_flip_test(rows).tolist()
    assert (better.low, better.high) == statistics.mean_interval(rows[1])
    assert chance.leads == (noise > noise.mean()).sum()
    assert statistics.compare(rows, higher_is_better=False)[2].leads == 10
    assert better.difference == pytest.approx(0.05) and chance.p == 1


def test_a_test_that_rejects_is_not_enough_where_the_interval_does_not():
    """And the other way round: an interval without zero is not enough where the test does not reject."""
    rng = np.random.default_rng(4)
    disagreements = set()
    for differences in rng.normal(0.75, 1.0, (300, 10)):
        (found,) = statistics.compare(differences[None], resamples=999)
        excludes = found.low > 0 or found.high < 0
        if excludes != (found.p_family <= 0.05):
            disagreements.add(excludes)
            assert found.verdict == "not significant"
        else:
            assert (found.verdict == "better") == excludes
    assert disagreements == {True, False}


def test_false_alarms_of_correlated_families_are_rare():
    """28 comparisons with two baselines and no effect anywhere: 600 families, a standard error of 0.9 %."""
    assert 0.02 < _false_alarms(600, "normal", 10) < 0.05 + 3 * 0.009


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [10, 12])
@pytest.mark.parametrize("law", LAWS)
def test_false_alarms_of_many_families_are_rare(law, seeds):
    """2,000 families: a standard error of 0.5 %."""
    assert _false_alarms(2000, law, seeds) < 0.05 + 3 * 0.005


def _false_alarms(families, law, seeds):
    draw, _ = LAWS[law]
    rng, alarms = np.random.default_rng(21), 0
    for _ in range(families):
        scores = draw(rng, (30, seeds))
        differences = np.concatenate([scores[1:24] - scores[0], scores[25:] - scores[24]])
        alarms += statistics.joint_sign_flip_test(differences).min() <= 0.05
    return alarms / families


def test_the_joint_test_finds_what_holms_correction_cannot():
    """Ten seeds and 28 comparisons: 28 times the smallest p, 2 / 2^10, exceeds 0.05."""
    rng, found = np.random.default_rng(5), []
    for _ in range(50):
        scores = rng.normal(size=(29, 10))
        differences = scores[1:] - scores[0]
        differences[0] += 1.5 * np.sqrt(2)
        found.append(statistics.joint_sign_flip_test(differences)[0] <= 0.05)
    assert 28 * 2 / 2**10 > 0.05 and np.mean(found) > 0.4


def test_leaders_head_to_head():
    noise = np.random.default_rng(4).normal(0, 0.01, (6, 10))
    values = {name: 0.5 + level + one for name, level, one in zip("abcdef", (0.0, 0.3, 0.1, 0.2, 0.3, 0.4), noise)}
    found = statistics.head_to_head(values)
    best = sorted("bde", key=lambda name: -values[name].mean())
    first, second, third = [one for one in best if one != "d"] + ["d"]
    assert list(found) == [("f", first), ("f", second), ("f", third), (first, second), (first, third), (second, third)]
    expected = statistics.compare([values[a] - values[b] for a, b in found])
    assert list(found.values()) == expected and found["f", "d"].verdict == "better"
    lower = statistics.head_to_head({name: values[name] for name in "ab"}, higher_is_better=False)
    assert list(lower) == [("a", "b")] and lower["a", "b"].verdict == "better" and lower["a", "b"].difference < 0
    assert statistics.head_to_head({"a": values["a"]}) == statistics.head_to_head({}) == {}


def test_differences_that_are_all_zero_and_a_single_pair():
    (found,) = statistics.compare(np.zeros((1, 10)))
    assert found == (0.0, 0.0, 0.0, 1.0, 1.0, 0, 10, "not significant")
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


@pytest.mark.parametrize("function", [statistics.compare, statistics.joint_sign_flip_test])
def test_a_family_has_one_row_per_comparison(function):
    with pytest.raises(ValueError, match=r"the shape \(7,\) is not \[comparisons, seeds\]; give \[differences\]"):
        function(np.arange(1.0, 8.0))


@pytest.mark.parametrize("values", [[0.1, np.nan], [np.inf, 1.0], [], 0.3])
def test_what_is_not_finite_or_not_there_is_refused(values):
    rows = np.asarray(values)[None]
    for function in (statistics.mean_interval, statistics.sign_flip_test):
        with pytest.raises(ValueError, match=r"not finite|no values"):
            function(values)
    if rows.ndim == 2:
        with pytest.raises(ValueError, match=r"not finite|no values"):
            statistics.compare(rows)
    with pytest.raises(ValueError, match="level"):
        statistics.mean_interval(TEN, 95)


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
