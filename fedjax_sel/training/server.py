"""What the server does with the cohort's updates: weights, the weighted mean, the server optimizer's step."""

import jax
import jax.numpy as jnp
import optax

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


def is_finite(update: Params) -> jax.Array:
    """Whether an update holds only finite numbers, a scalar."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(update)]).all()


def finite_part(update: Params, finite: jax.Array) -> Params:
    """The update, or zeros if it is not finite: a weight of zero does not silence a NaN."""
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0), update)


def mean_of_reports(sums: Params, weights: jax.Array, finite: jax.Array, skip: bool) -> Params:
    """sum_k weights_k update_k, from the sum over those whose updates are finite.

    Args:
        sums: that sum, the pytree of the model.
        weights: float32 [K], zero where nobody trained.
        finite: bool [K].
        skip: whether those who are not finite count as not having trained: their weight goes to the others, and
            without any others the mean is zero. Else the mean is NaN.

    Returns:
        The pytree of the model.
    """
    broken = (~finite & (weights != 0)).any()
    kept = jnp.where(finite, weights, 0.0).sum()
    others = jnp.where(kept > 0, weights.sum() / jnp.where(kept > 0, kept, 1.0), 0.0)
    return jax.tree.map(lambda leaf: jnp.where(broken, leaf * (others if skip else jnp.nan), leaf), sums)


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
