"""The fact `subset_loss`: the server's loss of averages of subsets of the cohort's models.

Shapes: K selected, M subsets.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.base import Strategy, Unrequested
from fedjax_sel.strategies.requests import Request

KIND = "subset_loss"


@jax.tree_util.register_pytree_node_class
class SubsetLoss:
    """A function from subsets to losses: `outcome.subset_loss(mask)` with bool [M, K] returns float32 [M].

    The model of a subset is the average of its members' models, with the aggregation's weights. Lost and nonfinite
    reports are excluded; an empty subset has the round's model. M is the request's option `subsets`. Each round is
    billed for M evaluations, so call the function once in `update`.
    """

    def __init__(self, loss: Callable[[Any, jax.Array], jax.Array], reports: Any, subsets: int):
        self._loss, self._reports, self._subsets = loss, reports, subsets

    def __call__(self, mask: jax.Array) -> jax.Array:
        """Return the loss of each subset, nats."""
        if mask.ndim != 2 or mask.shape[0] != self._subsets or mask.dtype != bool:
            raise UserError(
                f"subset_loss: the mask is {mask.dtype} {list(mask.shape)}, but subsets={self._subsets} was requested; "
                f"pass bool [{self._subsets}, K], or request subsets={mask.shape[0] if mask.ndim else 1}"
            )
        return self._loss(self._reports, mask)

    def tree_flatten(self):
        """Return the reports as leaves and the function as static data."""
        return (self._reports,), (self._loss, self._subsets)

    @classmethod
    def tree_unflatten(cls, static, reports):
        """Rebuild the function from the output of `tree_flatten`."""
        loss, subsets = static
        (own,) = reports
        return cls(loss, own, subsets)


def requested(strategy: Strategy) -> Request | None:
    """Return the strategy's request for subset losses, or None."""
    return next((request for request in strategy.requests if request.kind == KIND), None)


def of(strategy: Strategy, loss: Callable[[Any, jax.Array], jax.Array], reports: Any) -> SubsetLoss | Unrequested:
    """Return the field `subset_loss` of an Outcome.

    Args:
        strategy: the strategy; without a request the result is `Unrequested`.
        loss: (reports, mask) -> losses [M].
        reports: the first argument of `loss`, a pytree of arrays.
    """
    request = requested(strategy)
    if request is None:
        return Unrequested(strategy.name, KIND)
    return SubsetLoss(loss, reports, request.option("subsets", 1))


def stand_in(strategy: Strategy, losses: Any) -> SubsetLoss | Unrequested:
    """Return a stand-in without a model: the mean of the members' losses [K], and 0 for an empty subset."""
    return of(strategy, _mean, losses)


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask, losses, 0.0).sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)
