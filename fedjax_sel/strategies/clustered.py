"""Clustered sampling: one draw from each of K urns of clients (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021).

K independent draws with the clients' shares p_i represent the population without bias. So does one draw from each of K
urns whose laws r_k add up to K p_i, and with less variance. Clients that are alike should share an urn, so that they
seldom train together. Algorithm 1 fills the urns by the clients' sizes. Algorithm 2 goes by similarity: it takes Ward's
clusters of the clients' last updates, cut so that no cluster has a share above 1/K.

    symbol   here                       shape    meaning
    n_i      sizes                      [N]      training examples; p_i = n_i / n with n = sum_i n_i
    r_k,i    urns / n                   [K, N]   law of the k-th draw: sum_i r_k,i = 1 and sum_k r_k,i = K p_i
    G_i      Similarity.gradients[i]    [P]      representative gradient w_i - w^t of i's last participation; 0 before
    s_ij     Similarity.distances       [N, N]   arccos of the cosine of G_i and G_j; or L2, L1
    l_k      Selection.ids              [K]      the draw from r_k; aggregated with 1 / K

Information bought: none. The updates come with training; the server keeps the last one of each client, N P floats.

Differs from the paper:
* Masses are integers, K n_i in urns of n each, so that both sums hold exactly, also where p_i > 1/K: similarity gives
  such a client whole urns to itself. K n is exact up to 2^30; beyond, sizes are counted in units of a power of two.
* In the authors' code a client that has not trained yet (or whose update is zero) is at distance 0 of everybody, also
  of those who have trained (unseen="zero"). Here such clients are at distance 0 of each other and pi / 2 of the others.
  Both are of the angle; for l2 and l1 a missing gradient is the zero vector.
* Their code hands the square matrix of distances to SciPy, which takes its rows for points in R^N (linkage="square").
  Here its entries are the distances (linkage="condensed"). l2 is the squared norm, as in their code.
* Ties, and the order of clients within a cluster, are random. While nothing is known all distances are zero: the
  clusters are random then, and the draws unbiased.
* Angles come from the chord, 2 arcsin(|u - v| / 2) of unit vectors. In float32 arccos turns the rounding of a cosine
  near 1 into an angle of 5e-4, which differs with a client's place in memory; equal updates must be at distance 0.
* A client drawn r times trains once and has weight r / K.
* An update that is not finite, or whose length could exceed 1e18, is not kept: the client's last one stands.
* Clients that are not available are taken out of the urns, where the others stay in proportion. An urn that is empty
  then stands for everybody who is available, with probabilities n_i.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling, urns, ward
from fedjax_sel.strategies.base import Env, Outcome, Selection, Static, Strategy, keep_state

_LONGEST = 1e18  # of updates; beyond it squared distances leave float32
_BLOCK = 512  # entries of two vectors that are compared at once


class Size(NamedTuple):
    """Algorithm 1: nothing is learned."""

    sizes: jax.Array  # n_i, int32 [N]
    urns: jax.Array  # masses, int32 [K, N]


class Similarity(NamedTuple):
    """Algorithm 2."""

    num_selected: Static  # K
    sizes: jax.Array  # n_i, int32 [N]
    gradients: jax.Array  # G, of length 1 or 0 if only their angles matter, float32 [N, P]
    seen: jax.Array  # whether G_i is not zero, bool [N]
    distances: jax.Array  # between all G, float32 [N, N]


def clustered(
    *,
    variant: Literal["similarity", "size"] = "similarity",
    distance: Literal["arccos", "l2", "l1"] = "arccos",
    unseen: Literal["group", "zero"] = "group",
    linkage: Literal["condensed", "square"] = "condensed",
) -> Strategy:
    """Make clustered sampling.

    Args:
        variant: Algorithm 2 (`similarity`) or Algorithm 1 (`size`), which reads none of the others.
        distance: between two updates: their angle, the squared norm of their difference, or its sum of absolute values.
        unseen: clients without an update are near each other (`group`), or near everybody (`zero`); with `arccos`.
        linkage: Ward's clustering of the distances (`condensed`), or of the rows of their matrix (`square`).

    Returns:
        The strategy.

    Raises:
        UserError: a parameter without effect.
    """
    for name, value, usual, needs in (
        ("distance", distance, "arccos", {"variant": "similarity"}),
        ("linkage", linkage, "condensed", {"variant": "similarity"}),
        ("unseen", unseen, "group", {"variant": "similarity", "distance": "arccos"}),
    ):
        for other, needed in needs.items():
            have = {"variant": variant, "distance": distance}[other]
            if value != usual and have != needed:
                raise UserError(f"clustered: {name}={value} has no effect with {other}={have}; leave one of them out")

    def init_size(key: jax.Array, env: Env) -> Size:
        sizes = urns.fitting(env.sizes, env.num_selected)
        shuffled = jax.random.permutation(key, env.num_clients)
        poured = urns.pour_by_size(sizes[shuffled], env.num_selected)
        return Size(sizes, poured[:, jnp.argsort(shuffled)])

    def select_by_size(key, state: Size, info, round, available) -> Selection:
        del info, round
        return _draw(key, state.urns, state.sizes, available)

    def init(key: jax.Array, env: Env) -> Similarity:
        del key
        n = env.num_clients
        return Similarity(
            Static(env.num_selected),
            urns.fitting(env.sizes, env.num_selected),
            jnp.zeros((n, env.num_params), jnp.float32),
            jnp.zeros((n,), bool),
            jnp.zeros((n, n), jnp.float32),
        )

    def select(key, state: Similarity, info, round, available) -> Selection:
        del info, round
        key_shuffle, key_draw = jax.random.split(key)
        masses = similarity_urns(key_shuffle, state.distances, state.sizes, state.num_selected.value, linkage)
        return _draw(key_draw, masses, state.sizes, available)

    def update(state: Similarity, info, round, selection: Selection, outcome: Outcome) -> Similarity:
        del info, round
        k, num_clients = state.num_selected.value, state.sizes.shape[0]
        rows = [leaf.reshape(k, -1).astype(jnp.float32) for leaf in jax.tree.leaves(outcome.updates)]
        updates = jnp.concatenate(rows, axis=1)
        largest = jnp.abs(updates).max(axis=1)  # scaled first: squares of small numbers would be zero
        taken = selection.mask & outcome.finite & (largest * jnp.sqrt(float(updates.shape[1])) < _LONGEST)
        updates = jnp.where(taken[:, None], updates, 0.0)
        if distance == "arccos":
            updates = updates / jnp.where(taken & (largest > 0), largest, 1.0)[:, None]
            length = jnp.sqrt(jnp.sum(updates**2, axis=1))
            updates = updates / jnp.where(length > 0, length, 1.0)[:, None]
        places = jnp.where(taken, selection.ids, num_clients)
        gradients = state.gradients.at[places].set(updates, mode="drop")
        seen = state.seen.at[places].set(largest > 0, mode="drop")
        # Read back from the table: fused with the division above, equal updates would differ by its rounding.
        fresh = _distances(gradients[selection.ids], gradients, distance)
        if distance == "arccos":
            ours = seen[selection.ids][:, None]
            apart = jnp.pi / 2 if unseen == "group" else 0.0
            fresh = jnp.where(ours & seen, fresh, jnp.where(ours ^ seen, apart, 0.0))
        distances = state.distances.at[places].set(fresh, mode="drop").at[:, places].set(fresh.T, mode="drop")
        return state._replace(gradients=gradients, seen=seen, distances=distances)

    by_size = variant == "size"
    return Strategy(
        name="clustered",
        init=init_size if by_size else init,
        select=select_by_size if by_size else select,
        with_replacement=True,
        update=keep_state if by_size else update,
        inclusion=_inclusion,
    )


def _inclusion(state: Any, info, round, available) -> jax.Array | None:
    """Return K n_i / n, how often each client is selected; None where some are away and urns fill less evenly."""
    del info, round
    if available is not None:
        return None
    num_selected = state.urns.shape[0] if isinstance(state, Size) else state.num_selected.value
    return num_selected * state.sizes / state.sizes.sum()


def similarity_urns(
    key: jax.Array, distances: jax.Array, sizes: jax.Array, num_selected: int, linkage: str = "condensed"
) -> jax.Array:
    """Pour Ward's clusters with K sum n_i <= n into K urns (Algorithm 2).

    Args:
        key: consumed; the order in which clients, and clusters of the same mass, come.
        distances: between clients, [N, N].
        sizes: n_i, int32 [N], K n below 2^31.
        num_selected: K.
        linkage: condensed or square.

    Returns:
        Masses, int32 [K, N]; each urn's sum is n, each client's K n_i.
    """
    if linkage == "square":
        distances = ward.distances_of_rows(distances)
    shuffled = jax.random.permutation(key, sizes.shape[0])
    tree = ward.linkage(distances[shuffled][:, shuffled])
    sizes = sizes[shuffled]
    clusters = ward.cut_by_mass(tree, num_selected * sizes, sizes.sum())
    return urns.pour_clusters(sizes, clusters, num_selected)[:, jnp.argsort(shuffled)]


def _draw(key: jax.Array, masses: jax.Array, sizes: jax.Array, available: jax.Array | None) -> Selection:
    """Draw the cohort: one client from each urn, as far as they are available."""
    k = masses.shape[0]
    if available is not None:
        masses = jnp.where(available, masses, 0)
        everybody = jnp.where(available, sizes, 0)
        masses = jnp.where(masses.sum(axis=1, keepdims=True) > 0, masses, everybody)
    ids = urns.draw(key, masses)
    mask = sampling.first_occurrence(ids)
    if available is not None:
        mask &= available[ids]
    draws = (ids[:, None] == ids).sum(axis=1)  # r
    return Selection(ids, jnp.where(mask, draws / k, 0.0), mask)


def _distances(vectors: jax.Array, others: jax.Array, distance: str) -> jax.Array:
    """Return distances [M, N] from [M, P] to [N, P], as explicit differences of blocks that fit in a CPU's cache.

    They are exactly zero between equal vectors. For `arccos` vectors have length 1.
    """
    length = vectors.shape[1]

    def add_block(total: jax.Array, start: jax.Array | int, size: int) -> jax.Array:
        ours = lax.dynamic_slice_in_dim(vectors, start, size, axis=1)
        theirs = lax.dynamic_slice_in_dim(others, start, size, axis=1)
        difference = ours[:, None] - theirs
        return total + jnp.sum(jnp.abs(difference) if distance == "l1" else difference**2, axis=2)

    total = jnp.zeros((vectors.shape[0], others.shape[0]), vectors.dtype)
    whole = length // _BLOCK
    if whole:
        total = lax.fori_loop(0, whole, lambda block, total: add_block(total, block * _BLOCK, _BLOCK), total)
    if length % _BLOCK:
        total = add_block(total, whole * _BLOCK, length % _BLOCK)
    return 2 * jnp.arcsin(jnp.minimum(jnp.sqrt(total) / 2, 1.0)) if distance == "arccos" else total
