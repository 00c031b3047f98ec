"""Exact maximum-likelihood embeddings of loss changes: probabilistic PCA with known noise."""

import jax
import jax.numpy as jnp

from fedjax_sel.numerics import decompositions


def optimal_embeddings(second_moment: jax.Array, dimension: int, noise: float | jax.Array) -> jax.Array:
    """Return X with rows sqrt(max(lambda_i - noise^2, 0)) u_i of leading eigenpairs (Tipping and Bishop 1999, Eq. 7).

    Args:
        second_moment: weighted second moment S = sum_s g_s r_s r_s^T / sum_s g_s, [N, N].
        dimension: embedding dimension d; rows beyond N are zero.
        noise: standard deviation of the noise.

    Returns:
        X, [d, N], largest eigenvalue first.
    """
    eigenvalues, eigenvectors = decompositions.eigh(second_moment)
    count = min(dimension, second_moment.shape[0])
    leading, vectors = eigenvalues[::-1][:count], eigenvectors[:, ::-1][:, :count]
    rows = jnp.sqrt(jnp.maximum(leading - noise**2, 0.0))[:, None] * vectors.T
    return jnp.pad(rows, ((0, dimension - count), (0, 0)))
