"""What the server does with the cohort's reports: weights, the weighted mean, the server optimizer's step."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.models import Params
from fedjax_sel.models.weights import Weights


def cohort_weights(
    rule: str, sizes: jax.Array, mask: jax.Array, total: jax.Array | int, inclusion: jax.Array | None = None
) -> jax.Array:
    """Return the aggregation weights of a cohort; zero where nobody trained.

    Args:
        rule: `uniform`, 1 / K (FedCor Eq. 4); `samples`, n_k / sum over the cohort (FL-DP3S Eq. 6); `global-samples`,
            n_k / sum over all clients, so that the rest of the mass stays on the old model; or `unbiased`, p_k over the
            expected number of times that k reports, so that the expected model is sum p_k w_k. The first two sum to one
            unless the cohort is empty.
        sizes: training examples of the cohort, int32 [K].
        mask: bool [K].
        total: training examples of all clients.
        inclusion: that expected number, float32 [K]; for `unbiased` alone.

    Returns:
        float32 [K].
    """
    if rule == "uniform":
        return renormalise(jnp.ones_like(sizes, jnp.float32), mask)
    if rule == "samples":
        return renormalise(sizes.astype(jnp.float32), mask)
    shares = sizes / jnp.asarray(total, jnp.float32)
    if rule == "unbiased":
        assert inclusion is not None, "refused before the run"
        shares = shares / inclusion
    return jnp.where(mask, shares, 0.0)


def renormalise(weights: jax.Array, mask: jax.Array) -> jax.Array:
    """Scale the weights of the places that count to sum to one; all are zero if none counts."""
    kept = jnp.where(mask, weights, 0.0)
    return kept / jnp.where(kept.sum() > 0, kept.sum(), 1.0)


def is_finite(report: Any) -> jax.Array:
    """Return whether a pytree holds only finite numbers, a scalar.

    Zero times what is not finite is NaN, and so is a sum of it: on a CPU faster than to look at each number.
    """
    return jnp.isfinite(jnp.stack([(0.0 * leaf).sum() for leaf in jax.tree.leaves(report)])).all()


def finite_part(report: Any, finite: jax.Array) -> Any:
    """Return a pytree, or zeros if it is not finite: a weight of zero does not silence a NaN."""
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0), report)


def mean_of_reports(sums: tuple[Any, Any], weights: jax.Array, finite: jax.Array) -> tuple[Any, Any]:
    """Return sum_k weights_k report_k, from the sums over those whose reports are finite.

    Those who are not finite count as not having trained: their weight goes to the others, and without any others the
    mean is zero. Whether a run goes on after that is not decided here.

    Args:
        sums: those of what the optimizer averages and of what models carry, two pytrees.
        weights: float32 [K], zero where nobody trained.
        finite: bool [K].

    Returns:
        The two pytrees; of the second a mean in any case, even where the weights sum to more than one.
    """
    broken = (~finite & (weights != 0)).any()
    kept = jnp.where(finite, weights, 0.0).sum()
    others = jnp.where(kept > 0, weights.sum() / jnp.where(kept > 0, kept, 1.0), 0.0)
    averaged, carried = jax.tree.map(lambda leaf: jnp.where(broken, leaf * others, leaf), sums)
    share = mass_above_one(weights)
    return averaged, jax.tree.map(lambda leaf: leaf / share, carried)


def mass_above_one(weights: jax.Array) -> jax.Array:
    """Return the sum of weights where it is above one by more than rounding, else one.

    The rule `unbiased` may weigh a cohort as more than everybody. A gradient's step may go so far; running statistics
    that do leave what their clients saw: a variance becomes negative.
    """
    total, rounding = weights.sum(), len(weights) * jnp.finfo(weights.dtype).eps
    return jnp.where(total > 1.0 + rounding, total, 1.0)


def step(server: optax.GradientTransformation, state: optax.OptState, params: Params, mean_update: Params):
    """Take one server step.

    Args:
        server: the optimizer, of the pseudo-gradient, minus the mean update; SGD(1.0) is plain averaging.
        state: its state.
        params: the global model.
        mean_update: what the federated optimizer makes of the weighted mean of the cohort's reports.

    Returns:
        The new model and the new state.
    """
    pseudo_gradient = jax.tree.map(jnp.negative, mean_update)
    change, state = server.update(pseudo_gradient, state, params)
    return optax.apply_updates(params, change), state


def step_if_anybody(
    server: optax.GradientTransformation,
    state: optax.OptState,
    params: Params,
    mean_update: Params,
    arrived: jax.Array,
):
    """Take a server step, or none where nobody reported: by its momentum or its decay alone a server would go on.

    Args:
        server: see `step`.
        state: its state.
        params: the global model.
        mean_update: zero where nobody reported.
        arrived: whether anybody did, bool scalar.

    Returns:
        The new model and the new state.
    """
    stepped = step(server, state, params, mean_update)
    return jax.tree.map(partial(jnp.where, arrived), stepped, (params, state))


def new_model(
    server: optax.GradientTransformation,
    state: optax.OptState,
    weights: Weights,
    mean_update: Weights,
    arrived: jax.Array,
) -> tuple[Weights, optax.OptState]:
    """Return the global model after a round, and the server optimizer's state.

    What models carry beside their trained weights has no gradient: it is averaged, whatever the server's optimizer.

    Args:
        server: see `step`; of the trained weights.
        state: its state.
        weights: the global model.
        mean_update: zero where nobody reported.
        arrived: whether anybody did, bool scalar.
    """
    trained, state = step_if_anybody(server, state, weights.trained, mean_update.trained, arrived)
    return Weights(trained, jax.tree.map(jnp.add, weights.carried, mean_update.carried)), state
