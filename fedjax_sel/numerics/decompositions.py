"""Decompositions of matrices, and float64 inside a program with 32-bit types."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.core.jax_settings import enable_x64


# Float64 computations inside a program with 32-bit types.
#
# Code under `with precision():` uses 64-bit types; its inputs and outputs are float32. An input that needs more digits
# is passed as two float32 arrays.
#
# JAX's float64 decompositions compile in this context for CPUs and GPUs, but not for TPUs, where `numerics.kdpp` uses
# float32. With jax 0.7, a Python number in an expression is compiled as float32; pass constants as arrays.
def precision() -> AbstractContextManager:
    """Return a context in which arrays may be float64, also during tracing."""
    return enable_x64(True)


def split(number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split float64 into its rounding to float32 and the rounding error; their sum has 48 bits of precision."""
    rounded = number.astype(jnp.float32)
    return rounded, (number - rounded.astype(number.dtype)).astype(jnp.float32)


def joined(rounded: jax.Array, rest: jax.Array) -> jax.Array:
    """Return the float64 sum of the two float32 arrays of `split`; call it under `precision`."""
    return rounded.astype(jnp.float64) + rest.astype(jnp.float64)


def _in_turn_on_cpus(function: Callable[..., Any]) -> Callable[..., Any]:
    in_turn = jax.custom_batching.sequential_vmap(function)

    @wraps(function)
    def chosen(*arguments: jax.Array) -> Any:
        return (in_turn if jax.default_backend() == "cpu" else function)(*arguments)

    return chosen


@_in_turn_on_cpus
def cholesky(matrix: jax.Array) -> jax.Array:
    """Return the lower factor of one symmetric matrix, [N, N]; NaN if it is not positive definite."""
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


@_in_turn_on_cpus
def inverse_of_lower(factor: jax.Array) -> jax.Array:
    """Return the inverse of one lower triangular matrix, [N, N]."""
    identity = jnp.eye(factor.shape[0], dtype=factor.dtype)
    return lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)


@_in_turn_on_cpus
def eigh(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return one symmetric matrix's eigenvalues, [N], ascending, and its eigenvectors as columns, [N, N]."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@_in_turn_on_cpus
def right_singular_vectors(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return one matrix's [M, N] singular values, descending, and right singular vectors as rows, [min(M, N), N]."""
    _, values, vectors = jnp.linalg.svd(matrix, full_matrices=False)
    return values, vectors


@_in_turn_on_cpus
def triangular_factor(matrix: jax.Array) -> jax.Array:
    """Return the upper triangular factor R of one square matrix Q R, [N, N], with Q orthogonal."""
    return jnp.linalg.qr(matrix, mode="r")
