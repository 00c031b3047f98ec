"""Ward's clustering against SciPy's, and the cut by mass against a walk over SciPy's tree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from fedjax_sel.numerics import clustering as ward

SHAPES = [2, 3, 8, 25]
INSTANCES = 60  # of each shape


def euclidean(rng, n):
    points = rng.normal(size=(n, 3)) * 10 ** rng.uniform(-4, 4)
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def angles(rng, n):
    points = rng.normal(size=(n, 5))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    matrix = np.arccos(np.clip(points @ points.T, -1, 1))
    return (matrix + matrix.T) * (1 - np.eye(n)) / 2


def anything(rng, n):
    """Dissimilarities that obey no triangle inequality."""
    return squareform(rng.uniform(size=n * (n - 1) // 2))


def instance(seed, n):
    rng = np.random.default_rng([n, seed])
    distances = (euclidean, angles, anything)[seed % 3](rng, n)
    return np.asarray(distances, np.float32), rng.integers(1, 40, n) * rng.choice([1, 1, 1, 8], n)


def twin_tree(distances):
    return hierarchy.linkage(squareform(np.asarray(distances, np.float64), checks=False), "ward")


def twin_cut(tree, masses, capacity):
    """The maximal subtrees with mass <= capacity, by a walk down from the root."""
    n = len(masses)
    members = {i: [i] for i in range(n)}
    for number, (a, b, *_) in enumerate(tree):
        members[n + number] = members[int(a)] + members[int(b)]
    found, to_visit = set(), [2 * n - 2]
    while to_visit:
        node = to_visit.pop()
        if node < n or sum(int(masses[i]) for i in members[node]) <= capacity:
            found.add(frozenset(members[node]))
        else:
            to_visit += [int(tree[node - n, 0]), int(tree[node - n, 1])]
    return found


def partition(labels):
    labels = np.asarray(labels)
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in labels}


def clusters_of(kept, absorbed):
    """Every cluster that ever forms."""
    slots = {i: frozenset([i]) for i in range(len(kept) + 1)}
    for i, j in zip(kept.tolist(), absorbed.tolist()):
        slots[i] |= slots.pop(j)
        yield slots[i]


def clusters_of_scipy(tree):
    nodes = [frozenset([i]) for i in range(len(tree) + 1)]
    for a, b, *_ in tree:
        nodes.append(nodes[int(a)] | nodes[int(b)])
    return nodes[len(tree) + 1 :]


@pytest.mark.parametrize("n", SHAPES)
def test_trees_and_heights_equal_scipys(n):
    distances = np.stack([instance(seed, n)[0] for seed in range(INSTANCES)])
    trees = jax.device_get(jax.jit(jax.vmap(ward.linkage))(distances))
    for matrix, kept, absorbed, heights in zip(distances, *trees):
        twin = twin_tree(matrix)
        np.testing.assert_allclose(heights, twin[:, 2], rtol=2e-5)
        assert (kept < absorbed).all() and len(set(absorbed.tolist())) == n - 1
        assert set(clusters_of(kept, absorbed)) == set(clusters_of_scipy(twin))


@pytest.mark.parametrize("n", SHAPES)
def test_cuts_equal_a_walk_over_scipys_tree(n):
    instances = [instance(seed, n) for seed in range(INSTANCES)]
    distances, masses = (np.stack(part) for part in zip(*instances))
    capacities = np.array([m.sum() // (1 + seed % 5) for seed, m in enumerate(masses)])

    def clusters(distances, masses, capacity):
        return ward.cut_by_mass(ward.linkage(distances), masses, capacity)

    labels = jax.device_get(jax.jit(jax.vmap(clusters))(distances, np.int32(masses), np.int32(capacities)))
    sizes = set()
    for matrix, mass, capacity, label in zip(distances, masses, capacities, labels):
        assert partition(label) == twin_cut(twin_tree(matrix), mass, capacity)
        assert all(label[i] == np.flatnonzero(label == label[i]).min() for i in range(n))
        sizes |= {len(cluster) for cluster in partition(label)}
    assert max(sizes) > 1 and min(sizes) == 1  # both ends are reached


@pytest.mark.parametrize("n", SHAPES)
def test_cuts_into_clusters_equal_scipys(n):
    distances = np.stack([instance(seed, n)[0] for seed in range(INSTANCES)])
    trees = jax.jit(jax.vmap(ward.linkage))(distances)
    cut = jax.jit(jax.vmap(ward.cut_into, (0, None)))
    for count in sorted({1, 2, n // 2, n - 1, n}):
        for matrix, label in zip(distances, np.asarray(cut(trees, count))):
            assert partition(label) == partition(hierarchy.cut_tree(twin_tree(matrix), count).ravel())
            assert len(partition(label)) == count and all(
                label[i] == np.flatnonzero(label == label[i])[0] for i in label
            )


def test_a_mass_equal_to_the_capacity_still_fits():
    distances = np.float32(euclidean(np.random.default_rng(0), 2))
    tree = ward.linkage(jnp.asarray(distances))
    assert len(partition(ward.cut_by_mass(tree, jnp.int32([3, 4]), jnp.int32(7)))) == 1
    assert len(partition(ward.cut_by_mass(tree, jnp.int32([3, 4]), jnp.int32(6)))) == 2


def test_an_item_above_capacity_stays_alone():
    distances, _ = instance(1, 8)
    labels = ward.cut_by_mass(ward.linkage(jnp.asarray(distances)), jnp.int32([1] * 7 + [50]), jnp.int32(20))
    assert frozenset([7]) in partition(labels)


def test_the_order_of_the_items_does_not_matter_without_ties():
    distances, masses = instance(2, 25)
    order = np.random.default_rng(0).permutation(25)

    @jax.jit
    def clusters(distances, masses):
        return ward.cut_by_mass(ward.linkage(distances), masses, masses.sum() // 4)

    here = partition(clusters(distances, jnp.int32(masses)))
    there = partition(clusters(distances[order][:, order], jnp.int32(masses[order])))
    assert {frozenset(order[list(cluster)].tolist()) for cluster in there} == here


@pytest.mark.parametrize("value", [0.0, 1.0, 1e30])
def test_equal_distances_give_some_tree(value):
    tree = ward.linkage(jnp.full((9, 9), value, jnp.float32))
    assert np.isfinite(tree.heights).all() and set(tree.absorbed.tolist()) == set(range(1, 9))
    np.testing.assert_allclose(tree.heights[0], value, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_beyond_float32_do_no_harm(scale):
    distances, _ = instance(2, 8)
    tree, scaled = ward.linkage(jnp.asarray(distances)), ward.linkage(jnp.asarray(distances * np.float32(scale)))
    assert list(clusters_of(scaled.kept, scaled.absorbed)) == list(clusters_of(tree.kept, tree.absorbed))
    np.testing.assert_allclose(scaled.heights, tree.heights * scale, rtol=1e-5)


def test_one_item():
    tree = ward.linkage(jnp.zeros((1, 1)))
    assert tree.kept.shape == (0,) and ward.cut_by_mass(tree, jnp.int32([5]), jnp.int32(5)).tolist() == [0]


@pytest.mark.parametrize("scale", [1e-36, 1.0, 3e36])
def test_distances_of_rows(scale):
    rows = np.float32(np.random.default_rng(0).normal(size=(9, 5)))[[0, 1, 2, 0, 3, 1, 4, 5, 0]]
    found = np.asarray(jax.jit(lambda rows: ward.distances_of_rows(3.0 * rows))(rows * np.float32(scale)))
    expected = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.testing.assert_allclose(found / found.max(), expected / expected.max(), rtol=1e-5)
    assert ((found == 0) == (expected == 0)).all()
