"""Partial sorting: the first k of many items, without sorting all of them.

Items are compared lexicographically by uint32 words, then by index. The word at a given rank is found two bits at a
time, by counting the words below three bounds. This takes sixteen passes for any data and rank. The rank may
be traced.

Shapes: N items.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LAST = np.uint32(2**32 - 1)
"""A word that `ascending` and `descending` never return; items with this word come last."""


def ascending(values: jax.Array) -> jax.Array:
    """Return words that sort like the floats. 0, -0 and subnormal numbers are equal; NaN comes after infinity.

    Args:
        values: float32 [N].

    Returns:
        uint32 [N].
    """
    values = jnp.where(jnp.isnan(values), jnp.nan, values)  # canonical NaN, without a sign
    bits = lax.bitcast_convert_type(jnp.where(values == 0, 0.0, values).astype(jnp.float32), jnp.uint32)
    sign = jnp.uint32(1 << 31)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def descending(values: jax.Array) -> jax.Array:
    """Return words that sort in descending order of the floats, with NaN first.

    Args:
        values: float32 [N].

    Returns:
        uint32 [N].
    """
    return ~ascending(values)


def word_at(words: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return element `place` of the sorted words.

    Args:
        words: uint32 [N].
        place: index from 0, int32 scalar. A negative index acts as 0; from N on the result is `LAST`.

    Returns:
        uint32 scalar.
    """
    needed = jnp.maximum(jnp.asarray(place, jnp.int32) + 1, 1)

    def two_bits(step: jax.Array, prefix: jax.Array) -> jax.Array:
        shift = (30 - 2 * jnp.asarray(step, jnp.int32)).astype(jnp.uint32)
        bounds = [prefix | (jnp.uint32(digit) << shift) for digit in (1, 2, 3)]
        below = tuple((words < bound).astype(jnp.int32) for bound in bounds)
        counts = lax.reduce(below, (jnp.int32(0),) * 3, lambda one, two: tuple(a + b for a, b in zip(one, two)), (0,))
        digit = sum((count < needed).astype(jnp.uint32) for count in counts)
        return prefix | (digit << shift)

    return lax.fori_loop(0, 16, two_bits, jnp.uint32(0))


def value_at(values: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return `jnp.sort(values)[place]`.

    Args:
        values: float32 [N].
        place: index from 0 to N - 1, int32 scalar.

    Returns:
        float32 scalar.
    """
    word = word_at(ascending(values), place)
    sign = jnp.uint32(1 << 31)
    return lax.bitcast_convert_type(jnp.where(word >= sign, word ^ sign, ~word), jnp.float32)


def among_first(words: Sequence[jax.Array], count: jax.Array | int) -> jax.Array:
    """Return a mask of the first items.

    Args:
        words: words, uint32 [N] each, the most significant first; ties are broken by index.
        count: number of items, int32 scalar; clipped to N.

    Returns:
        Mask, bool [N].
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
    """Return the first k items, in order.

    Args:
        words: words, uint32 [N] each, the most significant first; ties are broken by index.
        k: number of items, at most N.

    Returns:
        Indices, int32 [k].
    """
    ids = jnp.nonzero(among_first(words, k), size=k, fill_value=0)[0]
    return ids[jnp.lexsort([word[ids] for word in reversed(words)])].astype(jnp.int32)
