"""The server's loss of averages of subsets of the cohort, as `update` calls it.

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
    """A function of subsets: `outcome.subset_loss(mask)` with bool [M, K] gives float32 [M].

    A subset's model is the average, with the aggregation's weights, of its members' models. Lost and nonfinite reports
    are left out; an empty subset has the round's model. M is the request's option `subsets`, for which each round is
    billed: call it once in `update`.
    """

    def __init__(self, loss: Callable[[Any, jax.Array], jax.Array], reports: Any, subsets: int):
        self._loss, self._reports, self._subsets = loss, reports, subsets

    def __call__(self, mask: jax.Array) -> jax.Array:
        """Return the loss of each subset, nats."""
        if mask.ndim != 2 or mask.shape[0] != self._subsets or mask.dtype != bool:
            raise UserError(
                f"subset_loss: the mask is {mask.dtype} {list(mask.shape)} and {self._subsets} subsets were requested; "
                f"give bool [{self._subsets}, K], or request subsets={mask.shape[0] if mask.ndim else 1}"
            )
        return self._loss(self._reports, mask)

    def tree_flatten(self):
        """Return the reports as leaves and the function as what is static."""
        return (self._reports,), (self._loss, self._subsets)

    @classmethod
    def tree_unflatten(cls, static, reports):
        """Make the function that `tree_flatten` took apart."""
        loss, subsets = static
        (own,) = reports
        return cls(loss, own, subsets)


def requested(strategy: Strategy) -> Request | None:
    """Return the strategy's request for these losses; None without."""
    return next((request for request in strategy.requests if request.kind == KIND), None)


def of(strategy: Strategy, loss: Callable[[Any, jax.Array], jax.Array], reports: Any) -> SubsetLoss | Unrequested:
    """Return what stands in an Outcome.

    Args:
        strategy: who may have requested it.
        loss: (reports, mask) -> losses [M].
        reports: what it is computed from; a pytree of arrays.
    """
    request = requested(strategy)
    if request is None:
        return Unrequested(strategy.name, KIND)
    return SubsetLoss(loss, reports, request.option("subsets", 1))


def stand_in(strategy: Strategy, losses: Any) -> SubsetLoss | Unrequested:
    """Return a function that gives the mean of the members' losses [K], 0 for an empty subset, without any model."""
    return of(strategy, _mean, losses)


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask, losses, 0.0).sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)
