"""K urns that hold N clients' masses exactly, in integers (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021).

One independent draw from each of K urns represents a population without bias if every urn holds the same mass and every
client's mass over all urns is K times its share. With integer sizes n_i both hold to the last unit:

    sum_i urns[k, i] = n for every urn, n = sum_i n_i        sum_k urns[k, i] = K n_i for every client

Pouring a line of masses into a line of urns is interval arithmetic: what client i leaves in urn k is the overlap of
their intervals. Filling is not random, and ties go to the lowest index: shuffle the clients first.

Shapes: N clients, K <= N urns. K n must stay below 2^31; `fitting` sees to it.
"""

import jax
import jax.numpy as jnp

_LARGEST = 2.0**30  # of K n after scaling; the other half of int32 is room for what rounding adds


def fitting(sizes: jax.Array, num_urns: int) -> jax.Array:
    """Return sizes as they are where K n is at most 2^30, else in units of a power of two, rounded down to at least 1.

    Args:
        sizes: n_i, non-negative integers [N].
        num_urns: K.

    Returns:
        int32 [N].
    """
    sizes = sizes.astype(jnp.int32)
    excess = num_urns * sizes.astype(jnp.float32).sum() / _LARGEST
    shift = jnp.maximum(jnp.ceil(jnp.log2(jnp.maximum(excess, 1.0))), 0.0).astype(jnp.int32)
    return jnp.where(sizes > 0, jnp.maximum(sizes >> shift, 1), 0)


def pour_by_size(sizes: jax.Array, num_urns: int) -> jax.Array:
    """Pour the largest client first, each urn filled before the next one is begun (Algorithm 1).

    Args:
        sizes: n_i, int32 [N].
        num_urns: K.

    Returns:
        Masses, int32 [K, N].
    """
    order = jnp.argsort(-sizes, stable=True)
    capacities = jnp.full((num_urns,), sizes.sum(), jnp.int32)
    return _overlaps(num_urns * sizes, order, capacities)


def pour_clusters(sizes: jax.Array, clusters: jax.Array, num_urns: int) -> jax.Array:
    """Pour the K largest clusters into an urn each, which the other clusters fill up (Algorithm 2).

    1. A client whose mass is that of whole urns is given them; what is left of it goes on.
    2. The clusters with most mass left are seeds of the urns that are free, one each.
    3. The others, from the smallest to the largest, are poured into these urns, the least filled first. A client, and
       a cluster, may end up in several.

    Args:
        sizes: n_i, int32 [N].
        clusters: of each client, int32 [N], numbers from 0 to N - 1. K times a cluster's size is at most n, or it is a
            single client.
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
    # The last num_free places are seeds: place N - K + k of urn k. As n is the most that a cluster has left and K n is
    # all there is, there are at least that many clusters with something left.
    seeding = place >= num_clients - num_free
    masses += jnp.where(seeding & (place - (num_clients - num_urns) == urn), rest, 0)

    seeds = cluster_rests[ascending][num_clients - num_urns :]
    free = jnp.where(urn[:, 0] >= last[-1], total - seeds, 0)
    return masses + _overlaps(jnp.where(seeding, 0, rest), jnp.argsort(place, stable=True), free)


def draw(key: jax.Array, masses: jax.Array) -> jax.Array:
    """Draw one client from every urn, with probabilities in exact proportion to the masses.

    Args:
        key: consumed.
        masses: int32 [K, N]; an urn of no mass gives client N - 1.

    Returns:
        int32 [K].
    """
    sums = jnp.cumsum(masses, axis=1)
    ticket = jax.random.randint(key, sums.shape[:1], 0, jnp.maximum(sums[:, -1], 1))
    drawn = jnp.sum(sums <= ticket[:, None], axis=1, dtype=jnp.int32)
    return jnp.minimum(drawn, masses.shape[1] - 1)


def _overlaps(masses: jax.Array, order: jax.Array, capacities: jax.Array) -> jax.Array:
    """Pour masses [N] in the given order into capacities [K], one after the other: [K, N]."""
    poured = masses[order]
    upper, brim = jnp.cumsum(poured), jnp.cumsum(capacities)[:, None]
    lower, floor = upper - poured, brim - capacities[:, None]
    shares = jnp.maximum(jnp.minimum(upper, brim) - jnp.maximum(lower, floor), 0)
    return shares[:, jnp.argsort(order)]
