"""Random choices with fixed shapes: uniform and weighted draws of K of N, ties broken at random."""

import jax
import jax.numpy as jnp
from jax import lax


def top_k(key: jax.Array | None, scores: jax.Array, k: int) -> jax.Array:
    """The k largest scores; equal scores in random order, in index order without a key.

    `lax.top_k` alone always returns the lowest indices among equals: on clients sorted by label, one class only.

    Args:
        key: consumed; None for index order.
        scores: [N], -inf for items that must not be taken while others are left.
        k: how many.

    Returns:
        int32 [k], the best first.
    """
    if key is None:
        return lax.top_k(scores, k)[1].astype(jnp.int32)
    order = jax.random.permutation(key, scores.shape[0])
    return order[lax.top_k(scores[order], k)[1]].astype(jnp.int32)


def without_replacement(key: jax.Array, weights: jax.Array, k: int, available: jax.Array | None = None) -> jax.Array:
    """Draws k distinct items, one after another, each with probability proportional to its weight.

    The law of NumPy's `choice(replace=False, p=weights)` (Plackett and Luce), by perturbing log-weights with Gumbel
    noise. If fewer than k weights are positive, the remaining places go to items of weight zero, uniformly; items that
    are not available come last.

    Args:
        key: consumed.
        weights: non-negative, [N].
        k: how many.
        available: bool [N]; all without it.

    Returns:
        int32 [k], in the order of the draws.
    """
    key_noise, key_rest = jax.random.split(key)
    # mode="high": the default noise is biased for probabilities below 1e-7
    noise = jax.random.gumbel(key_noise, weights.shape, mode="high")
    scores = jnp.where(weights > 0, jnp.log(weights) + noise, -jnp.inf)
    if available is not None:
        scores = jnp.where(available, scores, -jnp.inf)
    tier = jnp.where(weights > 0, 2, 1) if available is None else jnp.where(available, jnp.where(weights > 0, 2, 1), 0)
    shuffled = jax.random.permutation(key_rest, weights.shape[0])
    ranking = shuffled[jnp.lexsort((-scores[shuffled], -tier[shuffled]))]
    return ranking[:k].astype(jnp.int32)


def uniform_without_replacement(
    key: jax.Array, num_items: int, k: int, available: jax.Array | None = None
) -> jax.Array:
    """Draws k distinct items, every k-subset equally likely; items that are not available come last.

    Args:
        key: consumed.
        num_items: N.
        k: how many.
        available: bool [N]; all without it.

    Returns:
        int32 [k].
    """
    order = jax.random.permutation(key, num_items)
    if available is not None:
        order = order[jnp.argsort(~available[order], stable=True)]
    return order[:k].astype(jnp.int32)


def first_occurrence(ids: jax.Array) -> jax.Array:
    """True where an id stands for the first time, bool [K]."""
    earlier = jnp.tril(ids[:, None] == ids[None, :], k=-1)
    return ~earlier.any(axis=1)
