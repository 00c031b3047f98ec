"""A model's matrix products, in the precision that a run asks for (`--precision`).

Left to themselves accelerators multiply float32 numbers in less: in TF32 on recent GPUs, in bfloat16 on TPUs. Here they
do so only where a run asks for it. Weights, their updates, losses, and all that strategies compute stay in float32.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

LEVELS = {"float32": lax.Precision.HIGHEST, "tf32": lax.Precision.HIGH, "bfloat16": lax.Precision.DEFAULT}
"""What JAX is told. `tf32`: factors of 10 bits (on a TPU three products of bfloat16 numbers instead, which is more)."""

PRECISIONS = tuple(LEVELS)


def dot(left: jax.Array, right: jax.Array, dimensions: Any, precision: str = "float32") -> jax.Array:
    """Return `lax.dot_general` of float32 arrays.

    Args:
        left: as `lax.dot_general` takes it.
        right: likewise.
        dimensions: ((contracted of left, of right), (batch of left, of right)).
        precision: one of PRECISIONS.

    Returns:
        The product, float32.
    """
    left, right = narrowed(left, precision), narrowed(right, precision)
    return lax.dot_general(left, right, dimensions, precision=LEVELS[precision]).astype(jnp.float32)


def narrowed(factor: jax.Array, precision: str) -> jax.Array:
    """Return a factor as it is multiplied.

    Numbers in bfloat16 have 8 bits and so does their product, summed up in more: then what comes back through it in the
    backward pass has 8 as well, and the gradients' products are in bfloat16 like PyTorch's under autocast.
    """
    return factor.astype(jnp.bfloat16) if precision == "bfloat16" else factor
