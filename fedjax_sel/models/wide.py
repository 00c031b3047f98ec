"""Fully-connected layers whose weights exceed a core's cache, so that memory traffic dominates their time.

Their weights are stored as [inputs, features]. For small batches their gradient is a sum of one outer product per
example instead of a matrix product. XLA fuses the sum with the SGD step, so that the gradient, as large as the weights,
is never written to memory. `benchmarks/wide.py` compares both forms for several batch sizes.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.models import products

MIN_WEIGHTS = 2**20  # 4 MB; the private cache of a core has 1 to 2 MB
FEW_EXAMPLES = 16


def is_wide(inputs: int, features: int) -> bool:
    """Return whether a layer is wide."""
    return inputs * features >= MIN_WEIGHTS


def product(x: jax.Array, kernel: jax.Array, precision: str = "float32") -> jax.Array:
    """Return a matrix product; in float32 with the gradient for small batches.

    Args:
        x: inputs [..., inputs].
        kernel: weights [inputs, features].
        precision: one of `products.PRECISIONS`.

    Returns:
        The product [..., features].
    """
    return _product(x, kernel) if precision == "float32" else _along(x, kernel, 0, precision)


def _along(x: jax.Array, kernel: jax.Array, axis: int, precision: str = "float32") -> jax.Array:
    return products.dot(x, kernel, (((x.ndim - 1,), (axis,)), ((), ())), precision)


@jax.custom_vjp
def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _along(x, kernel, 0)


def _forward(x: jax.Array, kernel: jax.Array):
    return _product(x, kernel), (x, kernel)


def _backward(kept, y):
    x, kernel = kept
    examples, outputs = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    if len(examples) <= FEW_EXAMPLES and jax.default_backend() == "cpu":
        # Keep XLA from fusing the factors' computation into the sum, which would repeat it for each weight.
        examples, outputs = lax.optimization_barrier((examples, outputs))
        outer = (inputs[:, None] * features[None, :] for inputs, features in zip(examples, outputs))
        gradient = sum(outer, jnp.zeros_like(kernel))
    else:
        gradient = _along(examples.T, outputs, 0)
    return _along(y, kernel, 1), gradient


_product.defvjp(_forward, _backward)
