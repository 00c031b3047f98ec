"""Decompositions of matrices, of which a CPU does one after another.

LAPACK's decompose a batch on the threads that also run the program, and wait for them. Where each core is a device, all
threads may be waiting so: jaxlib 0.10.2 then stands still for ever, from matrices of about 100 x 100 on. (0.11.2 no
longer does, by its source.) So under `vmap` the matrices take turns on a CPU; on other devices they stay a batch.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def _in_turn_on_cpus(function: Callable[..., Any]) -> Callable[..., Any]:
    in_turn = jax.custom_batching.sequential_vmap(function)

    @wraps(function)
    def chosen(*arguments: jax.Array) -> Any:
        return (in_turn if jax.default_backend() == "cpu" else function)(*arguments)

    return chosen


@jax.custom_jvp
@_in_turn_on_cpus
def cholesky(matrix: jax.Array) -> jax.Array:
    """Return the lower factor of one symmetric matrix, [N, N]; NaN if it is not positive definite."""
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


@cholesky.defjvp
def _(primals, tangents):
    """Return L and its change L F(L^-1 dM L^-T), where F keeps the lower triangle and half the diagonal.

    Murray 2016, Eq. 8.
    """
    factor = cholesky(*primals)
    inverse = inverse_of_lower(factor)
    whitened = inverse @ tangents[0] @ inverse.T
    return factor, factor @ (jnp.tril(whitened) - jnp.diag(jnp.diag(whitened)) / 2)


@jax.custom_jvp
@_in_turn_on_cpus
def inverse_of_lower(factor: jax.Array) -> jax.Array:
    """Return the inverse of one lower triangular matrix, [N, N]."""
    identity = jnp.eye(factor.shape[0], dtype=factor.dtype)
    return lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)


@inverse_of_lower.defjvp
def _(primals, tangents):
    inverse = inverse_of_lower(*primals)
    return inverse, -inverse @ jnp.tril(tangents[0]) @ inverse


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
