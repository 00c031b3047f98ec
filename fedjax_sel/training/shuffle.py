"""A random order of n examples, computed position by position: no sort, no table, any n.

The swap-or-not shuffle (Hoang, Morris, Rogaway, CRYPTO 2012): in every pass each position x is paired with
(word - x) mod n, and a hash of the pair decides whether the two swap. A pass is a bijection on 0..n-1 for any hash, so
each example occurs exactly once. The usual way, sorting random numbers, is slow on a CPU (see benchmarks/shuffle.py).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

PASSES = 24  # positions, and pairs of positions, are uniform to about 2^-12 (tests/training)


class Order(NamedTuple):
    """The random words of an order, [PASSES], or of one order per position, [PASSES, ...]."""

    offsets: jax.Array  # word mod n, uint32
    masks: jax.Array  # XOR mask of the hash, uint32


def order(key: jax.Array, size: jax.Array) -> Order:
    """Draw the order of n examples; it divides by n once here, since division is slow, and not per position.

    Args:
        key: consumed.
        size: n, int32 scalar, at least 1.
    """
    words = jax.random.bits(key, (PASSES, 2), jnp.uint32)
    return Order(words[:, 0] % size.astype(jnp.uint32), words[:, 1])


def position(drawn: Order, index: jax.Array, size: jax.Array) -> jax.Array:
    """Return the example at each index of the order; a bijection on 0..size-1.

    Args:
        drawn: one order for all indices, or one per index.
        index: int32 [...], from 0 to size - 1.
        size: n, int32 scalar, at least 1.

    Returns:
        Positions of examples, int32 [...].
    """
    x, n = index.astype(jnp.uint32), size.astype(jnp.uint32)
    for i in range(PASSES):
        offset = drawn.offsets[i]
        partner = jnp.where(x <= offset, offset - x, offset + n - x)
        mixed = (jnp.maximum(x, partner) ^ drawn.masks[i]) * jnp.uint32(0x9E3779B1)
        mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA77)
        mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE3D)
        x = jnp.where(mixed >> 31 == 1, partner, x)
    return x.astype(jnp.int32)
