"""Matrix products of models in the precision of a run (`--precision`).

By default, accelerators multiply float32 arrays in lower precision: TF32 on recent GPUs, bfloat16 on TPUs. Here they
do so only on request. Weights, updates, losses and the computations of strategies stay in float32.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

LEVELS = {"float32": lax.Precision.HIGHEST, "tf32": lax.Precision.HIGH, "bfloat16": lax.Precision.DEFAULT}
"""JAX's precision by name. `tf32` rounds factors to 10 bits; on a TPU it is three bfloat16 products, which is more."""

PRECISIONS = tuple(LEVELS)


def dot(left: jax.Array, right: jax.Array, dimensions: Any, precision: str = "float32") -> jax.Array:
    """Return `lax.dot_general` of float32 arrays.

    Args:
        left: left factor.
        right: right factor.
        dimensions: `lax.dot_general`'s dimension numbers, ((contracting axes of both), (batch axes of both)).
        precision: one of PRECISIONS.

    Returns:
        The product, float32.
    """
    left, right = narrowed(left, precision), narrowed(right, precision)
    return lax.dot_general(left, right, dimensions, precision=LEVELS[precision]).astype(jnp.float32)


def narrowed(factor: jax.Array, precision: str) -> jax.Array:
    """Convert a factor to the dtype of the product.

    For bfloat16 the product is accumulated in higher precision but returned in bfloat16. Gradients through it are then
    bfloat16 products too, as with PyTorch's autocast.
    """
    return factor.astype(jnp.bfloat16) if precision == "bfloat16" else factor
