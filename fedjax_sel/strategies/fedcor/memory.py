"""The memory of loss changes in FedGP and FedCor, and the fit of embeddings to it.

A sample is one random cohort's effect on all clients' losses. Its age counts from the round whose model the cohort
trained (`collected`); its weight in a fit is discount^age.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.numerics import gaussian_process, probabilistic_pca
from fedjax_sel.strategies.fedcor.presets import Numbers


class Samples(NamedTuple):
    """The latest H collections, newest first. A sample without usable answers is stored as not valid."""

    values: jax.Array  # loss changes, float32 [H, S, N]
    valid: jax.Array  # bool [H, S]; False before the first collection
    collected: jax.Array  # round of the collection, int32 [H]


class Moments(NamedTuple):
    """Discounted sums over all samples, for the closed form: samples r with weights g."""

    second: jax.Array  # sum g r r^T, float32 [N, N]
    first: jax.Array  # sum g r, float32 [N]
    mass: jax.Array  # sum g, float32 scalar
    collected: jax.Array  # round to which the sums are discounted, int32 scalar
    order: jax.Array  # random order of clients in the decomposition, so that its rounding is unbiased, int32 [N]


def empty(key: jax.Array, numbers: Numbers, num_clients: int) -> Samples | Moments:
    """Return an empty memory."""
    if numbers.fit == "closed-form":
        order = jax.random.permutation(key, num_clients)
        first = jnp.zeros((num_clients,))
        return Moments(jnp.zeros((num_clients, num_clients)), first, jnp.zeros(()), jnp.zeros((), jnp.int32), order)
    shape = (numbers.slots, numbers.probes)
    return Samples(jnp.zeros((*shape, num_clients)), jnp.zeros(shape, bool), jnp.zeros(shape[:1], jnp.int32))


def collect(
    memory: Samples | Moments, numbers: Numbers, changes: jax.Array, known: jax.Array, round: jax.Array
) -> Samples | Moments:
    """Return a memory with one more collection of loss changes.

    Args:
        memory: the memory so far.
        numbers: resolved preset, static.
        changes: loss changes, float32 [s, N] with s at most S.
        known: whether the collection is usable, bool scalar; otherwise it is dropped.
        round: round of the collection.
    """
    changes = jnp.where(known, changes, 0.0)
    if isinstance(memory, Moments):
        factor = _discount(numbers, round - memory.collected)
        product = jnp.matmul(changes.T, changes, precision=lax.Precision.HIGHEST)
        return Moments(
            factor * memory.second + product,
            factor * memory.first + changes.sum(axis=0),
            factor * memory.mass + changes.shape[0] * known,
            round,
            memory.order,
        )
    spare = numbers.probes - changes.shape[0]
    newest = Samples(
        jnp.pad(changes, ((0, spare), (0, 0))), jnp.pad(jnp.broadcast_to(known, changes.shape[:1]), (0, spare)), round
    )
    return jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), newest, memory)


def fit(embeddings: jax.Array, memory: Samples | Moments, numbers: Numbers, in_warmup: bool) -> jax.Array:
    """Return the embeddings after the fit that follows a collection.

    Args:
        embeddings: initial X for Adam, [d, N].
        memory: the memory, with the new collection.
        numbers: resolved preset, static.
        in_warmup: whether the collection is a warm-up sample (True) or an update's probe (False); static.

    Returns:
        X, [d, N]; unchanged without a valid sample.
    """
    if isinstance(memory, Moments):
        mass = jnp.maximum(memory.mass, jnp.finfo(jnp.float32).tiny)
        mean = memory.first / mass if numbers.mean == "discounted" else jnp.zeros_like(memory.first)
        centered = memory.second / mass - mean[:, None] * mean
        shuffled = centered[memory.order][:, memory.order]
        best = probabilistic_pca.optimal_embeddings(shuffled, embeddings.shape[0], numbers.noise)
        best = jnp.zeros_like(best).at[:, memory.order].set(best)
        return jnp.where((memory.mass > 0) & jnp.isfinite(best).all(), best, embeddings)
    residuals, weights = _training_set(memory, numbers, in_warmup)
    steps = numbers.warmup_steps if in_warmup else numbers.steps
    return gaussian_process.fit_embeddings(embeddings, residuals, weights, numbers.noise, steps, numbers.learning_rate)


def _training_set(memory: Samples, numbers: Numbers, in_warmup: bool) -> tuple[jax.Array, jax.Array]:
    """Return residuals [H S, N] and their weights [H S]; unused samples have weight zero."""
    spacing = 1 if in_warmup or numbers.ages == "rounds" else numbers.interval
    reuse = numbers.warmup_reuse if in_warmup else numbers.reuse
    if numbers.ages == "positions":
        age = jnp.arange(memory.collected.shape[0]) * spacing
    else:
        age = memory.collected[0] - memory.collected
    used = (age % spacing == 0) & (age <= reuse * spacing)
    weights = jnp.where(used[:, None] & memory.valid, _discount(numbers, age)[:, None], 0.0).reshape(-1)
    values = memory.values.reshape(weights.shape[0], -1)
    if numbers.mean == "discounted":
        total = jnp.matmul(weights, values, precision=lax.Precision.HIGHEST)
        values = values - total / jnp.maximum(weights.sum(), jnp.finfo(jnp.float32).tiny)
    return values, weights


def _discount(numbers: Numbers, age: jax.Array) -> jax.Array:
    return jnp.exp(jnp.log(numbers.discount) * age.astype(jnp.float32))
