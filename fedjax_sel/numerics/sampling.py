"""Random choices with fixed shapes: uniform and weighted draws of K of N, ties broken at random.

Few items are ranked by sorting all of them; of many, only the first K are found (`partial_order`). The laws are the
same; which draw a key gives differs.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.numerics import partial_order

SORTED = 4096
"""Up to so many items all are sorted. Above, a sort of all of them would cost more than the rest of a selection."""

_LARGEST_LOGIT = 1e37
_BLOCK = 1024  # items of one block, of which an independent draw chooses one first


def random_words(key: jax.Array, num_items: int) -> tuple[jax.Array, ...]:
    """Draw a uniformly random order of the items, as words for `partial_order`.

    Two words of 32 bits each: of a million items some hundred pairs have a word in common, and none has two.

    Args:
        key: consumed.
        num_items: N.

    Returns:
        uint32 [N] each.
    """
    if num_items <= SORTED:
        return (jax.random.permutation(key, num_items).astype(jnp.uint32),)
    key_high, key_low = jax.random.split(key)
    return jax.random.bits(key_high, (num_items,)), jax.random.bits(key_low, (num_items,))


def top_k(key: jax.Array | None, scores: jax.Array, k: int) -> jax.Array:
    """Return the k largest scores; equal scores in random order, in index order without a key.

    `lax.top_k` alone always returns the lowest indices among equals: on clients sorted by label, one class only.

    Args:
        key: consumed; None for index order.
        scores: float32 [N], -inf for items that must not be taken while others are left.
        k: how many.

    Returns:
        int32 [k], the best first.
    """
    num_items = scores.shape[0]
    if key is None:
        return lax.top_k(scores, k)[1].astype(jnp.int32)
    if num_items > SORTED:
        return partial_order.first((partial_order.descending(scores), *random_words(key, num_items)), k)
    scores = jnp.where(scores == 0, 0.0, scores)  # XLA orders -0 before 0
    order = jax.random.permutation(key, num_items)
    return order[lax.top_k(scores[order], k)[1]].astype(jnp.int32)


def among_largest(key: jax.Array, scores: jax.Array, count: jax.Array | int) -> jax.Array:
    """Return which items have the largest scores; ties at the edge are decided at random.

    Args:
        key: consumed.
        scores: float32 [N].
        count: how many, int32 scalar; it may be traced.

    Returns:
        bool [N].
    """
    num_items = scores.shape[0]
    if num_items > SORTED:
        return partial_order.among_first((partial_order.descending(scores), *random_words(key, num_items)), count)
    places = jnp.arange(num_items, dtype=jnp.int32)
    return jnp.zeros((num_items,), bool).at[top_k(key, scores, num_items)].set(places < count)


def value_at(values: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return the number in a place of the ascending list.

    Args:
        values: float32 [N], without NaN.
        place: from 0 to N - 1; int32 scalar.

    Returns:
        float32 scalar.
    """
    return jnp.sort(values)[place] if values.shape[0] <= SORTED else partial_order.value_at(values, place)


def without_replacement(key: jax.Array, weights: jax.Array, k: int, available: jax.Array | None = None) -> jax.Array:
    """Draw k distinct items, one after another, each with probability proportional to its weight.

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
    num_items = weights.shape[0]
    key_noise, key_rest = jax.random.split(key)
    # mode="high": the default noise is biased for probabilities below 1e-7
    noise = jax.random.gumbel(key_noise, weights.shape, mode="high")
    scores = jnp.where(weights > 0, jnp.log(weights) + noise, -jnp.inf)
    if available is not None:
        scores = jnp.where(available, scores, -jnp.inf)
    tier = jnp.where(weights > 0, 2, 1) if available is None else jnp.where(available, jnp.where(weights > 0, 2, 1), 0)
    if num_items > SORTED:
        # One word for both: what has no score comes after everything that has one.
        ranks = jnp.where(tier == 2, partial_order.descending(scores), partial_order.LAST - tier.astype(jnp.uint32))
        return partial_order.first((ranks, *random_words(key_rest, num_items)), k)
    shuffled = jax.random.permutation(key_rest, num_items)
    ranking = shuffled[jnp.lexsort((-scores[shuffled], -tier[shuffled]))]
    return ranking[:k].astype(jnp.int32)


def by_logits(key: jax.Array, logits: jax.Array, k: int, among: jax.Array) -> jax.Array:
    """Draw k distinct items, one after another, each with probability proportional to exp(logit), of any size.

    The noise that decides among equal logits must not be rounded away beside large ones: each sum is kept as the
    float32 next to it and what that leaves (Knuth's exact sum of two); items are ranked by the one, then by the other.

    Args:
        key: consumed.
        logits: float32 [N]; clipped where they are not finite.
        k: how many.
        among: bool [N], of which k at least are; others come last.

    Returns:
        int32 [k], in the order of the draws.
    """
    logits = jnp.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)
    noise = jax.random.gumbel(key, logits.shape, mode="high")
    high = logits + noise
    of_noise = high - logits
    low = (logits - (high - of_noise)) + (noise - of_noise)
    high = jnp.where(among, high, -jnp.inf)
    if logits.shape[0] > SORTED:
        return partial_order.first((partial_order.descending(high), partial_order.descending(low)), k)
    return jnp.lexsort((-low, -high))[:k].astype(jnp.int32)


def uniform_without_replacement(
    key: jax.Array, num_items: int, k: int, available: jax.Array | None = None
) -> jax.Array:
    """Draw k distinct items, every k-subset equally likely; items that are not available come last.

    Args:
        key: consumed.
        num_items: N.
        k: how many.
        available: bool [N]; all without it.

    Returns:
        int32 [k].
    """
    if num_items > SORTED:
        tiers = () if available is None else ((~available).astype(jnp.uint32),)
        return partial_order.first((*tiers, *random_words(key, num_items)), k)
    order = jax.random.permutation(key, num_items)
    if available is not None:
        order = order[jnp.argsort(~available[order], stable=True)]
    return order[:k].astype(jnp.int32)


def with_replacement(key: jax.Array, weights: jax.Array, k: int) -> jax.Array:
    """Draw k items independently, each with probability proportional to its weight.

    Args:
        key: consumed.
        weights: non-negative, not all zero, [N].
        k: how many.

    Returns:
        int32 [k].
    """
    num_items = weights.shape[0]
    if num_items <= SORTED:
        return jax.random.categorical(key, jnp.log(weights), shape=(k,)).astype(jnp.int32)
    # First a block of items, then an item of it: noise for every pair of a draw and an item would take k N numbers.
    key_block, key_item = jax.random.split(key)
    blocks = jnp.pad(weights, (0, -num_items % _BLOCK)).reshape(-1, _BLOCK)
    block = jax.random.categorical(key_block, jnp.log(blocks.sum(axis=1)), shape=(k,))
    item = jax.random.categorical(key_item, jnp.log(blocks[block]), axis=1)
    return (block * _BLOCK + item).astype(jnp.int32)


def first_occurrence(ids: jax.Array) -> jax.Array:
    """Return True where an id stands for the first time, bool [K]."""
    earlier = jnp.tril(ids[:, None] == ids[None, :], k=-1)
    return ~earlier.any(axis=1)
