"""The first few of very many items, without sorting all of them.

Items are compared by words, uint32 numbers: by the first word, where that is equal by the second, and so on, last by
their index. The word of the item in a given place is found two bits at a time, by counting how many words lie below
three bounds: sixteen sweeps whose cost does not depend on the data, nor on which place it is, which may be traced.

Shapes: N items.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LAST = np.uint32(2**32 - 1)
"""A word that no number of `ascending` or `descending` has: for items that come after all others."""


def ascending(values: jax.Array) -> jax.Array:
    """Return words in the order of floats; 0 and -0 are equal, as are subnormal numbers, NaN comes after infinity.

    Args:
        values: float32 [N].

    Returns:
        uint32 [N].
    """
    values = jnp.where(jnp.isnan(values), jnp.nan, values)  # one of many NaN, without a sign
    bits = lax.bitcast_convert_type(jnp.where(values == 0, 0.0, values).astype(jnp.float32), jnp.uint32)
    sign = jnp.uint32(1 << 31)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def descending(values: jax.Array) -> jax.Array:
    """Return words in the reverse order of floats: the largest comes first, NaN before it.

    Args:
        values: float32 [N].

    Returns:
        uint32 [N].
    """
    return ~ascending(values)


def word_at(words: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return the word in a place of the sorted list.

    Args:
        words: uint32 [N].
        place: from 0; int32 scalar. Below 0: as 0. From N on: `LAST`.

    Returns:
        uint32 scalar.
    """
    needed = jnp.maximum(jnp.asarray(place, jnp.int32) + 1, 1)

    def two_bits(step: jax.Array, found: jax.Array) -> jax.Array:
        shift = (30 - 2 * jnp.asarray(step, jnp.int32)).astype(jnp.uint32)
        bounds = [found | (jnp.uint32(digit) << shift) for digit in (1, 2, 3)]
        below = tuple((words < bound).astype(jnp.int32) for bound in bounds)
        counts = lax.reduce(below, (jnp.int32(0),) * 3, lambda one, two: tuple(a + b for a, b in zip(one, two)), (0,))
        digit = sum((count < needed).astype(jnp.uint32) for count in counts)
        return found | (digit << shift)

    return lax.fori_loop(0, 16, two_bits, jnp.uint32(0))


def value_at(values: jax.Array, place: jax.Array | int) -> jax.Array:
    """Return the number in a place of the ascending list: `jnp.sort(values)[place]`.

    Args:
        values: float32 [N].
        place: from 0 to N - 1; int32 scalar.

    Returns:
        float32 scalar.
    """
    word = word_at(ascending(values), place)
    sign = jnp.uint32(1 << 31)
    return lax.bitcast_convert_type(jnp.where(word >= sign, word ^ sign, ~word), jnp.float32)


def among_first(words: Sequence[jax.Array], count: jax.Array | int) -> jax.Array:
    """Return which items are among the first.

    Args:
        words: uint32 [N] each, the first the most significant; the last tie-break is the index.
        count: how many, int32 scalar; more than N are N.

    Returns:
        bool [N].
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
        words: uint32 [N] each, the first the most significant; the last tie-break is the index.
        k: how many, at most N.

    Returns:
        int32 [k].
    """
    ids = jnp.nonzero(among_first(words, k), size=k, fill_value=0)[0]
    return ids[jnp.lexsort([word[ids] for word in reversed(words)])].astype(jnp.int32)
