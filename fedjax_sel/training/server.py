"""What the server does with the cohort's updates: weights, the weighted mean, the server optimizer's step."""

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_sel.models import Params


def cohort_weights(rule: str, sizes: jax.Array, mask: jax.Array) -> jax.Array:
    """The aggregation weights of a cohort; zero where nobody trained. They sum to one unless the cohort is empty.

    Args:
        rule: `uniform`, 1 / K (FedCor Eq. 4), or `samples`, n_k / sum over the cohort (FL-DP3S Eq. 6).
        sizes: training examples of the cohort, int32 [K].
        mask: bool [K].

    Returns:
        float32 [K].
    """
    raw = {"uniform": jnp.ones_like(sizes, jnp.float32), "samples": sizes.astype(jnp.float32)}[rule]
    return renormalise(raw, mask)


def renormalise(weights: jax.Array, mask: jax.Array) -> jax.Array:
    """Weights of the places that count, scaled to sum to one; all zero if none counts."""
    kept = jnp.where(mask, weights, 0.0)
    return kept / jnp.where(kept.sum() > 0, kept.sum(), 1.0)


def weighted_mean(updates: Params, weights: jax.Array) -> Params:
    """sum_k weights_k update_k; an update of weight zero takes no part even if it is not finite.

    Args:
        updates: pytree with leading axis [K, ...].
        weights: float32 [K].

    Returns:
        The pytree without that axis.
    """

    def mean(leaf: jax.Array) -> jax.Array:
        flat = jnp.where(weights[:, None] != 0, leaf.reshape(leaf.shape[0], -1), 0.0)
        return jnp.matmul(weights, flat, precision=lax.Precision.HIGHEST).reshape(leaf.shape[1:])

    return jax.tree.map(mean, updates)


def all_finite(updates: Params) -> jax.Array:
    """Whether each client's update holds only finite numbers, bool [K]."""
    leaves = [jnp.isfinite(leaf.reshape(leaf.shape[0], -1)).all(axis=1) for leaf in jax.tree.leaves(updates)]
    return jnp.stack(leaves).all(axis=0)


def optimizer(learning_rate: float) -> optax.GradientTransformation:
    """The server's optimizer on the pseudo-gradient, minus the mean update; SGD(1.0) is plain averaging."""
    return optax.sgd(learning_rate)


def step(server: optax.GradientTransformation, state: optax.OptState, params: Params, mean_update: Params):
    """One server step.

    Args:
        server: the optimizer.
        state: its state.
        params: the global model.
        mean_update: the weighted mean of the cohort's updates.

    Returns:
        The new model and the new state.
    """
    pseudo_gradient = jax.tree.map(jnp.negative, mean_update)
    change, state = server.update(pseudo_gradient, state, params)
    return optax.apply_updates(params, change), state
