"""Aggregation on the server: weights, the weighted mean of the reports, and the server optimizer's step."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.core.plugins import NonNegative, Share
from fedjax_sel.models import Params
from fedjax_sel.models.core import Weights


def cohort_weights(
    rule: str, sizes: jax.Array, mask: jax.Array, total: jax.Array | int, inclusion: jax.Array | None = None
) -> jax.Array:
    """Return the aggregation weights of a cohort, float32 [K], zero for masked places.

    The rules are:

    * `uniform`: 1 / K (FedCor Eq. 4). The weights sum to one, unless the cohort is empty.
    * `samples`: n_k / sum over the cohort (FL-DP3S Eq. 6). The weights sum to one, unless the cohort is empty.
    * `global-samples`: n_k / sum over all clients. The remaining weight stays on the old model.
    * `unbiased`: p_k / expected number of reports of k, with p_k = n_k / sum over all clients. The expected model is
      sum p_k w_k. `inclusion` holds the expected numbers, float32 [K].

    `sizes` counts the training examples of each client of the cohort, int32 [K], and `total` those of all clients.
    """
    if rule == "uniform":
        return renormalize(jnp.ones_like(sizes, jnp.float32), mask)
    if rule == "samples":
        return renormalize(sizes.astype(jnp.float32), mask)
    shares = sizes / jnp.asarray(total, jnp.float32)
    if rule == "unbiased":
        assert inclusion is not None, "rejected before the run"
        return jnp.where(mask, shares / inclusion, 0.0)
    return jnp.where(mask, shares, 0.0)


class StalenessWeight(NamedTuple):
    """A factor of the aggregation weight that falls with a report's staleness (FedAsync, Xie et al. 2019, Sec. 5.2)."""

    name: str
    factor: Callable[[jax.Array], jax.Array]  # staleness, int32 [K] -> float32 [K]; 1 at zero
    beta: float = 0.0  # share of the weight that grows with the deviation from the reports in time


def constant() -> StalenessWeight:
    """Make the factor 1."""
    return StalenessWeight("constant", lambda staleness: jnp.ones_like(staleness, jnp.float32))


def polynomial(*, a: NonNegative = 0.5) -> StalenessWeight:
    """Make the factor (staleness + 1)^(-a).

    Args:
        a: exponent; FedBuff also uses 0.5.
    """
    return StalenessWeight("polynomial", lambda staleness: (staleness + 1.0) ** -a)


def hinge(*, a: NonNegative = 10.0, b: NonNegative = 4.0) -> StalenessWeight:
    """Make the factor 1 up to a staleness of b, and then 1 / (a (staleness - b) + 1).

    Args:
        a: slope.
        b: largest staleness with the full weight.
    """
    return StalenessWeight("hinge", lambda staleness: 1.0 / (a * jnp.maximum(staleness - b, 0.0) + 1.0))


def refl(*, beta: Share = 0.35) -> StalenessWeight:
    """Make the factor (1 - beta) / (staleness + 1) + beta (1 - exp(-d)) of late reports.

    d is the deviation from the mean of the reports in time, as a share of the largest (REFL, Abdelmoniem et al. 2023).

    Args:
        beta: share of the deviation, in [0, 1].
    """
    return StalenessWeight("refl", lambda staleness: 1.0 / (staleness + 1.0), beta)


STALENESS: Mapping[str, Callable[..., StalenessWeight]] = {
    "constant": constant, "polynomial": polynomial, "hinge": hinge, "refl": refl,
}  # fmt: skip
"""Name -> function that makes the factor."""


def renormalize(weights: jax.Array, mask: jax.Array) -> jax.Array:
    """Scale the unmasked weights to sum to one; return zeros if all are masked."""
    kept = jnp.where(mask, weights, 0.0)
    return kept / jnp.where(kept.sum() > 0, kept.sum(), 1.0)


def is_finite(report: Any) -> jax.Array:
    """Return whether a pytree holds only finite numbers, bool scalar.

    Zero times a number that is not finite is NaN, and so is any sum with it. On a CPU this is faster than `isfinite` of
    each number.
    """
    return jnp.isfinite(jnp.stack([(0.0 * leaf).sum() for leaf in jax.tree.leaves(report)])).all()


def finite_part(report: Any, finite: jax.Array) -> Any:
    """Return a pytree, or zeros if it is not finite; a weight of zero would not remove a NaN."""
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0), report)


def mean_of_reports(sums: tuple[Any, Any], weights: jax.Array, finite: jax.Array) -> tuple[Any, Any]:
    """Return the weighted mean of the reports, from the weighted sums over the finite ones.

    The weight of a report that is not finite goes to the other reports. If no report is finite, the mean is zero.
    `sums` and the result are two pytrees: `Report.averaged`, and the changes of non-trained model state, whose mean is
    proper even if the weights, float32 [K], sum to more than one.
    """
    broken = (~finite & (weights != 0)).any()
    kept = jnp.where(finite, weights, 0.0).sum()
    others = jnp.where(kept > 0, weights.sum() / jnp.where(kept > 0, kept, 1.0), 0.0)
    averaged, carried = jax.tree.map(lambda leaf: jnp.where(broken, leaf * others, leaf), sums)
    # Under the rule `unbiased` the weights may sum to more than one, by more than rounding. That is valid for updates.
    # Running statistics would be extrapolated beyond their clients' values, and a variance could become negative.
    total, rounding = weights.sum(), len(weights) * jnp.finfo(weights.dtype).eps
    share = jnp.where(total > 1.0 + rounding, total, 1.0)
    return averaged, jax.tree.map(lambda leaf: leaf / share, carried)


def step(server: optax.GradientTransformation, state: optax.OptState, params: Params, mean_update: Params):
    """Take one server step; return the new model and the new state.

    The gradient of `server` is minus the mean update, so SGD(1.0) is plain averaging.
    """
    change, state = server.update(jax.tree.map(jnp.negative, mean_update), state, params)
    return optax.apply_updates(params, change), state


def new_model(
    server: optax.GradientTransformation,
    state: optax.OptState,
    weights: Weights,
    mean_update: Weights,
    arrived: jax.Array,
) -> tuple[Weights, optax.OptState]:
    """Return the global model after a round, and the server optimizer's state.

    Non-trained model state, such as running statistics, has no gradient. It is averaged under any server optimizer. The
    mean update is zero without any report; `arrived` is a bool scalar.
    """
    stepped = step(server, state, weights.trained, mean_update.trained)
    # Without any report, momentum or decay alone would move the model.
    trained, state = jax.tree.map(partial(jnp.where, arrived), stepped, (weights.trained, state))
    return Weights(trained, jax.tree.map(jnp.add, weights.carried, mean_update.carried)), state
