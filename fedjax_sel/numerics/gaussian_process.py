"""Gaussian processes on client embeddings: likelihood, posterior, fit, and greedy selection."""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_sel.numerics import decompositions, sampling

# Greedy selection of clients under a Gaussian with covariance X^T X + noise^2 I, without forming the covariance.
#
# Given the clients picked so far, the covariance of the others is X^T P X + noise^2 I with P [d, d], so a pick costs
# O(N d). The result equals conditioning with `posterior`.

_dot = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

_SMALLEST_VARIANCE = 1e-12
_ROUNDING = 16 * 2.0**-24  # relative rounding of a score: processors round the sums of equal clients differently
_NEGLIGIBLE_VARIANCE = 1e-10  # clients with a smaller variance are fully determined, so they are picked last


class _Pool(NamedTuple):
    """The Gaussian conditioned on the picks so far; Sigma = X^T P X + noise^2 I among those not picked."""

    shrinkage: jax.Array  # P, the embedding space's covariance, [d, d]
    along: jax.Array  # (P q)^T x_k with q the sum of p_i x_i over unpicked clients, [N]
    variance: jax.Array  # v = diag Sigma, [N]
    taken: jax.Array  # bool [N]


def select_greedily(
    embeddings: jax.Array,
    importance: jax.Array,
    scale: jax.Array,
    num_selected: int,
    noise: float | jax.Array,
    key: jax.Array | None = None,
    available: jax.Array | None = None,
) -> jax.Array:
    """Select clients greedily, each conditioned on the previous picks (Tang et al., FedCor, Alg. 1).

    A pick is the client k with the largest predicted decrease of the weighted loss, scale_k c_k / sqrt(v_k) with
    c_k = sum_i p_i Sigma_ik and v_k = Sigma_kk (Eq. 12 and 13). Sigma is then conditioned on k. The time is O(K N d),
    and the memory besides X is O(N). Clients with negligible variance come after the others.

    Args:
        embeddings: X, [d, N].
        importance: client weights p, [N].
        scale: annealing factors alpha, [N]; a common factor has no effect.
        num_selected: K, at most N.
        noise: standard deviation of the noise.
        key: random key for ties (scores equal up to rounding); None: the lowest index wins.
        available: availability, bool [N]; None: all. Unavailable clients come last, but remain in the Gaussian.

    Returns:
        Client indices, int32 [K], in order of selection.
    """
    embeddings, importance, scale = jnp.asarray(embeddings), jnp.asarray(importance), jnp.asarray(scale)
    num_clients = embeddings.shape[1]
    chex.assert_shape([importance, scale], (num_clients,))
    places = jnp.arange(num_clients, dtype=jnp.uint32)
    order = places if key is None else sampling.random_words(key, num_clients)[0]
    reachable = jnp.ones((num_clients,), bool) if available is None else available

    def pick(pool: _Pool, _):
        scores = _scores(pool, importance, scale, noise)
        tier = jnp.where(pool.taken, 0, jnp.where(reachable, jnp.where(pool.variance >= _NEGLIGIBLE_VARIANCE, 3, 2), 1))
        allowed = tier == tier.max()
        scores = jnp.where(allowed & ~jnp.isnan(scores), scores, -jnp.inf)
        largest = scores.max()
        best = allowed & (scores >= largest - _ROUNDING * jnp.abs(largest))
        client = jnp.argmin(jnp.where(best, order, sampling.LAST)).astype(jnp.int32)
        return _condition(pool, embeddings, importance, noise, client), client

    _, ids = lax.scan(pick, _prior(embeddings, importance, noise), length=num_selected)
    return ids


def posterior_gains(
    embeddings: jax.Array, importance: jax.Array, scale: jax.Array, ids: jax.Array, noise: float | jax.Array
) -> jax.Array:
    """Return each pick's predicted gain g^{t,j}(k_j) = alpha_k sum_i p_i sigma_i r_ik, [K], given the previous picks.

    The sum of the gains is the one-round advantage A^t (Tang et al., FedCor, supplement, Eq. 51-57).

    Args:
        embeddings: X, [d, N].
        importance: client weights p, [N].
        scale: annealing factors alpha, [N].
        ids: distinct clients in order of selection, int32 [K].
        noise: standard deviation of the noise.
    """
    embeddings, importance, scale = jnp.asarray(embeddings), jnp.asarray(importance), jnp.asarray(scale)
    chex.assert_shape([importance, scale], embeddings.shape[1:])

    def pick(pool: _Pool, client):
        gain = _scores(pool, importance, scale, noise)[client]
        return _condition(pool, embeddings, importance, noise, client), gain

    return lax.scan(pick, _prior(embeddings, importance, noise), ids)[1]


def _prior(embeddings: jax.Array, importance: jax.Array, noise: float | jax.Array) -> _Pool:
    dimension, num_clients = embeddings.shape
    return _Pool(
        jnp.eye(dimension, dtype=embeddings.dtype),
        _dot(_dot(embeddings, importance), embeddings),
        _squares(embeddings) + noise**2,
        jnp.zeros((num_clients,), bool),
    )


def _squares(embeddings: jax.Array) -> jax.Array:
    """Return |x_k|^2, [N]. The scan over rows is much faster than XLA's column sum for many clients on a CPU."""
    zero = jnp.zeros(embeddings.shape[1], embeddings.dtype)
    return lax.scan(lambda total, row: (total + row**2, None), zero, embeddings)[0]


def _scores(pool: _Pool, importance, scale, noise) -> jax.Array:
    """Return alpha_k c_k / sqrt(v_k), [N].

    By the Cauchy-Schwarz inequality |c_k| / sqrt(v_k) is bounded, so a small v_k is harmless.
    """
    weighted = pool.along + noise**2 * importance
    return scale * weighted * lax.rsqrt(jnp.maximum(pool.variance, _SMALLEST_VARIANCE))


def _condition(pool: _Pool, embeddings, importance, noise, client) -> _Pool:
    embedding = embeddings[:, client]
    column = _dot(pool.shrinkage, embedding)  # u = P x_k
    # Rounding must not reduce a variance below noise^2.
    variance = jnp.maximum(jnp.maximum(_dot(embedding, column), 0.0) + noise**2, _SMALLEST_VARIANCE)
    least = jnp.maximum(noise**2, _SMALLEST_VARIANCE)
    shrinkage = pool.shrinkage - column[:, None] * (column / variance)
    # P' q' = (P - u u^T / s) (q - p_k x_k) = P q - u (p_k + (u^T q - p_k u^T x_k) / s), where u^T q = x_k^T P q.
    weight = importance[client]
    factor = weight + (pool.along[client] - weight * _dot(embedding, column)) / variance
    covariance = _dot(column, embeddings)  # the only pass over X, which dominates the cost for many clients
    along = pool.along - factor * covariance
    variances = jnp.maximum(pool.variance - covariance**2 / variance, least)
    return _Pool(shrinkage, along, variances, pool.taken.at[client].set(True))


def optimal_embeddings(second_moment: jax.Array, dimension: int, noise: float | jax.Array) -> jax.Array:
    """Return X [d, N] with rows sqrt(max(lambda_i - noise^2, 0)) u_i, largest first (Tipping and Bishop 1999, Eq. 7).

    Args:
        second_moment: weighted second moment S = sum_s g_s r_s r_s^T / sum_s g_s, [N, N]; eigenpairs lambda_i, u_i.
        dimension: embedding dimension d; rows beyond N are zero.
        noise: standard deviation of the noise.
    """
    eigenvalues, eigenvectors = decompositions.eigh(second_moment)
    count = min(dimension, second_moment.shape[0])
    leading, vectors = eigenvalues[::-1][:count], eigenvectors[:, ::-1][:, :count]
    rows = jnp.sqrt(jnp.maximum(leading - noise**2, 0.0))[:, None] * vectors.T
    return jnp.pad(rows, ((0, dimension - count), (0, 0)))


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
    chex.assert_shape(covariance, 2 * mean.shape)
    column = covariance[:, index]
    variance = jnp.maximum(column[index], _SMALLEST_VARIANCE)
    mean = mean + column * ((value - mean[index]) / variance)
    return mean, covariance - column[:, None] * column / variance


def log_likelihood_gradient(
    embeddings: jax.Array, residuals: jax.Array, weights: jax.Array, noise: float | jax.Array
) -> jax.Array:
    """Return the gradient [d, N] of the log-likelihood sum_s g_s log N(r_s; 0, Sigma) with respect to X.

    It is X (Sigma^-1 A Sigma^-1 - W Sigma^-1) with A = sum g_s r_s r_s^T and W = sum g_s. Arguments as for
    `fit_embeddings`.
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
    """Fit the embeddings X, [d, N], by Adam on the negative log-likelihood, with fresh moments.

    If all weights are zero, or the result is not finite, the embeddings are returned unchanged.

    Args:
        embeddings: initial X, [d, N].
        residuals: loss changes minus their mean, [S, N].
        weights: sample weights g_s, [S].
        noise: standard deviation of the noise.
        steps: number of Adam steps; may be traced. The largest count of a batch sets the time.
        learning_rate: Adam's learning rate.
    """
    embeddings, residuals, weights = jnp.asarray(embeddings), jnp.asarray(residuals), jnp.asarray(weights)
    chex.assert_shape(residuals, weights.shape + embeddings.shape[1:])
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
