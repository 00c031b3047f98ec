"""Measures of a run against their definitions."""

import jax.numpy as jnp
import numpy as np
import pytest

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


def test_an_empty_cohort_has_no_gemd_and_means_leave_it_out():
    counts = jnp.asarray([[3, 0], [0, 3]])
    for cohort in (jnp.zeros((2, 2), int), jnp.zeros((0, 2), int)):
        assert np.isnan(metrics.group_earth_movers_distance(cohort, counts.sum(axis=0)))
    np.testing.assert_allclose(metrics.group_earth_movers_distance(counts * jnp.array([[1], [0]]), jnp.ones(2)), 1.0)
    values = [[0.5, np.nan, 1.5], [np.nan, np.nan, np.nan]]
    np.testing.assert_array_equal(metrics.mean_of_measured(values, axis=1), [1.0, np.nan])
    np.testing.assert_array_equal(metrics.mean_of_measured(values, axis=0), [0.5, np.nan, 1.5])


SIZES = (100, 360, 10_000, 26_032)


def whole_percents(size):
    """Whole percents that a test set of this size can show, and the correct answers that make them."""
    percents = np.array([percent for percent in range(1, 100) if percent * size % 100 == 0])
    return percents, percents * size // 100


@pytest.mark.parametrize("size", SIZES)
def test_a_target_is_reached_where_it_is_hit_exactly_and_not_by_one_answer_fewer(size):
    percents, correct = whole_percents(size)
    assert len(percents) == {100: 99, 360: 19, 10_000: 99, 26_032: 3}[size]
    one = np.float32(1)
    for shares in (
        np.float32(correct) / np.float32(size),  # rounded once
        np.float32(correct) * (one / np.float32(size)),  # as a compiler may divide by a constant
        correct / size,
    ):
        fewer = shares - 1 / size
        for percent, share, below in zip(percents, shares, fewer):
            for target in (percent / 100, float(f"0.{percent:02}")):
                assert metrics.rounds_to_target([[below, np.nan, share, share]], target) == 3, (percent, size)
                assert np.isnan(metrics.rounds_to_target([[below, np.nan]], target))


def test_the_papers_targets_and_their_megabytes_at_equality():
    for target in (0.36, 0.54, 0.62, 0.64, 0.69, 0.9):
        accuracy = np.array([[0.1, target, 0.95]], np.float32)
        rounds = metrics.rounds_to_target(accuracy, target)
        np.testing.assert_array_equal(rounds, [2])
        np.testing.assert_array_equal(metrics.amount_at_round([[1, 2, 4]], rounds), [3])


def test_counts_of_clients_are_compared_as_they_are():
    many = 2**24 + 1  # where float32 no longer counts
    np.testing.assert_array_equal(metrics.rounds_until_all_seen([[many - 1, many], [1, many - 1]], many), [2, np.nan])


def test_last_measured():
    values = [[0.1, 0.2, np.nan], [np.nan, np.nan, np.nan]]
    np.testing.assert_array_equal(metrics.last_measured(values), [0.2, np.nan])


def test_worst_decile():
    values = jnp.arange(30.0)[::-1]
    assert metrics.worst_decile(values) == 1.0
    assert metrics.worst_decile(jnp.array([3.0, 2.0])) == 2.0


def test_fairness_indices_by_hand():
    """The differences of 1, 2, 3, 4 sum to 20 over ordered pairs: 20 / (2 * 4 * 10)."""
    values = [[1, 4, 2, 3], [5, 5, 5, 5], [0, 0, 7, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(metrics.gini_index(values), [0.25, 0, 0.75, 0], atol=1e-7)
    np.testing.assert_allclose(metrics.jain_index(values), [100 / (4 * 30), 1, 0.25, 1], rtol=1e-6)
    assert np.isnan(metrics.gini_index([-1.0, 0.5, 0.6])) and np.isnan(metrics.jain_index([-1.0, 0.5, 0.6]))


@pytest.mark.parametrize("undefined", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_undefined_clients_are_left_out_and_counted(undefined, kind):
    values, defined = (kind(np.float32(v)) for v in ([0.1, undefined, 0.5, 0.9, undefined], [0.1, 0.5, 0.9]))
    for index in (metrics.gini_index, metrics.jain_index, lambda one: metrics.worst_decile(jnp.asarray(one))):
        np.testing.assert_array_equal(index(values), index(defined))
        assert np.isnan(index(kind(np.float32([undefined] * 3))))
    assert metrics.undefined_clients(values) == 2
    many = np.append(np.arange(29.0), np.full(11, undefined))  # two of 29 clients, not four of 40
    assert metrics.worst_decile(jnp.asarray(many, jnp.float32)) == 0.5


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_fairness_indices_of_very_large_and_very_small_values(kind):
    for unit in (1e-25, 1e25, 1e38):
        values = kind(np.float32([unit, 3 * unit]))
        np.testing.assert_allclose([metrics.gini_index(values), metrics.jain_index(values)], [0.25, 0.8], rtol=1e-3)


def test_fairness_indices_against_their_definitions():
    values = np.random.default_rng(0).random((3, 50))
    pairs = np.abs(values[:, :, None] - values[:, None]).sum(axis=(1, 2))
    np.testing.assert_allclose(metrics.gini_index(values), pairs / (2 * 50 * values.sum(axis=1)), rtol=1e-5)
    of_variation = (values.std(axis=1) / values.mean(axis=1)) ** 2
    np.testing.assert_allclose(metrics.jain_index(values), 1 / (1 + of_variation), rtol=1e-5)


def test_participation_gap():
    np.testing.assert_array_equal(metrics.participation_gap([[4, 1, 2], [3, 3, 3]], 4), [0.75, 0.0])


def test_amounts_up_to_a_round():
    spent = [[1, 2, 4], [8, 16, 32]]
    np.testing.assert_array_equal(metrics.amount_at_round(spent, [2, np.nan]), [3, np.nan])
    np.testing.assert_array_equal(metrics.amount_at_round(spent, [1, 3]), [1, 56])


def test_a_budget_pays_for_whole_rounds_of_which_the_last_third_counts():
    values = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, np.nan, np.nan, 0.8]])
    spent = np.cumsum([[1.0, 1.0, 1.0, 1.0], [3.0, 3.0, 3.0, 3.0]], axis=1)
    np.testing.assert_array_equal(metrics.paid_rounds(spent, 3.0), [3, 1])
    np.testing.assert_array_equal(metrics.value_at(values, spent, 3.0), [0.3, 0.5])
    np.testing.assert_array_equal(
        metrics.value_at(values, spent, 9.0), [np.mean([0.3, 0.4]), 0.5]
    )  # evaluated in round 1
    np.testing.assert_array_equal(metrics.value_at(values, spent, 2.0, 0.0), [0.2, 0.0])
    np.testing.assert_array_equal(metrics.value_at(values[:, 1:2], spent[:, :1], 3.0), [0.2, np.nan])


def test_the_mean_of_the_last_rounds_leaves_out_what_was_not_measured():
    values = [[9.0, 1.0, np.nan, 3.0], [9.0, np.nan, np.nan, np.nan]]
    np.testing.assert_array_equal(metrics.mean_of_last_rounds(values, 3), [2, np.nan])
    np.testing.assert_array_equal(metrics.mean_of_last_rounds(values, 10), [13 / 3, 9])


def test_who_trained_how_often_and_who_was_seen():
    cohorts = np.array([[[0, 2], [2, -1], [1, 3]], [[0, 1], [0, 1], [1, 0]]])
    np.testing.assert_array_equal(metrics.selection_counts(cohorts, 4), [[1, 1, 2, 1], [3, 3, 0, 0]])
    seen = metrics.clients_seen(cohorts, 4)
    np.testing.assert_array_equal(seen, [[2, 2, 4], [2, 2, 2]])
    np.testing.assert_array_equal(metrics.rounds_until_all_seen(seen, 4), [3, np.nan])


def test_a_client_that_stands_twice_in_a_cohort_trains_once():
    np.testing.assert_array_equal(metrics.selection_counts(np.array([[[2, 2, 1]]]), 3), [[0, 1, 1]])


def test_clients_seen_against_sets():
    rng = np.random.default_rng(0)
    cohorts = rng.integers(-1, 12, (3, 40, 4))
    seen = metrics.clients_seen(cohorts, 12)
    for seed in range(3):
        known = set()
        for round in range(40):
            known |= set(cohorts[seed, round].tolist()) - {-1}
            assert seen[seed, round] == len(known)
