"""Clustered sampling: one draw from each of K urns of clients (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021).

K independent draws with the data shares p_i are unbiased. One draw from each of K urns whose laws r_k sum to K p_i is
unbiased too, with lower variance. Similar clients should share an urn, so that they seldom train together. Algorithm 1
fills the urns by the clients' sizes. Algorithm 2 fills them by similarity: it computes Ward's clusters of the clients'
last updates, cut so that no cluster has a share above 1/K.

    symbol   here                       shape    meaning
    n_i      sizes                      [N]      training examples; p_i = n_i / n with n = sum_i n_i
    r_k,i    urns / n                   [K, N]   law of the k-th draw: sum_i r_k,i = 1 and sum_k r_k,i = K p_i
    G_i      Similarity.gradients[i]    [P]      representative gradient w_i - w^t of i's last participation; 0 before
    s_ij     Similarity.distances       [N, N]   arccos of the cosine of G_i and G_j; or L2, L1
    l_k      Selection.ids              [K]      the draw from r_k; aggregated with weight 1 / K

Information bought: none. The server reads single updates (no secure aggregation) and stores N P floats.

Differs from the paper:
* Masses are integers: K n_i per client in urns of n each. Both sums then hold exactly, also for p_i > 1/K: Algorithm 2
  gives such a client whole urns. K n is exact up to 2^30; above that, sizes are in units of a power of two.
* In the authors' code, a client without an update (or with a zero update) has distance 0 to every client
  (unseen="zero"). Here such clients have distance 0 to each other and pi / 2 to the others (unseen="group"). Both apply
  to arccos; for l2 and l1 a missing gradient is the zero vector.
* The authors' code passes the square matrix of distances to SciPy, which treats its rows as points in R^N
  (linkage="square"). The default here uses the entries as distances (linkage="condensed"). l2 is the squared norm, as
  in the authors' code.
* Ties, and the order of clients within a cluster, are random. Before any update all distances are zero, so the clusters
  are random and the draws unbiased.
* Angles are computed from the chord of unit vectors, 2 arcsin(|u - v| / 2), so that equal updates have distance 0. In
  float32, arccos turns the rounding of a cosine near 1 into an angle of 5e-4 that depends on the memory layout.
* A client drawn r times trains once and has weight r / K.
* An update that is not finite, or whose norm could exceed 1e18, is discarded; the client's previous update remains.
* Unavailable clients are removed from the urns; the others keep their proportions. An empty urn is replaced by all
  available clients, with probabilities proportional to n_i.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import clustering, facility_location, sampling
from fedjax_sel.strategies.contract import Env, Now, Outcome, Selection, Strategy

_LONGEST = 1e18  # largest norm of an update; squared distances of longer ones overflow float32


class Size(NamedTuple):
    """The state of Algorithm 1, which is constant: ties of sizes are broken once."""

    urns: jax.Array  # masses, int32 [K, N]


class Similarity(NamedTuple):
    """The state of Algorithm 2."""

    gradients: jax.Array  # G, float32 [N, P]; for arccos each row has norm 1 or 0
    seen: jax.Array  # whether G_i is nonzero, bool [N]
    distances: jax.Array  # s, float32 [N, N]


def clustered(
    *,
    variant: Literal["similarity", "size"] = "similarity",
    distance: Literal["arccos", "l2", "l1"] = "arccos",
    unseen: Literal["group", "zero"] = "group",
    linkage: Literal["condensed", "square"] = "condensed",
) -> Strategy:
    """Make clustered sampling.

    Args:
        variant: Algorithm 2 (`similarity`) or Algorithm 1 (`size`), which ignores the other parameters.
        distance: distance of two updates: their angle (`arccos`), or the squared 2-norm (`l2`) or 1-norm (`l1`) of
            their difference.
        unseen: clients without an update are close to each other (`group`) or to all clients (`zero`); for `arccos`.
        linkage: input of Ward's clustering: the distances (`condensed`), or the rows of their matrix (`square`).
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

    def init_size(key, now: Now) -> Size:
        shuffled = jax.random.permutation(key, now.env.num_clients)
        poured = clustering.pour_by_size(_sizes(now.env)[shuffled], now.env.num_selected)
        return Size(poured[:, jnp.argsort(shuffled)])

    def select_by_size(key, state: Size, now: Now) -> Selection:
        return _draw(key, state.urns, _sizes(now.env), now.available)

    def init(key, now: Now) -> Similarity:
        n, zeros = now.env.num_clients, jnp.zeros
        return Similarity(zeros((n, now.env.num_params), jnp.float32), zeros((n,), bool), zeros((n, n), jnp.float32))

    def select(key, state: Similarity, now: Now) -> Selection:
        key_shuffle, key_draw = jax.random.split(key)
        sizes = _sizes(now.env)
        masses = similarity_urns(key_shuffle, state.distances, sizes, now.env.num_selected, linkage)
        return _draw(key_draw, masses, sizes, now.available)

    def update(state: Similarity, now: Now, selection: Selection, outcome: Outcome) -> Similarity:
        rows = [leaf.reshape(now.env.num_selected, -1).astype(jnp.float32) for leaf in jax.tree.leaves(outcome.updates)]
        updates = jnp.concatenate(rows, axis=1)
        largest = jnp.abs(updates).max(axis=1)  # scaling before squaring prevents underflow of small entries
        taken = outcome.reported & outcome.finite & (largest * jnp.sqrt(float(updates.shape[1])) < _LONGEST)
        updates = jnp.where(taken[:, None], updates, 0.0)
        if distance == "arccos":
            updates = updates / jnp.where(taken & (largest > 0), largest, 1.0)[:, None]
            length = jnp.sqrt(jnp.sum(updates**2, axis=1))
            updates = updates / jnp.where(length > 0, length, 1.0)[:, None]
        places = jnp.where(taken, selection.ids, now.env.num_clients)
        gradients = state.gradients.at[places].set(updates, mode="drop")
        seen = state.seen.at[places].set(largest > 0, mode="drop")
        # Vectors are read back from the table: XLA would fuse the division above, and equal updates would round apart.
        fresh = _distances(gradients[selection.ids], gradients, distance)
        if distance == "arccos":
            seen_rows = seen[selection.ids][:, None]
            apart = jnp.pi / 2 if unseen == "group" else 0.0
            fresh = jnp.where(seen_rows & seen, fresh, jnp.where(seen_rows ^ seen, apart, 0.0))
        distances = state.distances.at[places].set(fresh, mode="drop").at[:, places].set(fresh.T, mode="drop")
        return Similarity(gradients, seen, distances)

    if variant == "size":
        return Strategy("clustered", select_by_size, init=init_size, with_replacement=True, inclusion=_inclusion)
    return Strategy("clustered", select, init=init, update=update, with_replacement=True, inclusion=_inclusion)


def _sizes(env: Env) -> jax.Array:
    """Return n_i, int32 [N], in units in which K n does not overflow."""
    return clustering.fitting(env.sizes, env.num_selected)


def _inclusion(state, now: Now) -> jax.Array | None:
    """Return K n_i / n, the expected number of draws; None with unavailable clients, which have no closed form."""
    sizes = _sizes(now.env)
    return now.env.num_selected * sizes / sizes.sum() if now.available is None else None


def similarity_urns(
    key: jax.Array, distances: jax.Array, sizes: jax.Array, num_selected: int, linkage: str = "condensed"
) -> jax.Array:
    """Distribute Ward's clusters with K sum n_i <= n over K urns (Algorithm 2); return masses, int32 [K, N].

    The key orders the clients, and clusters of equal mass. `sizes` are n_i, int32 [N]; K n is below 2^31.
    """
    if linkage == "square":
        distances = clustering.distances_of_rows(distances)
    shuffled = jax.random.permutation(key, sizes.shape[0])
    tree = clustering.linkage(distances[shuffled][:, shuffled])
    sizes = sizes[shuffled]
    clusters = clustering.cut_by_mass(tree, num_selected * sizes, sizes.sum())
    return clustering.pour_clusters(sizes, clusters, num_selected)[:, jnp.argsort(shuffled)]


def _draw(key: jax.Array, masses: jax.Array, sizes: jax.Array, available: jax.Array | None) -> Selection:
    """Draw the cohort: one available client from each urn."""
    k = masses.shape[0]
    if available is not None:
        masses = jnp.where(available, masses, 0)
        available_sizes = jnp.where(available, sizes, 0)
        masses = jnp.where(masses.sum(axis=1, keepdims=True) > 0, masses, available_sizes)
    ids = clustering.draw(key, masses)
    mask = sampling.first_occurrence(ids)
    if available is not None:
        mask &= available[ids]
    return Selection(ids, jnp.where(mask, sampling.draws(ids) / k, 0.0), mask)


def _distances(vectors: jax.Array, others: jax.Array, distance: str) -> jax.Array:
    """Return the distances [M, N] between rows, exactly zero between equal rows; `arccos` needs rows of norm 1."""
    terms = jnp.abs if distance == "l1" else jnp.square
    total = facility_location.sum_over_differences(terms, vectors, others)
    return 2 * jnp.arcsin(jnp.minimum(jnp.sqrt(total) / 2, 1.0)) if distance == "arccos" else total
