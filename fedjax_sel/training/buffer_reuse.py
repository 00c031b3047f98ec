"""In-place weight updates on CPUs.

A step can overwrite a layer's weights only after their last read. On CPUs, XLA assigns buffers before it orders the
operations. If a layer's new weights do not depend on the gradient that passed through it to the layer below, XLA copies
the old weights in each step (a dense layer of 6.4 MB in pfl-research's CNN). The learning rate is therefore made to
depend on the whole gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def after(value: jax.Array, tree: Any) -> jax.Array:
    """Return a value unchanged, with a data dependency on all leaves of a tree on CPUs.

    Args:
        value: float32 scalar.
        tree: pytree of floats.

    Returns:
        The same value, bit for bit.
    """
    if jax.default_backend() != "cpu":
        return value

    def opaque_zero(leaf: jax.Array) -> jax.Array:
        """Return a zero that XLA does not simplify: one bit of a number, shifted out of its word."""
        first = lax.bitcast_convert_type(leaf.reshape(-1)[0].astype(jnp.float32), jnp.uint32)
        return (first >> 31) >> 1

    bits = lax.bitcast_convert_type(jnp.asarray(value, jnp.float32), jnp.uint32)  # bit patterns depend on the width
    for leaf in jax.tree.leaves(tree):
        bits = bits | opaque_zero(leaf) if leaf.size else bits
    return lax.bitcast_convert_type(bits, jnp.float32)
