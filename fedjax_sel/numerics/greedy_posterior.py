"""Greedy choice of clients under a Gaussian with covariance X^T X + noise^2 I, without ever forming it.

Given the clients picked so far, the covariance of the others is X^T P X + noise^2 I with P [d, d], so that a pick costs
O(N d). Read it as `gaussian_process.select_greedily`; it equals conditioning with `gaussian_process.posterior`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.numerics import sampling

_dot = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

_LAST = 0xFFFFFFFF  # in any order
_SMALLEST_VARIANCE = 1e-12
_ROUNDING = 16 * 2.0**-24  # of a score, relative: processors round sums of equal clients differently
_KNOWN = 1e-10  # a client whose variance is below is as good as known: it is picked when nobody else is left


class _Pool(NamedTuple):
    """The Gaussian conditioned on the picks so far; Sigma = X^T P X + noise^2 I among those not picked."""

    shrinkage: jax.Array  # P, the embedding space's covariance, [d, d]
    along: jax.Array  # (P q)^T x_k with q = sum of p_i x_i over those not picked, [N]
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
    """Pick clients one by one, each the best guess given those before it (Tang et al., FedCor, Alg. 1).

    A pick is the client k with the largest predicted decrease of the weighted loss, scale_k c_k / sqrt(v_k) with
    c_k = sum_i p_i Sigma_ik and v_k = Sigma_kk; Sigma is then conditioned on it. O(K N d) time, O(N) memory beside X.
    A client whose variance is gone comes after those of whom something is unknown.

    Args:
        embeddings: X, [d, N].
        importance: p, [N].
        scale: alpha, [N]; a common factor changes nothing.
        num_selected: K, at most N.
        noise: a standard deviation.
        key: breaks ties (equal up to rounding) at random; without it the lowest index wins.
        available: bool [N]; the others come last. They are part of the Gaussian all the same.

    Returns:
        int32 [K] in picking order.
    """
    embeddings, importance, scale = jnp.asarray(embeddings), jnp.asarray(importance), jnp.asarray(scale)
    num_clients = embeddings.shape[1]
    places = jnp.arange(num_clients, dtype=jnp.uint32)
    order = places if key is None else sampling.random_words(key, num_clients)[0]
    reachable = jnp.ones((num_clients,), bool) if available is None else available

    def pick(pool: _Pool, _):
        scores = _scores(pool, importance, scale, noise)
        tier = jnp.where(pool.taken, 0, jnp.where(reachable, jnp.where(pool.variance >= _KNOWN, 3, 2), 1))
        allowed = tier == tier.max()
        scores = jnp.where(allowed & ~jnp.isnan(scores), scores, -jnp.inf)
        largest = scores.max()
        best = allowed & (scores >= largest - _ROUNDING * jnp.abs(largest))
        client = jnp.argmin(jnp.where(best, order, jnp.uint32(_LAST))).astype(jnp.int32)
        return _condition(pool, embeddings, importance, noise, client), client

    _, ids = lax.scan(pick, _prior(embeddings, importance, noise), length=num_selected)
    return ids


def posterior_gains(
    embeddings: jax.Array, importance: jax.Array, scale: jax.Array, ids: jax.Array, noise: float | jax.Array
) -> jax.Array:
    """Return what each pick promises: g^{t,j}(k_j) = alpha_k sum_i p_i sigma_i r_ik given the picks before it.

    Their sum is the one-round advantage A^t (Tang et al., FedCor, supplement, Eq. 51-57).

    Args:
        embeddings: X, [d, N].
        importance: p, [N].
        scale: alpha, [N].
        ids: distinct clients in picking order, int32 [K].
        noise: a standard deviation.

    Returns:
        [K].
    """
    embeddings, importance, scale = jnp.asarray(embeddings), jnp.asarray(importance), jnp.asarray(scale)

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
    """Return |x_k|^2, row by row: as a sum over columns XLA takes much longer for many clients on a CPU."""
    zero = jnp.zeros(embeddings.shape[1], embeddings.dtype)
    return lax.scan(lambda total, row: (total + row**2, None), zero, embeddings)[0]


def _scores(pool: _Pool, importance, scale, noise) -> jax.Array:
    """Return alpha_k c_k / sqrt(v_k), [N].

    By Cauchy and Schwarz |c_k| / sqrt(v_k) is bounded, so a small v_k is harmless.
    """
    weighted = pool.along + noise**2 * importance
    return scale * weighted * lax.rsqrt(jnp.maximum(pool.variance, _SMALLEST_VARIANCE))


def _condition(pool: _Pool, embeddings, importance, noise, client) -> _Pool:
    embedding = embeddings[:, client]
    column = _dot(pool.shrinkage, embedding)  # u = P x_k
    # Rounding must not take from anybody's variance what is noise.
    variance = jnp.maximum(jnp.maximum(_dot(embedding, column), 0.0) + noise**2, _SMALLEST_VARIANCE)
    least = jnp.maximum(noise**2, _SMALLEST_VARIANCE)
    shrinkage = pool.shrinkage - column[:, None] * (column / variance)
    # P' q' = (P - u u^T / s) (q - p_k x_k) = P q - u (p_k + (u^T q - p_k u^T x_k) / s), where u^T q = x_k^T P q.
    weight = importance[client]
    factor = weight + (pool.along[client] - weight * _dot(embedding, column)) / variance
    covariance = _dot(column, embeddings)  # the one pass over X: of many clients, reading it is what a pick costs
    return _Pool(
        shrinkage,
        pool.along - factor * covariance,
        jnp.maximum(pool.variance - covariance**2 / variance, least),
        pool.taken.at[client].set(True),
    )
