"""Measures of a run against their definitions."""

import jax.numpy as jnp
import numpy as np

from fedjax_sel import metrics


def test_gemd_against_the_papers_sum():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, (7, 4))
    cohort = counts[[1, 3, 4]]
    share = sum(n.sum() * (n / n.sum()) for n in cohort) / cohort.sum()  # Eq. 15 as printed
    expected = np.abs(share - counts.sum(axis=0) / counts.sum()).sum()
    np.testing.assert_allclose(metrics.group_earth_movers_distance(cohort, counts.sum(axis=0)), expected, rtol=1e-5)
    assert metrics.group_earth_movers_distance(counts, counts.sum(axis=0)) < 1e-6
    one_label = np.array([[5, 0, 0, 0]])
    np.testing.assert_allclose(metrics.group_earth_movers_distance(one_label, np.ones(4)), 1.5)


def test_rounds_to_target_count_from_one_and_are_nan_where_never_reached():
    accuracy = [[0.1, np.nan, 0.6, 0.5], [0.1, 0.2, 0.3, np.nan]]
    np.testing.assert_array_equal(metrics.rounds_to_target(accuracy, 0.6), [3, np.nan])
    np.testing.assert_array_equal(metrics.rounds_to_target(accuracy, 0.1), [1, 1])


def test_last_measured():
    values = [[0.1, 0.2, np.nan], [np.nan, np.nan, np.nan]]
    np.testing.assert_array_equal(metrics.last_measured(values), [0.2, np.nan])


def test_worst_decile():
    values = jnp.arange(30.0)[::-1]
    assert metrics.worst_decile(values) == 1.0
    assert metrics.worst_decile(jnp.array([3.0, 2.0])) == 2.0
