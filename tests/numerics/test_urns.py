"""Filling urns against plain loops in whole numbers and exact fractions; drawing from them against their law."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.numerics import clustering

SHAPES = [(4, 1), (6, 2), (9, 4), (12, 5), (5, 5), (20, 7)]
INSTANCES = 60  # of each shape


def twin_pour(masses, order, capacities, urns_):
    """Clients in order, urns in order, each filled to the brim before the next."""
    k = 0
    for client in order:
        left = masses[client]
        while left > 0:
            space = capacities[k] - sum(urns_[k])
            poured = min(space, left)
            urns_[k][client] += poured
            left -= poured
            if sum(urns_[k]) == capacities[k]:
                k += 1
    return urns_


def twin_by_size(sizes, k):
    total = sum(sizes)
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    return twin_pour([k * n for n in sizes], order, [total] * k, [[0] * len(sizes) for _ in range(k)])


def twin_clusters(sizes, clusters, k):
    total, n = sum(sizes), len(sizes)
    rest, full = [k * size for size in sizes], []
    for client in range(n):
        while rest[client] >= total:
            full.append([total if i == client else 0 for i in range(n)])
            rest[client] -= total
    left = {label: sum(rest[i] for i in range(n) if clusters[i] == label) for label in range(n)}
    ranked = sorted(range(n), key=lambda label: left[label])  # ascending; stable, as ties go to the lowest label
    num_free = k - len(full)
    seeds = ranked[n - num_free :]
    free = [[rest[i] if clusters[i] == label else 0 for i in range(n)] for label in seeds]
    order = [i for label in ranked if label not in seeds for i in range(n) if clusters[i] == label]
    return full + twin_pour(rest, order, [total] * num_free, free)


def instance(seed, n, k):
    """Sizes of several kinds, and clusters with K sum n_i <= n or of one client."""
    rng = np.random.default_rng([n, k, seed])
    sizes = [
        lambda: rng.integers(1, 50, n),
        lambda: np.full(n, 7),
        lambda: rng.integers(1, 5, n),  # ties
        lambda: np.r_[rng.integers(1, 10, n - 2), rng.integers(30, 400, 2)],  # p_i > 1/K
        lambda: np.r_[rng.integers(1, 10, n - 1), 10_000],  # one client has nearly everything
    ][seed % 5]()
    sizes = rng.permutation(sizes)
    clusters, members = np.full(n, -1), {}
    for client in rng.permutation(n).tolist():
        fits = [label for label in members if k * (members[label] + sizes[client]) <= sizes.sum()]
        label = int(rng.choice(fits)) if fits and rng.random() < 0.8 else client
        members[label] = members.get(label, 0) + sizes[client]
        clusters[client] = label
    return sizes.astype(np.int32), clusters.astype(np.int32)


def instances(n, k):
    return tuple(np.stack(part) for part in zip(*(instance(seed, n, k) for seed in range(INSTANCES))))


def assert_unbiased(masses, sizes, k):
    """sum_i r_ki = 1 and sum_k r_ki = K p_i, as fractions."""
    total = int(sizes.sum())
    law = [[Fraction(int(mass), total) for mass in urn] for urn in masses]
    assert all(share >= 0 for urn in law for share in urn)
    assert [sum(urn) for urn in law] == [1] * k
    assert [sum(urn[i] for urn in law) for i in range(len(sizes))] == [Fraction(k * int(s), total) for s in sizes]


@pytest.mark.parametrize("n,k", SHAPES)
def test_pouring_by_size_equals_the_twins(n, k):
    sizes, _ = instances(n, k)
    poured = jax.device_get(jax.jit(jax.vmap(lambda s: clustering.pour_by_size(s, k)))(sizes))
    for row, masses in zip(sizes, poured):
        assert masses.tolist() == twin_by_size(row.tolist(), k)
        assert_unbiased(masses, row, k)


@pytest.mark.parametrize("n,k", SHAPES)
def test_pouring_clusters_equals_the_twins(n, k):
    sizes, clusters = instances(n, k)
    poured = jax.device_get(jax.jit(jax.vmap(lambda s, c: clustering.pour_clusters(s, c, k)))(sizes, clusters))
    for row, labels, masses in zip(sizes, clusters, poured):
        assert masses.tolist() == twin_clusters(row.tolist(), labels.tolist(), k)
        assert_unbiased(masses, row, k)


@pytest.mark.slow
def test_a_large_client_has_whole_urns_to_itself():
    sizes = np.int32([1, 55, 30, 2, 12])  # K p = 0.05, 2.75, 1.5, 0.1, 0.6
    masses = np.asarray(clustering.pour_clusters(sizes, np.arange(5, dtype=np.int32), 5))
    assert (masses == 100).sum(axis=0).tolist() == [0, 2, 1, 0, 0]
    assert_unbiased(masses, sizes, 5)


def test_the_largest_clusters_have_an_urn_each():
    sizes = np.int32([6, 6, 5, 5, 4, 4])
    clusters = np.int32([0, 1, 1, 0, 4, 4])  # 11, 11 and 8 of 30; two urns of 15 in units of n / K
    masses = np.asarray(clustering.pour_clusters(sizes, clusters, 2))
    together = [{i for i in range(6) if urn[i] == 2 * sizes[i]} for urn in masses]
    assert {0, 3} <= together[0] and {1, 2} <= together[1]
    assert masses[0, 4] == 8 and masses[1, 5] == 8


def test_tickets_follow_the_masses():
    masses = jnp.int32([[0, 3, 0, 7, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 9], [2**29, 0, 2**28, 0, 2**28]])
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: clustering.draw(key, masses)))(keys))
    assert drawn.dtype == np.int32
    for column, urn in zip(drawn.T, np.asarray(masses)):
        counts = np.bincount(column, minlength=5)
        assert counts[urn == 0].sum() == 0
        if (urn > 0).sum() > 1:
            expected = urn[urn > 0] / urn.sum() * len(keys)
            assert stats.chisquare(counts[urn > 0], expected).pvalue > 1e-4
    for a, b in ((0, 1), (0, 3), (1, 3)):  # draws are independent
        table = np.zeros((5, 5))
        np.add.at(table, (drawn[:, a], drawn[:, b]), 1)
        possible = np.ix_(np.asarray(masses[a]) > 0, np.asarray(masses[b]) > 0)
        assert stats.chi2_contingency(table[possible]).pvalue > 1e-4


def test_an_empty_urn_gives_somebody_in_range():
    assert clustering.draw(jax.random.key(0), jnp.zeros((2, 4), jnp.int32)).tolist() == [3, 3]


def test_realistic_sizes_are_kept_exactly():
    sizes = np.random.default_rng(0).integers(1, 20_000, 100).astype(np.int32)  # a million examples
    assert clustering.fitting(jnp.asarray(sizes), 100).tolist() == sizes.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("largest", [10**6, 10**8, 2 * 10**9])
def test_sizes_that_would_overflow_are_scaled(largest):
    k, rng = 20, np.random.default_rng(0)
    sizes = np.r_[1, rng.integers(largest // 2, largest, 99)].astype(np.int32)
    scaled = np.asarray(jax.jit(lambda s: clustering.fitting(s, k))(sizes))
    assert k * scaled.astype(np.int64).sum() < 2**31 and scaled.min() == 1
    np.testing.assert_allclose(scaled[1:] / scaled.sum(), sizes[1:] / sizes.astype(np.int64).sum(), rtol=1e-5)
    assert_unbiased(np.asarray(clustering.pour_by_size(scaled, k)), scaled, k)
    assert_unbiased(np.asarray(clustering.pour_clusters(scaled, np.arange(100, dtype=np.int32), k)), scaled, k)
