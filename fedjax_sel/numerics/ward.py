"""Ward's hierarchical clustering with fixed shapes (Ward 1963; Lance and Williams 1967), and cuts of its tree.

Every item starts as a cluster. In each of N - 1 steps the two nearest clusters merge. With squared distances D_ij and
cluster sizes n, the merged cluster's squared distance to another cluster k is

    D_k = ((n_i + n_k) D_ik + (n_j + n_k) D_jk - n_k D_ij) / (n_i + n_j + n_k)

The merged cluster keeps the lower of the two slots, so the tree is a list of pairs of slots. Ties go to the lowest
slots; shuffle the items first if the result must not depend on their order.

Shapes: N items. Cost: N - 1 steps of O(N^2) elementwise work, no sorting.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


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
    """Return the Euclidean distances between rows, times a common power of two; exactly zero between equal rows.

    Args:
        matrix: finite, [N, D].

    Returns:
        Distances, [N, N].
    """
    rows = _scale(jnp.abs(matrix)) * matrix
    return jnp.sqrt(jnp.sum((rows[:, None] - rows) ** 2, axis=2))


def cut_by_mass(tree: Tree, masses: jax.Array, capacity: jax.Array) -> jax.Array:
    """Cut the tree into the largest clusters whose mass is at most `capacity`.

    Masses grow along the tree, so a cluster above capacity is never part of one below it, and one pass over the merges
    suffices. A single item above capacity forms its own cluster.

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
    """Cut the tree into M clusters by omitting the last M - 1 merges.

    The partition equals SciPy's `fcluster(tree, M, "maxclust")`, unless the last heights tie: SciPy then merges all
    tied clusters.

    Args:
        tree: output of `linkage`.
        num_clusters: M, from 1 to N.

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
