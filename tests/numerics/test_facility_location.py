"""Greedy facility location against plain loops, against brute force, and its ties."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.numerics import facility_location


def twin(distances, k, available=None):
    """Plain loops; the lowest index among equals, which exact sums tell."""
    n = len(distances)
    chosen, nearest = [], [np.inf] * n
    for _ in range(k):
        left = [i for i in range(n) if i not in chosen]
        left = [i for i in left if available is None or available[i]] or left
        costs = {i: math.fsum(min(nearest[j], distances[j][i]) for j in range(n)) for i in left}
        best = min(left, key=lambda i: (costs[i], i))
        chosen.append(best)
        nearest = [min(nearest[j], distances[j][best]) for j in range(n)]
    return chosen


def total(distances, ids):
    return sum(min(distances[j][i] for i in ids) for j in range(len(distances)))


def random_distances(seed, n, dimension=4):
    points = np.random.default_rng(seed).normal(size=(n, dimension))
    return np.float32(np.linalg.norm(points[:, None] - points[None], axis=2))


@pytest.mark.parametrize("n,k", [(8, 3), (9, 1), (5, 5), (12, 6)])
def test_two_hundred_instances_equal_the_twins(n, k):
    many = np.stack([random_distances(seed, n) for seed in range(200)])
    found = jax.jit(jax.vmap(lambda d: facility_location.select_greedily(d, k)))(many)
    assert found.dtype == jnp.int32
    for distances, ids in zip(many, found.tolist()):
        assert ids == twin(distances.astype(np.float64), k)


def test_asymmetric_distances_and_availability_equal_the_twins():
    rng = np.random.default_rng(0)
    many = rng.uniform(size=(200, 8, 8)).astype(np.float32)
    available = rng.uniform(size=(200, 8)) < 0.5
    select = jax.jit(jax.vmap(lambda d, there: facility_location.select_greedily(d, 4, None, there)))
    assert (available.sum(axis=1) < 4).any() and (available.sum(axis=1) > 4).any()
    for distances, there, ids in zip(many, available, select(many, available).tolist()):
        assert ids == twin(distances.astype(np.float64), 4, there)


def test_a_key_changes_nothing_where_there_are_no_ties():
    many = np.random.default_rng(0).uniform(size=(50, 9, 9)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 50)
    with_key = jax.jit(jax.vmap(lambda d, key: facility_location.select_greedily(d, 4, key)))(many, keys)
    without = jax.jit(jax.vmap(lambda d: facility_location.select_greedily(d, 4)))(many)
    np.testing.assert_array_equal(with_key, without)


def test_greedy_is_within_1_minus_1_over_e_of_brute_force():
    n, k = 8, 3
    many = np.stack([random_distances(seed, n, 2) for seed in range(200)])
    found = jax.jit(jax.vmap(lambda d: facility_location.select_greedily(d, k)))(many)
    not_the_best = 0
    for distances, ids in zip(many.astype(np.float64), found.tolist()):
        ceiling = n * distances.max()
        best = min(total(distances, cohort) for cohort in itertools.combinations(range(n), k))
        assert ceiling - total(distances, ids) >= (1 - 1 / np.e) * (ceiling - best)
        not_the_best += total(distances, ids) > best + 1e-9
    assert 0 < not_the_best < 150  # the bound is not tested on trivial instances alone


def test_a_duplicate_never_helps():
    points = np.random.default_rng(0).normal(size=(100, 7, 3))
    doubled = np.concatenate([points, points[:, :3]], axis=1)  # 7, 8, 9 are 0, 1, 2 again
    distances = jnp.float32(np.linalg.norm(doubled[:, :, None] - doubled[:, None], axis=3))
    keys = jax.random.split(jax.random.key(0), 100)
    select = jax.jit(jax.vmap(lambda d, key: facility_location.select_greedily(d, 7, key)))
    for ids in select(distances, keys).tolist():
        assert len({i % 7 for i in ids}) == 7


@pytest.mark.slow
def test_two_items_that_stand_for_each_other_are_a_tie():
    # Far from the cluster that is served first, each of a pair would leave the pair's own distance.
    keys = jax.random.split(jax.random.key(4), 4000)
    select = jax.jit(jax.vmap(lambda d, key: facility_location.select_greedily(d, 2, key)[1], in_axes=(None, 0)))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        points = np.concatenate([rng.normal(size=(40, 3)), 60 + rng.normal(size=(2, 3))])
        order = rng.permutation(42)
        distances = np.float32(np.linalg.norm(points[:, None] - points[None], axis=2))[order][:, order]
        found, counts = np.unique(order[np.asarray(select(distances, keys))], return_counts=True)
        assert found.tolist() == [40, 41] and stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_scale_of_distances_does_not_matter(scale):
    distances = random_distances(8, 9)
    distances[4] = distances[:, 4] = np.where(np.arange(9) == 4, 0, 1e6)  # an outlier hides nobody else for long
    expected = twin(distances.astype(np.float64), 5)
    assert facility_location.select_greedily(np.float32(distances * scale), 5).tolist() == expected


def test_equal_items_are_taken_in_index_order_without_a_key_and_uniformly_with_one():
    nothing = jnp.zeros((6, 6))
    assert facility_location.select_greedily(nothing, 3).tolist() == [0, 1, 2]
    keys = jax.random.split(jax.random.key(1), 20_000)
    ids = np.asarray(jax.jit(jax.vmap(lambda key: facility_location.select_greedily(nothing, 3, key)))(keys))
    cohorts, counts = np.unique(np.sort(ids, axis=1), axis=0, return_counts=True)
    assert len(cohorts) == 20 and stats.chisquare(counts).pvalue > 1e-4
    orders, counts = np.unique(ids, axis=0, return_counts=True)
    assert len(orders) == 120 and stats.chisquare(counts).pvalue > 1e-4


def test_stochastic_steps_pick_the_best_of_a_uniform_subset():
    # One step over subsets of m of n: the r-th best is picked if it is in and the r - 1 better ones are not.
    n, m = 7, 3
    distances = random_distances(3, n)
    ranking = np.argsort(distances.sum(axis=0))
    keys = jax.random.split(jax.random.key(2), 20_000)
    pick = jax.jit(jax.vmap(lambda key: facility_location.select_greedily(distances, 2, key, None, m)))
    ids = np.asarray(pick(keys))
    subsets = list(itertools.combinations(range(n), m))
    law = np.zeros((n, n))
    for first_subset in subsets:  # ranks, the best is 0
        first = ranking[min(first_subset)]
        rest = [i for i in range(n) if i != first]
        costs = {i: math.fsum(np.minimum(distances[:, first], distances[:, i]).tolist()) for i in rest}
        for second_subset in itertools.combinations(rest, m):
            tied = [i for i in second_subset if costs[i] == min(costs[j] for j in second_subset)]
            law[first, tied] += 1 / len(tied)
    law /= law.sum()
    counts = np.zeros((n, n))
    np.add.at(counts, (ids[:, 0], ids[:, 1]), 1)
    possible = law > 0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], law[possible] * len(ids)).pvalue > 1e-4


def test_a_subset_of_all_is_exact_and_few_left_are_all_looked_at():
    distances = np.random.default_rng(5).uniform(size=(8, 8)).astype(np.float32)
    available = jnp.arange(8) < 5
    exact = facility_location.select_greedily(distances, 4)
    for subset_size in (8, 20):
        np.testing.assert_array_equal(
            facility_location.select_greedily(distances, 4, jax.random.key(0), None, subset_size), exact
        )
    few = facility_location.select_greedily(distances, 4, jax.random.key(0), available, 5)
    np.testing.assert_array_equal(few, facility_location.select_greedily(distances, 4, None, available))
    one_each = facility_location.select_greedily(distances, 8, jax.random.key(0), available, 1)
    assert sorted(one_each.tolist()) == list(range(8)) and set(one_each[:5].tolist()) == set(range(5))


def test_shares_equal_counts_of_the_represented_and_split_ties():
    for seed in range(30):
        distances = random_distances(seed, 9)
        ids = np.random.default_rng(seed).permutation(9)[:3]
        expected = np.zeros(3)
        for j in range(9):
            expected[np.argmin([distances[j, i] for i in ids])] += 1 / 9
        np.testing.assert_allclose(facility_location.shares(distances, ids), expected, rtol=1e-6)
    np.testing.assert_allclose(facility_location.shares(jnp.zeros((4, 4)), jnp.array([2, 0])), [0.5, 0.5])
    masked = facility_location.shares(distances, ids, jnp.array([False, True, True]))
    assert masked[0] == 0
    np.testing.assert_allclose(masked[1:], facility_location.shares(distances, ids[1:]), rtol=1e-6)
    nobody = facility_location.shares(distances, ids, jnp.zeros(3, bool))
    np.testing.assert_array_equal(nobody, [0, 0, 0])


@pytest.mark.parametrize("length", [1, 300, 512, 1500])
def test_distances_are_accurate_where_vectors_nearly_agree_and_exact_for_copies(length):
    rng = np.random.default_rng(length)
    vectors = np.float32(rng.normal(size=length) + 1e-3 * rng.normal(size=(6, length)))
    vectors[3] = vectors[1]
    exact = np.linalg.norm(vectors[:, None].astype(np.float64) - vectors[None], axis=2)
    found = np.asarray(facility_location.euclidean_distances(vectors, vectors))
    np.testing.assert_allclose(found, exact, rtol=3e-6)
    assert found[1, 3] == 0 and (np.diag(found) == 0).all()
    np.testing.assert_array_equal(found[:, 1], found[:, 3])
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(facility_location.euclidean_distances(vectors[:2], vectors), exact[:2], rtol=3e-6)
