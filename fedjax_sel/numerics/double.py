"""Float64 computations inside a program with 32-bit types.

Code under `with precision():` uses 64-bit types; its inputs and outputs are float32. An input that needs more digits is
passed as two float32 arrays.

JAX's float64 decompositions compile in this context for CPUs and GPUs, but not for TPUs, where `numerics.kdpp` uses
Jacobi rotations. With jax 0.7, a Python number in an expression is compiled as float32; pass constants as arrays.
"""

from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp

from fedjax_sel.core.jax_versions import enable_x64


def precision() -> AbstractContextManager:
    """Return a context in which arrays may be float64, also during tracing."""
    return enable_x64(True)


def split(number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split float64 into two float32 arrays whose sum has 48 bits of precision.

    Args:
        number: float64, of any shape.

    Returns:
        The number rounded to float32, and its rounding error.
    """
    rounded = number.astype(jnp.float32)
    return rounded, (number - rounded.astype(number.dtype)).astype(jnp.float32)


def joined(rounded: jax.Array, rest: jax.Array) -> jax.Array:
    """Return the float64 sum of the two float32 arrays of `split`; call it under `precision`."""
    return rounded.astype(jnp.float64) + rest.astype(jnp.float64)
