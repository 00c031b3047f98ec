"""Urns for clustered sampling, with exact integer masses (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021).

One independent draw from each of K urns is unbiased if all urns have the same mass and each client's total mass is K
times its share. With integer sizes n_i both conditions hold exactly:

    sum_i urns[k, i] = n for every urn, n = sum_i n_i        sum_k urns[k, i] = K n_i for every client

Masses and urns are laid out as consecutive intervals; the mass of client i in urn k is the overlap of their intervals.
Filling is deterministic and ties go to the lowest index, so shuffle the clients first.

Shapes: N clients, K <= N urns. K n must be below 2^31, which `fitting` ensures.
"""

import jax
import jax.numpy as jnp

_LARGEST = 2.0**30  # upper bound of K n after scaling; half of int32's range, because rounding can increase K n


def fitting(sizes: jax.Array, num_urns: int) -> jax.Array:
    """Return the sizes, in units of a power of two if K n exceeds 2^30; positive sizes remain at least 1.

    Args:
        sizes: nonnegative integer sizes n_i, [N].
        num_urns: K.

    Returns:
        Sizes, int32 [N].
    """
    sizes = sizes.astype(jnp.int32)
    excess = num_urns * sizes.astype(jnp.float32).sum() / _LARGEST
    shift = jnp.maximum(jnp.ceil(jnp.log2(jnp.maximum(excess, 1.0))), 0.0).astype(jnp.int32)
    return jnp.where(sizes > 0, jnp.maximum(sizes >> shift, 1), 0)


def pour_by_size(sizes: jax.Array, num_urns: int) -> jax.Array:
    """Fill the urns one after another with the clients in descending order of size (Algorithm 1).

    Args:
        sizes: sizes n_i, int32 [N].
        num_urns: K.

    Returns:
        Masses, int32 [K, N].
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
        num_urns: K <= N.

    Returns:
        Masses, int32 [K, N].
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
    """Draw one client from each urn, with probabilities exactly proportional to the masses.

    Args:
        key: random key, consumed.
        masses: masses, int32 [K, N]; an empty urn yields client N - 1.

    Returns:
        Client indices, int32 [K].
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
