"""Weights that are stepped in place.

A step may write over the weights only when nothing reads them any more. XLA decides that on a CPU before it orders the
operations, and where the new weights of a layer do not depend on the gradient that went through it to the layer below,
it copies the old ones, in every step: of pfl-research's CNN a dense layer of 6.4 MB. So the learning rate of a step is
made to depend on the whole gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def after(value: jax.Array, tree: Any) -> jax.Array:
    """Return a float32 as it is, to the bit, but on CPUs known only when all leaves of a tree are.

    Args:
        value: a float32 scalar.
        tree: of floats.

    Returns:
        The value.
    """
    if jax.default_backend() != "cpu":
        return value

    def nothing(leaf: jax.Array) -> jax.Array:
        """Return zero, which no compiler sees: one bit of a number, moved out of its word."""
        first = lax.bitcast_convert_type(leaf.reshape(-1)[0].astype(jnp.float32), jnp.uint32)
        return (first >> 31) >> 1

    bits = lax.bitcast_convert_type(jnp.asarray(value, jnp.float32), jnp.uint32)  # another width has other words
    for leaf in jax.tree.leaves(tree):
        bits = bits | nothing(leaf) if leaf.size else bits
    return lax.bitcast_convert_type(bits, jnp.float32)
