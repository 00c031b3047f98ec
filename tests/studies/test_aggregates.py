"""Statistics over settings and ratios."""

import numpy as np
import pytest

from studies import aggregates


def test_interquartile_means():
    assert aggregates.interquartile_mean([1, 2, 3, 100]) == 2.5
    assert aggregates.interquartile_mean(np.arange(10.0) ** 2) == np.mean(np.arange(2, 8) ** 2)
    table = np.array([[1, 2, 3, 4], [5, 6, 7, 80]])  # of both settings together: 3, 4, 5, 6
    assert aggregates.interquartile_mean(table) == 4.5


def test_an_interquartile_mean_has_an_interval_over_whole_seeds():
    rng = np.random.default_rng(3)
    seeds = rng.normal(size=10)
    low, high = aggregates.interquartile_mean_interval(np.stack([seeds, seeds + 1e-9]))
    alone = aggregates.interquartile_mean_interval(seeds)
    # a copy of a setting tells nothing new: ten seeds stay ten (of twenty, three quarters of the width would be left)
    assert high - low == pytest.approx(alone.high - alone.low, rel=0.15)
    assert low < aggregates.interquartile_mean(seeds) < high
    independent = aggregates.interquartile_mean_interval(rng.normal(size=(4, 10)))
    assert independent.high - independent.low < 0.75 * (high - low)
    assert np.isnan(aggregates.interquartile_mean_interval([[1.0], [2.0]])).all()
    assert aggregates.interquartile_mean_interval(np.ones((2, 10))) == (1, 1)
    tied = aggregates.interquartile_mean_interval([0, 1, 1, 1, 1, 1, 1, 1, 1, 2.0])
    assert tied.low <= 1 <= tied.high


@pytest.mark.slow
def test_interquartile_intervals_cover():
    """300 tables of two settings and ten seeds, whose interquartile mean is zero by symmetry."""
    covered = []
    for place, scores in enumerate(np.random.default_rng(8).normal(size=(300, 2, 10))):
        low, high = aggregates.interquartile_mean_interval(scores, resamples=499, seed=place)
        covered.append(low <= 0 <= high)
    assert 0.92 <= np.mean(covered) <= 0.985, np.mean(covered)


def test_ratios_have_an_interval_over_seeds():
    rng = np.random.default_rng(0)
    below = rng.uniform(1, 3, 10)
    low, high = aggregates.ratio_interval(2 * below + rng.normal(0, 0.1, 10), below)
    assert 1.8 < low < 2 < high < 2.2
    wide = aggregates.ratio_interval(2 * rng.permutation(below), below)  # what the pairs do not share
    assert wide.low < low and high < wide.high
    assert aggregates.ratio_interval([2.0, 4.0], [1.0, 2.0]) == (2.0, 2.0)
    assert aggregates.ratio_interval([2.0, 0.0, 4.0], [1.0, 0.0, 2.0]) == (2.0, 2.0)  # a value may be zero
    assert np.isnan(aggregates.ratio_interval([2.0], [1.0])).all()


def test_performance_profiles():
    scores = np.array([[0.1, 0.5], [0.5, 0.9]])
    np.testing.assert_array_equal(
        aggregates.performance_profile(scores, [0.0, 0.1, 0.4, 0.5, 0.89, 1]), [1, 0.75, 0.75, 0.25, 0.25, 0]
    )
