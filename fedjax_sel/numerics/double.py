"""Float64 in the middle of a program of 32-bit types, where float32 would lose what is asked for.

What is computed `with precision():` has 64-bit types; numbers go in and come out as float32. An array that must go in
with more digits than float32 has goes in as two.

JAX's decompositions of float64 compile there for CPUs and GPUs. Those for TPUs do not: `numerics.kdpp` rotates instead.

A Python number beside an array is a float32 there in what jax 0.7 compiles: give zeros and the like as arrays.
"""

from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp

from fedjax_sel.core.jax_versions import enable_x64


def precision() -> AbstractContextManager:
    """Return a context within which arrays may be float64; also while a function is traced."""
    return enable_x64(True)


def split(number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split float64 into float32 numbers that add up to it, to 48 bits.

    Args:
        number: float64, of any shape.

    Returns:
        It, rounded to float32, and what the rounding left.
    """
    rounded = number.astype(jnp.float32)
    return rounded, (number - rounded.astype(number.dtype)).astype(jnp.float32)


def joined(rounded: jax.Array, rest: jax.Array) -> jax.Array:
    """Join the two float32 numbers of `split` to a float64 one, within `precision`."""
    return rounded.astype(jnp.float64) + rest.astype(jnp.float64)
