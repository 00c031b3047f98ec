"""A Gaussian process over N clients' loss changes, with a covariance from d-dimensional embeddings of the clients.

    Sigma = X^T X + noise^2 I,   X [d, N]

Only `covariance` and `posterior` form an N x N matrix. The other functions use M = noise^2 I + X X^T, [d, d], and the
matrix inversion lemma:

    log det Sigma = (N - d) log noise^2 + log det M
    Sigma^-1 r    = (r - X^T M^-1 X r) / noise^2
    X Sigma^-1    = M^-1 X

Matrix products use the highest precision, because Sigma is nearly singular.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_sel.numerics import decompositions
from fedjax_sel.numerics.greedy_posterior import posterior_gains, select_greedily

__all__ = [
    "covariance", "fit_embeddings", "log_likelihood", "log_likelihood_gradient", "posterior", "posterior_gains",
    "select_greedily",
]  # fmt: skip

_dot = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

_SMALLEST_VARIANCE = 1e-12


def covariance(embeddings: jax.Array, noise: float | jax.Array) -> jax.Array:
    """Return Sigma = X^T X + noise^2 I.

    Args:
        embeddings: X, [d, N].
        noise: standard deviation of the noise.

    Returns:
        Sigma, [N, N].
    """
    embeddings = jnp.asarray(embeddings)
    return _dot(embeddings.T, embeddings) + noise**2 * jnp.eye(embeddings.shape[1], dtype=embeddings.dtype)


def posterior(
    mean: jax.Array, covariance: jax.Array, index: int | jax.Array, value: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Condition the Gaussian on the loss change of one client (Tang et al., FedCor, Eq. 10 and 11).

    Args:
        mean: prior mean, [N].
        covariance: prior covariance, [N, N].
        index: index of the client.
        value: loss change of the client.

    Returns:
        The posterior mean, [N], and covariance, [N, N]; the client's row and column are zero.
    """
    column = covariance[:, index]
    variance = jnp.maximum(column[index], _SMALLEST_VARIANCE)
    mean = mean + column * ((value - mean[index]) / variance)
    return mean, covariance - column[:, None] * column / variance


def log_likelihood(
    embeddings: jax.Array, residuals: jax.Array, weights: jax.Array, noise: float | jax.Array
) -> jax.Array:
    """Return the weighted log-likelihood of loss changes, sum_s g_s log N(r_s; 0, Sigma), in O(N d^2 + S N d).

    In float32 a quadratic form has an error of about 6e-8 |r|^2 / noise^2; use float64 to compare likelihoods.

    Args:
        embeddings: X, [d, N].
        residuals: loss changes minus their mean, [S, N].
        weights: sample weights g_s, [S].
        noise: standard deviation of the noise.

    Returns:
        Log-likelihood, scalar.
    """
    embeddings, residuals = jnp.asarray(embeddings), jnp.asarray(residuals)
    dimension, num_clients = embeddings.shape
    inverse = _inverse_factor(embeddings, noise)
    explained = jnp.sum(_dot(inverse, _dot(embeddings, residuals.T)) ** 2, axis=0)  # |L^-1 X r_s|^2, [S]
    quadratic = (jnp.sum(residuals**2, axis=1) - explained) / noise**2
    log_determinant = 2 * (num_clients - dimension) * jnp.log(noise) - 2 * jnp.sum(jnp.log(jnp.diagonal(inverse)))
    return -0.5 * jnp.sum(weights * (quadratic + log_determinant + num_clients * jnp.log(2 * jnp.pi)))


def log_likelihood_gradient(
    embeddings: jax.Array, residuals: jax.Array, weights: jax.Array, noise: float | jax.Array
) -> jax.Array:
    """Return `log_likelihood`'s gradient, X (Sigma^-1 A Sigma^-1 - W Sigma^-1), A = sum g_s r_s r_s^T, W = sum g_s.

    Args:
        embeddings: X, [d, N].
        residuals: loss changes minus their mean, [S, N].
        weights: sample weights g_s, [S].
        noise: standard deviation of the noise.

    Returns:
        Gradient with respect to X, [d, N].
    """
    inverse = _inverse_factor(embeddings, noise)
    smoother = _dot(inverse.T, _dot(inverse, embeddings))  # M^-1 X = X Sigma^-1, [d, N]
    scores = _dot(smoother, residuals.T)  # X Sigma^-1 r_s as columns, [d, S]
    whitened = (residuals - _dot(scores.T, embeddings)) / noise**2  # Sigma^-1 r_s as rows, [S, N]
    return _dot(scores * weights, whitened) - weights.sum() * smoother


def fit_embeddings(
    embeddings: jax.Array,
    residuals: jax.Array,
    weights: jax.Array,
    noise: float | jax.Array,
    steps: int | jax.Array,
    learning_rate: float | jax.Array,
) -> jax.Array:
    """Fit the embeddings by Adam on the negative log-likelihood, with fresh moments.

    If all weights are zero, or the result is not finite, the embeddings are returned unchanged.

    Args:
        embeddings: initial X, [d, N].
        residuals: loss changes minus their mean, [S, N].
        weights: sample weights g_s, [S].
        noise: standard deviation of the noise.
        steps: number of Adam steps; may be traced. With a batched count, the whole batch takes the largest count.
        learning_rate: Adam's learning rate.

    Returns:
        X, [d, N].
    """
    embeddings, residuals, weights = jnp.asarray(embeddings), jnp.asarray(residuals), jnp.asarray(weights)
    optimizer = optax.adam(learning_rate, b1=0.9, b2=0.999, eps=1e-8)

    def step(_, carry):
        current, moments = carry
        gradient = -log_likelihood_gradient(current, residuals, weights, noise)
        change, moments = optimizer.update(gradient, moments)
        return optax.apply_updates(current, change), moments

    fitted, _ = lax.fori_loop(0, steps, step, (embeddings, optimizer.init(embeddings)))
    return jnp.where(jnp.isfinite(fitted).all(), fitted, embeddings)


def _inverse_factor(embeddings: jax.Array, noise: float | jax.Array) -> jax.Array:
    """Return L^-1 of M = L L^T, [d, d]; if rounding made M indefinite, its diagonal is increased.

    A triangular solve with N right-hand sides costs more on a CPU and is not more accurate.
    """
    gram = _dot(embeddings, embeddings.T)
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    exact = gram + noise**2 * identity
    slack = 4 * jnp.finfo(gram.dtype).eps * jnp.trace(exact)
    factor, other = decompositions.cholesky(exact), decompositions.cholesky(exact + slack * identity)
    return decompositions.inverse_of_lower(jnp.where(jnp.isfinite(factor).all(), factor, other))
