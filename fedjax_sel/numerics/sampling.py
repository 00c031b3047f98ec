"""Sampling and order statistics that never depend on client order."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Partial sorting: the first k of many items, without sorting all of them.
#
# Items are compared lexicographically by uint32 words, then by index. The word at a given rank is found two bits at a
# time, by counting the words below three bounds. This takes sixteen passes for any data and rank. The rank may
# be traced.
#
# Shapes: N items.

LAST = np.uint32(2**32 - 1)
"""A word that `ascending` and `descending` never return; items with this word come last."""


def ascending(values: jax.Array) -> jax.Array:
    """Return uint32 words that sort like float32 values, [N]. 0, -0 and subnormals are equal; NaN follows infinity."""
    values = jnp.where(jnp.isnan(values), jnp.nan, values)  # canonical NaN, without a sign
    bits = lax.bitcast_convert_type(jnp.where(values == 0, 0.0, values).astype(jnp.float32), jnp.uint32)
    sign = jnp.uint32(1 << 31)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def descending(values: jax.Array) -> jax.Array:
    """Return uint32 words that sort in descending order of float32 values, [N], with NaN first."""
    return ~ascending(values)


def word_at(words: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return element `place` of the sorted words, a uint32 scalar: with a negative place the first, beyond N `LAST`."""
    needed = jnp.maximum(jnp.asarray(place, jnp.int32) + 1, 1)

    def two_bits(step: jax.Array, prefix: jax.Array) -> jax.Array:
        shift = (30 - 2 * jnp.asarray(step, jnp.int32)).astype(jnp.uint32)
        bounds = [prefix | (jnp.uint32(digit) << shift) for digit in (1, 2, 3)]
        below = tuple((words < bound).astype(jnp.int32) for bound in bounds)
        counts = lax.reduce(below, (jnp.int32(0),) * 3, lambda one, two: tuple(a + b for a, b in zip(one, two)), (0,))
        digit = sum((count < needed).astype(jnp.uint32) for count in counts)
        return prefix | (digit << shift)

    return lax.fori_loop(0, 16, two_bits, jnp.uint32(0))


def selected_value_at(values: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return `jnp.sort(values)[place]` for float32 values [N]."""
    word = word_at(ascending(values), place)
    sign = jnp.uint32(1 << 31)
    return lax.bitcast_convert_type(jnp.where(word >= sign, word ^ sign, ~word), jnp.float32)


def among_first(words: Sequence[jax.Array], count: jax.Array | int) -> jax.Array:
    """Return a mask of the first items, bool [N].

    Args:
        words: words, uint32 [N] each, the most significant first; ties are broken by index.
        count: number of items, int32 scalar; clipped to N.
    """
    left = jnp.asarray(count, jnp.int32)
    among = jnp.zeros(words[0].shape, bool)
    tied = jnp.ones(words[0].shape, bool)
    for word in words:
        word = jnp.where(tied, word, LAST)
        bound = word_at(word, left - 1)
        before = word < bound
        among |= before
        left -= before.sum(dtype=jnp.int32)
        tied &= word == bound
    return among | (tied & (jnp.cumsum(tied, dtype=jnp.int32) <= left))


def first(words: Sequence[jax.Array], k: int) -> jax.Array:
    """Return the indices of the first k items, int32 [k], in order.

    Args:
        words: words, uint32 [N] each, the most significant first; ties are broken by index.
        k: number of items, at most N.
    """
    ids = jnp.nonzero(among_first(words, k), size=k, fill_value=0)[0]
    return ids[jnp.lexsort([word[ids] for word in reversed(words)])].astype(jnp.int32)


SORTED = 4096
"""The largest number of items that is sorted. A larger sort would cost more than the rest of a selection."""

_LARGEST_LOGIT = 1e37
_BLOCK = 1024  # items per block; `with_replacement` draws a block first


def random_words(key: jax.Array, num_items: int) -> tuple[jax.Array, ...]:
    """Draw a uniformly random order of N items, as one or two uint32 words [N] for `first`; consumes the key.

    Many items get two words of 32 bits: among a million items about a hundred pairs share one word, and none share two.
    """
    if num_items <= SORTED:
        return (jax.random.permutation(key, num_items).astype(jnp.uint32),)
    key_high, key_low = jax.random.split(key)
    return jax.random.bits(key_high, (num_items,)), jax.random.bits(key_low, (num_items,))


def top_k(key: jax.Array, scores: jax.Array, k: int) -> jax.Array:
    """Return the indices, int32 [k], of the k largest scores, largest first.

    Ties are in random order. `lax.top_k` alone returns the lowest indices among ties: with clients sorted by label, a
    single class.

    Args:
        key: random key, consumed.
        scores: scores, float32 [N]; items with -inf come last.
        k: number of items.
    """
    num_items = scores.shape[0]
    if num_items > SORTED:
        return first((descending(scores), *random_words(key, num_items)), k)
    scores = jnp.where(scores == 0, 0.0, scores)  # XLA orders -0 before 0
    order = jax.random.permutation(key, num_items)
    return order[lax.top_k(scores[order], k)[1]].astype(jnp.int32)


def among_largest(key: jax.Array, scores: jax.Array, count: jax.Array | int) -> jax.Array:
    """Return a mask of the items with the largest scores, bool [N]; ties at the boundary are broken at random.

    Args:
        key: random key, consumed.
        scores: scores, float32 [N].
        count: number of items, int32 scalar; may be traced.
    """
    num_items = scores.shape[0]
    if num_items > SORTED:
        return among_first((descending(scores), *random_words(key, num_items)), count)
    places = jnp.arange(num_items, dtype=jnp.int32)
    return jnp.zeros((num_items,), bool).at[top_k(key, scores, num_items)].set(places < count)


def value_at(values: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return an order statistic: element `place` of the values in ascending order.

    Args:
        values: values without NaN, float32 [N].
        place: index from 0 to N - 1, int32 scalar; may be traced.
    """
    return jnp.sort(values)[place] if values.shape[0] <= SORTED else selected_value_at(values, place)


def without_replacement(key: jax.Array, weights: jax.Array, k: int, available: jax.Array | None = None) -> jax.Array:
    """Draw k distinct items sequentially, each with probability proportional to its weight.

    The distribution is that of NumPy's `choice(replace=False, p=weights)` (Plackett-Luce), by Gumbel perturbation of
    the log-weights. If fewer than k weights are positive, items of weight zero fill the remaining places uniformly.
    Unavailable items come last.

    Args:
        key: random key, consumed.
        weights: nonnegative weights, [N].
        k: number of items.
        available: availability, bool [N]; None: all.

    Returns:
        Indices, int32 [k], in the order of the draws.
    """
    num_items = weights.shape[0]
    key_noise, key_rest = jax.random.split(key)
    # mode="high": the default noise is biased for probabilities below 1e-7.
    noise = jax.random.gumbel(key_noise, weights.shape, mode="high")
    scores = jnp.where(weights > 0, jnp.log(weights) + noise, -jnp.inf)
    if available is not None:
        scores = jnp.where(available, scores, -jnp.inf)
    tier = jnp.where(weights > 0, 2, 1) if available is None else jnp.where(available, jnp.where(weights > 0, 2, 1), 0)
    if num_items > SORTED:
        # One word encodes both: items without a score come after all items with one.
        ranks = jnp.where(tier == 2, descending(scores), LAST - tier.astype(jnp.uint32))
        return first((ranks, *random_words(key_rest, num_items)), k)
    shuffled = jax.random.permutation(key_rest, num_items)
    ranking = shuffled[jnp.lexsort((-scores[shuffled], -tier[shuffled]))]
    return ranking[:k].astype(jnp.int32)


def by_logits(key: jax.Array, logits: jax.Array, k: int, among: jax.Array) -> jax.Array:
    """Draw k distinct items sequentially, each with probability proportional to exp(logit).

    The noise decides among equal logits, so large logits must not round it away. Each sum of logit and noise is kept
    as a float32 and its rounding error (Knuth's exact two-sum). Items are ranked by the sum, then by the error.

    Args:
        key: random key, consumed.
        logits: logits of any magnitude, float32 [N]; infinite ones are clipped.
        k: number of items.
        among: eligible items, bool [N], at least k of them; the others come last.

    Returns:
        Indices, int32 [k], in the order of the draws.
    """
    logits = jnp.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)
    noise = jax.random.gumbel(key, logits.shape, mode="high")
    high = logits + noise
    of_noise = high - logits
    low = (logits - (high - of_noise)) + (noise - of_noise)
    high = jnp.where(among, high, -jnp.inf)
    if logits.shape[0] > SORTED:
        return first((descending(high), descending(low)), k)
    return jnp.lexsort((-low, -high))[:k].astype(jnp.int32)


def uniform_without_replacement(
    key: jax.Array, num_items: int, k: int, available: jax.Array | None = None
) -> jax.Array:
    """Draw k distinct items, int32 [k], every k-subset equally likely; unavailable items come last.

    Args:
        key: random key, consumed.
        num_items: N.
        k: number of items.
        available: availability, bool [N]; None: all.
    """
    if num_items > SORTED:
        tiers = () if available is None else ((~available).astype(jnp.uint32),)
        return first((*tiers, *random_words(key, num_items)), k)
    order = jax.random.permutation(key, num_items)
    if available is not None:
        order = order[jnp.argsort(~available[order], stable=True)]
    return order[:k].astype(jnp.int32)


def systematic(key: jax.Array, probabilities: jax.Array, k: int) -> jax.Array:
    """Draw k distinct items, int32 [k], each with its own probability of inclusion; in random order.

    This is systematic sampling in random order (Madow 1949): the probabilities are laid end to end, and the items at
    u, u + 1, ..., u + k - 1 are drawn, with u uniform in [0, 1). Rounding of float32 sums changes a probability by
    about 1e-7 k. If the sum is below k, the remaining places are filled with other items, those of probability 0 last.

    Args:
        key: random key, consumed.
        probabilities: probabilities of inclusion, at most 1 each, with sum k, float32 [N].
        k: number of items.
    """
    key_order, key_start, key_rest = jax.random.split(key, 3)
    order = jax.random.permutation(key_order, probabilities.shape[0])
    ends = jnp.ceil(jnp.cumsum(probabilities[order]) - jax.random.uniform(key_start))
    drawn = jnp.diff(ends, prepend=0.0) > 0
    ranks = drawn.astype(jnp.float32) + (probabilities[order] > 0)
    return order[top_k(key_rest, ranks, k)].astype(jnp.int32)


def with_replacement(key: jax.Array, weights: jax.Array, k: int) -> jax.Array:
    """Draw k items independently, int32 [k], each with probability proportional to its weight.

    Args:
        key: random key, consumed.
        weights: nonnegative weights, not all zero, [N].
        k: number of draws.
    """
    num_items = weights.shape[0]
    if num_items <= SORTED:
        return jax.random.categorical(key, jnp.log(weights), shape=(k,)).astype(jnp.int32)
    # Each draw takes a block, then an item of the block, because direct Gumbel noise would need k N numbers.
    key_block, key_item = jax.random.split(key)
    blocks = jnp.pad(weights, (0, -num_items % _BLOCK)).reshape(-1, _BLOCK)
    block = jax.random.categorical(key_block, jnp.log(blocks.sum(axis=1)), shape=(k,))
    item = jax.random.categorical(key_item, jnp.log(blocks[block]), axis=1)
    return (block * _BLOCK + item).astype(jnp.int32)


REDRAWS = 16
"""The largest number of times that `independent` draws again."""


def independent_places(num_items: int, expected: int) -> int:
    """Return the places for K independent draws on average: min(N, K + 4 sqrt(K)), rounded up; see `independent`."""
    return min(num_items, math.ceil(expected + 4 * math.sqrt(expected)))


def independent(key: jax.Array, probabilities: jax.Array, num_places: int) -> tuple[jax.Array, jax.Array]:
    """Draw each item independently with its own probability, and draw again while the places do not suffice.

    This is the law of independent draws, given at most M items. Let the probabilities p sum to at most K, and M be
    `independent_places`. Then d = e^-K (e K / M)^M bounds the probability of at least M items (Chernoff): 0.018 at
    K = 1, 0.0022 at K = 10, 0.0009 at K = 100. A draw is repeated with a probability of at most d, which also bounds
    the distance of the two laws in total variation. Item i is drawn with a probability between (1 - d) p_i and p_i.
    After `REDRAWS` repetitions, with probability below 1e-27, the first M items are kept.

    Args:
        key: random key, consumed.
        probabilities: inclusion probabilities, float32 [N]; 0 for unavailable items.
        num_places: number of places M, at most N.

    Returns:
        The items, int32 [M], and the mask of the places that hold one, bool [M].
    """
    num_items = probabilities.shape[0]

    def draw(number: jax.Array | int) -> jax.Array:
        high, low = jax.random.uniform(jax.random.fold_in(key, number), (2, num_items))
        # 46 bits below one half: 23 bits would draw an item of probability 1e-9 a hundred times too often.
        return jnp.where(high < 0.5, high + 2.0**-23 * low, high) < probabilities

    def exceeds(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        number, drawn = state
        return (drawn.sum() > num_places) & (number < REDRAWS)

    def redraw(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return state[0] + 1, draw(state[0] + 1)

    drawn = draw(0)
    if num_places < num_items:
        _, drawn = lax.while_loop(exceeds, redraw, (jnp.int32(0), drawn))
    ids = jnp.nonzero(drawn, size=num_places, fill_value=0)[0].astype(jnp.int32)
    return ids, jnp.arange(num_places) < drawn.sum()


def capped_proportional(sizes: jax.Array, expected: int, rescalings: int | None = None) -> jax.Array:
    """Return the inclusion probabilities p_i = min(1, c u_i) with sum K, float32 [N].

    Among all probabilities with sum K, these minimize sum u_i^2 / p_i, the variance of the Horvitz-Thompson sum of
    vectors of length u_i under independent draws. The factor c comes from rescaling: the probabilities below one are
    scaled so that the sum is K, and capped at one. Each rescaling but the last caps at least one more item.

    Args:
        sizes: nonnegative sizes u, float32 [N]. Size 0 has probability 0; the sum is below K if fewer than K are
            positive.
        expected: sum of the probabilities, K.
        rescalings: rescalings after p_i = min(1, K u_i / sum u); if too few, the sum is below K. None: all.
    """
    total = sizes.sum()
    probabilities = jnp.minimum(1.0, expected * (sizes / jnp.where(total > 0, total, 1.0)))

    def rescale(p: jax.Array) -> jax.Array:
        capped = p >= 1
        rest = jnp.where(capped, 0.0, p).sum()
        factor = jnp.where(rest > 0, (expected - capped.sum()) / jnp.where(rest > 0, rest, 1.0), 1.0)
        return jnp.where(capped, 1.0, jnp.minimum(1.0, factor * p))

    if rescalings is not None:
        return lax.fori_loop(0, rescalings, lambda _, p: rescale(p), probabilities)

    def caps_more(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        p, capped_before = state
        return (p >= 1).sum() > capped_before

    def again(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        p, _ = state
        return rescale(p), (p >= 1).sum()

    return lax.while_loop(caps_more, again, (probabilities, jnp.zeros((), (probabilities >= 1).sum().dtype)))[0]


def draws(ids: jax.Array) -> jax.Array:
    """Return how often each place's item was drawn, int32 [K]."""
    return (ids[:, None] == ids).sum(axis=1)


def first_occurrence(ids: jax.Array) -> jax.Array:
    """Return a mask of the first occurrences of each ID, bool [K]."""
    earlier = jnp.tril(ids[:, None] == ids[None, :], k=-1)
    return ~earlier.any(axis=1)
