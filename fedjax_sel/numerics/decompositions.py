"""Eigenvalues and singular values in float64 or compensated float32, on every platform."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.core.jax_settings import enable_x64


# Float64 computations inside a program with 32-bit types.
#
# Code under `with enable_x64(True):` uses 64-bit types; its inputs and outputs are float32. An input that needs more
# digits is passed as two float32 arrays.
#
# JAX's float64 decompositions compile in this context for CPUs and GPUs, but not for TPUs, where `numerics.kdpp` uses
# Jacobi rotations. With jax 0.7, a Python number in an expression is compiled as float32; pass constants as arrays.
def split(number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split float64 into its rounding to float32 and the rounding error; their sum has 48 bits of precision."""
    rounded = number.astype(jnp.float32)
    return rounded, (number - rounded.astype(number.dtype)).astype(jnp.float32)


def joined(rounded: jax.Array, rest: jax.Array) -> jax.Array:
    """Return the float64 sum of the two float32 arrays of `split`; call it under `enable_x64`."""
    return rounded.astype(jnp.float64) + rest.astype(jnp.float64)


def _in_turn_on_cpus(function: Callable[..., Any]) -> Callable[..., Any]:
    @jax.custom_batching.sequential_vmap
    def in_turn(*arguments: jax.Array) -> Any:
        with enable_x64(arguments[0].dtype == jnp.float64):  # traced again by a `vmap` of a scan
            return function(*arguments)

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
    """Return the upper triangular factor R, [min(M, N), N], of one matrix Q R, [M, N], with Q orthogonal."""
    return jnp.linalg.qr(matrix, mode="r")


_RESOLUTION = 2.0**-46  # a TPU's float64 has 48 bits (two float32), minus the rounding of many rotations
_MOST_SWEEPS = 40  # about ten suffice; near-duplicate columns need a few more


def right_singular_vectors_by_rotations(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return one matrix's [M, N] singular values, ascending, [N], and right singular vectors as rows, [N, N].

    One-sided Jacobi (Hestenes 1958) rotates pairs of columns until all are orthogonal. Each step rotates half of the
    columns against the other half, in the order of a round-robin tournament (Brent and Luk 1985). It needs only
    additions, multiplications and roots, which every platform has in float64. JAX's own decompositions for TPUs compile
    only if 64-bit types are enabled in the whole program. Zero columns are never rotated.

    Singular values below N * 2^-46 times the largest are returned as zero.
    """
    num_rows, num_columns = matrix.shape
    dtype, pairs = matrix.dtype, max(2, -(-num_columns // 2))
    resolution = num_columns * max(_RESOLUTION, float(jnp.finfo(dtype).eps))
    tolerance, one, two = (jnp.asarray(number, dtype) for number in (resolution, 1, 2))
    columns = jnp.concatenate([matrix.T, jnp.eye(num_columns, dtype=dtype)], axis=1)  # columns and their rotations
    columns = jnp.pad(columns, ((0, 2 * pairs - num_columns), (0, 0)))
    smallest = tolerance * jnp.sqrt(jnp.sum(matrix**2))

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum(x[:, :num_rows] * y[:, :num_rows], axis=1)

    def rotate(carry, _):
        x, y, done = carry
        across, difference = product(x, y), product(y, y) - product(x, x)
        lengths = jnp.sqrt(product(x, x)), jnp.sqrt(product(y, y))
        apart = jnp.maximum(*lengths) * jnp.maximum(jnp.minimum(*lengths), smallest)
        turns = jnp.abs(across) > tolerance * apart
        twice = across + across
        larger = jnp.where(turns, jnp.maximum(jnp.abs(difference), jnp.abs(twice)), one)
        ratio = jnp.minimum(jnp.abs(difference), jnp.abs(twice)) / larger
        tangent = twice / (jnp.abs(difference) + larger * jnp.sqrt(one + ratio**2))
        tangent = jnp.where(turns, jnp.where(difference < 0, -tangent, tangent), jnp.zeros_like(tangent))
        secant_squared = one + tangent**2
        cosine = one / jnp.sqrt(secant_squared)
        # A Newton step, because some platforms compute roots with float32 precision.
        cosine = cosine + cosine * (one - secant_squared * cosine**2) / two
        sine = tangent * cosine
        x, y = cosine[:, None] * x - sine[:, None] * y, sine[:, None] * x + cosine[:, None] * y
        x, y = jnp.concatenate([x[:1], y[:1], x[1:-1]]), jnp.concatenate([y[1:], x[-1:]])
        return (x, y, done & ~turns.any()), None

    def sweep(carry):
        x, y, _, count = carry
        (x, y, done), _ = lax.scan(rotate, (x, y, jnp.array(True)), length=2 * pairs - 1)  # each pair once
        return x, y, done, count + jnp.ones((), jnp.int32)

    start = (columns[:pairs], columns[pairs:], jnp.array(False), jnp.zeros((), jnp.int32))
    x, y, *_ = lax.while_loop(lambda carry: ~carry[2] & (carry[3] < _MOST_SWEEPS), sweep, start)
    columns = jnp.concatenate([x, y])[:num_columns]
    values = jnp.sqrt(product(columns, columns))
    values = jnp.where(values <= tolerance * values.max(), jnp.zeros_like(values), values)
    _, order = lax.sort((values.astype(jnp.float32), lax.iota(jnp.int32, num_columns)), num_keys=1)
    return values[order], columns[order, num_rows:]
