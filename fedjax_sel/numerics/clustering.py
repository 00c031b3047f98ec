"""Ward's clustering, and the assignment of clusters to urns (Fraboni et al. 2021, Algorithm 2)."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax


# Ward's hierarchical clustering with fixed shapes (Ward 1963; Lance and Williams 1967), and cuts of its tree.
# Every item starts as a cluster. In each of N - 1 steps the two nearest clusters merge. With squared distances D_ij and
# cluster sizes n, the merged cluster's squared distance to another cluster k is
#
# D_k = ((n_i + n_k) D_ik + (n_j + n_k) D_jk - n_k D_ij) / (n_i + n_j + n_k)
#
# The merged cluster keeps the lower of the two slots, so the tree is a list of pairs of slots. Ties go to the lowest
# slots; shuffle the items first if the result must not depend on their order.
#
# Shapes: N items. Cost: N - 1 steps of O(N^2) elementwise work, no sorting.
class Tree(NamedTuple):
    """The merges in ascending order of height."""

    kept: jax.Array  # slot of the merged cluster, int32 [N - 1]
    absorbed: jax.Array  # slot that becomes empty, above `kept`, int32 [N - 1]
    heights: jax.Array  # distance of the two clusters, float [N - 1]


def linkage(distances: jax.Array) -> Tree:
    """Cluster items by their distances, which need not be Euclidean.

    The tree equals SciPy's `linkage(condensed_distances, "ward")`.

    Args:
        distances: symmetric, finite, nonnegative distances, [N, N]; the diagonal is not read.
    """
    num_items = distances.shape[0]
    chex.assert_shape(distances, (num_items, num_items))
    slots = jnp.arange(num_items, dtype=jnp.int32)
    column = slots[:, None]
    scale = _scale(jnp.where(column == slots, 0.0, distances))
    squared = jnp.where(column == slots, jnp.inf, (scale * distances) ** 2)

    def merge(state, _):
        squared, sizes = state
        # Empty slots are at infinite distance. The first row with the minimum is the lower slot.
        i = jnp.argmin(jnp.min(squared, axis=1)).astype(jnp.int32)
        row_i = squared[i]
        j = jnp.argmin(row_i).astype(jnp.int32)
        row_j, height = squared[j], row_i[j]
        size_i, size_j = sizes[i], sizes[j]
        merged = (size_i + sizes) * row_i + (size_j + sizes) * row_j - sizes * height
        merged = merged / (size_i + size_j + sizes)  # infinite at i, at j and at empty slots
        squared = jnp.where(column == i, merged, jnp.where(slots == i, merged[:, None], squared))
        squared = jnp.where((column == j) | (slots == j), jnp.inf, squared)
        sizes = jnp.where(slots == i, size_i + size_j, sizes)
        return (squared, sizes), (i, j, height)

    start = (squared, jnp.ones((num_items,), squared.dtype))
    _, (kept, absorbed, heights) = lax.scan(merge, start, length=num_items - 1)
    return Tree(kept, absorbed, jnp.sqrt(heights) / scale)


def distances_of_rows(matrix: jax.Array) -> jax.Array:
    """Return the Euclidean distances [N, N] between the rows of a finite matrix [N, D], times a common power of two.

    The distance is exactly zero between equal rows.
    """
    rows = _scale(jnp.abs(matrix)) * matrix
    return jnp.sqrt(jnp.sum((rows[:, None] - rows) ** 2, axis=2))


def cut_by_mass(tree: Tree, masses: jax.Array, capacity: jax.Array) -> jax.Array:
    """Cut the tree into the largest clusters whose mass is at most `capacity`; a single item may exceed it.

    Masses grow along the tree, so a cluster above capacity is never part of one below it, and one pass over the merges
    suffices.

    Args:
        tree: output of `linkage`.
        masses: masses of the items, nonnegative integers [N].
        capacity: largest mass of a cluster, scalar of the same dtype.

    Returns:
        The lowest item of each item's cluster, int32 [N].
    """
    slots = jnp.arange(masses.shape[0], dtype=jnp.int32)

    def merge(state, pair):
        labels, masses = state
        kept, absorbed = pair
        mass = masses[kept] + masses[absorbed]
        labels = jnp.where((labels == absorbed) & (mass <= capacity), kept, labels)
        return (labels, jnp.where(slots == kept, mass, masses)), None

    (labels, _), _ = lax.scan(merge, (slots, masses), (tree.kept, tree.absorbed))
    return labels


def cut_into(tree: Tree, num_clusters: int | jax.Array) -> jax.Array:
    """Cut the tree into M clusters, from 1 to N, by omitting the last M - 1 merges.

    The partition equals SciPy's `cut_tree(tree, M)`.

    Returns:
        The lowest item of each item's cluster, int32 [N].
    """
    num_items = tree.kept.shape[0] + 1

    def merge(labels, step):
        place, kept, absorbed = step
        return jnp.where((labels == absorbed) & (place < num_items - num_clusters), kept, labels), None

    steps = (jnp.arange(num_items - 1), tree.kept, tree.absorbed)
    labels, _ = lax.scan(merge, jnp.arange(num_items, dtype=jnp.int32), steps)
    return labels


def _scale(values: jax.Array) -> jax.Array:
    """Return the power of two that scales the largest value to [1/2, 1), so that squares stay in float32.

    Scaling by a power of two is exact, so it preserves ties, also if the compiler fuses it with a subtraction.
    """
    return jnp.ldexp(jnp.ones((), values.dtype), -jnp.frexp(values.max())[1])


# Urns for clustered sampling, with exact integer masses (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021).
#
# One independent draw from each of K urns is unbiased if all urns have the same mass and each client's total mass is K
# times its share. With integer sizes n_i both conditions hold exactly:
#
# sum_i urns[k, i] = n for every urn, n = sum_i n_i        sum_k urns[k, i] = K n_i for every client
#
# Masses and urns are laid out as consecutive intervals; the mass of client i in urn k is the overlap of their
# intervals. Filling is deterministic and ties go to the lowest index, so shuffle the clients first.
#
# Shapes: N clients, K <= N urns. K n must be below 2^31, which `fitting` ensures.

_LARGEST = 2.0**30  # upper bound of K n after scaling; half of int32's range, because rounding can increase K n


def fitting(sizes: jax.Array, num_urns: int) -> jax.Array:
    """Return integer sizes n_i, [N], as int32; in units of a power of two if K n exceeds 2^30 for K urns.

    Positive sizes remain at least 1.
    """
    sizes = sizes.astype(jnp.int32)
    excess = num_urns * sizes.astype(jnp.float32).sum() / _LARGEST
    shift = jnp.maximum(jnp.ceil(jnp.log2(jnp.maximum(excess, 1.0))), 0.0).astype(jnp.int32)
    return jnp.where(sizes > 0, jnp.maximum(sizes >> shift, 1), 0)


def pour_by_size(sizes: jax.Array, num_urns: int) -> jax.Array:
    """Fill K urns one after another with the clients in descending order of size (Algorithm 1).

    Sizes n_i are int32 [N], and masses int32 [K, N].
    """
    order = jnp.argsort(-sizes, stable=True)
    capacities = jnp.full((num_urns,), sizes.sum(), jnp.int32)
    return _overlaps(num_urns * sizes, order, capacities)


def pour_clusters(sizes: jax.Array, clusters: jax.Array, num_urns: int) -> jax.Array:
    """Fill each urn with one of the K largest clusters, and fill it up with the other clusters (Algorithm 2).

    1. A client with a mass of at least one urn fills whole urns; its remaining mass stays in its cluster.
    2. The clusters with the largest remaining masses are the seeds of the free urns, one each.
    3. The other clusters, from the smallest to the largest, are poured into the free urns, least filled first. A client
       or a cluster can be split over several urns.

    Args:
        sizes: sizes n_i, int32 [N].
        clusters: cluster of each client, int32 [N], from 0 to N - 1. K times a cluster's size is at most n, unless it
            is a single client.
        num_urns: K <= N; the masses returned are int32 [K, N].
    """
    num_clients, total = sizes.shape[0], sizes.sum()
    urn = jnp.arange(num_urns, dtype=jnp.int32)[:, None]

    whole = num_urns * sizes // total
    rest = num_urns * sizes - whole * total
    last = jnp.cumsum(whole)
    masses = jnp.where((last - whole <= urn) & (urn < last), total, 0)
    num_free = num_urns - last[-1]  # the urns from last[-1] on

    cluster_rests = jnp.zeros((num_clients,), jnp.int32).at[clusters].add(rest)
    ascending = jnp.argsort(cluster_rests, stable=True)
    place = jnp.argsort(ascending)[clusters]  # of a client's cluster in that order
    # The last num_free places are seeds: place N - K + k seeds urn k. A cluster has at most mass n left and the free
    # urns have capacity n num_free in total, so at least num_free clusters have mass left.
    seeding = place >= num_clients - num_free
    masses += jnp.where(seeding & (place - (num_clients - num_urns) == urn), rest, 0)

    seeds = cluster_rests[ascending][num_clients - num_urns :]
    free = jnp.where(urn[:, 0] >= last[-1], total - seeds, 0)
    return masses + _overlaps(jnp.where(seeding, 0, rest), jnp.argsort(place, stable=True), free)


def draw(key: jax.Array, masses: jax.Array) -> jax.Array:
    """Draw one client from each urn, with probabilities exactly proportional to the masses; int32 [K].

    Args:
        key: random key, consumed.
        masses: masses, int32 [K, N]; an empty urn yields client N - 1.
    """
    sums = jnp.cumsum(masses, axis=1)
    ticket = jax.random.randint(key, sums.shape[:1], 0, jnp.maximum(sums[:, -1], 1))
    drawn = jnp.sum(sums <= ticket[:, None], axis=1, dtype=jnp.int32)
    return jnp.minimum(drawn, masses.shape[1] - 1)


def _overlaps(masses: jax.Array, order: jax.Array, capacities: jax.Array) -> jax.Array:
    """Fill capacities [K] one after another with masses [N] in the given order; return the parts, [K, N]."""
    poured = masses[order]
    upper, brim = jnp.cumsum(poured), jnp.cumsum(capacities)[:, None]
    lower, floor = upper - poured, brim - capacities[:, None]
    shares = jnp.maximum(jnp.minimum(upper, brim) - jnp.maximum(lower, floor), 0)
    return shares[:, jnp.argsort(order)]
