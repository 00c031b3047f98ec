"""What a strategy's function reads, from its jaxpr: a fact that no output depends on was not bought."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from fedjax_sel.strategies import subset_loss
from fedjax_sel.strategies.base import (
    Evaluation,
    Information,
    Outcome,
    Selection,
    ServerMetrics,
    Strategy,
    Unrequested,
    keep_state,
)

Params = Any  # a pytree of float32 arrays


def read(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return which inputs the outputs of a function depend on.

    A called function (a branch, a loop body, a jitted helper) counts as reading all that is handed to it.

    Args:
        function: pure and traceable.
        *arguments: pytrees of arrays, tracers or `jax.ShapeDtypeStruct`.

    Returns:
        The tuple of arguments with a Boolean for every leaf.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    jaxpr = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(structure, flat)))(*shapes).jaxpr
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    for equation in reversed(jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            needed.update(var for var in equation.invars if not isinstance(var, Literal))
    return jax.tree.unflatten(structure, [var in needed for var in jaxpr.invars])


class OutcomeReads(NamedTuple):
    """What a strategy's `update` reads of the outcome."""

    updates: bool
    losses_before: bool
    losses_after: bool
    path_lengths: bool


def of_outcome(
    strategy: Strategy,
    params: Params,
    evaluation: Evaluation | None,
    round: jax.Array,
    state: Any,
    info: Information,
    selection: Selection,
) -> OutcomeReads:
    """Return what `update` reads of an outcome that does not exist yet.

    Args:
        strategy: whose.
        params: the trained weights of the round's models, [S, ...].
        evaluation: the server's, where the strategy requests one; leaves [S].
        round: int32 scalar.
        state: the strategy's, leaves [S, ...].
        info: leaves [S, ...].
        selection: leaves [S, K].

    Returns:
        Booleans that are known while tracing.
    """
    if strategy.update is keep_state:
        return OutcomeReads(False, False, False, False)
    cohort = selection.ids.shape[1:]

    def shapes(tree: Any, *leading: int) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*leading, *leaf.shape[1:]), leaf.dtype), tree)

    per_client: Any = jax.ShapeDtypeStruct(cohort, jnp.float32)
    outcome = Outcome(
        updates=shapes(params, *cohort),
        losses_before=per_client,
        losses_after=per_client,
        step=shapes(params),
        finite=jax.ShapeDtypeStruct(cohort, jnp.bool_),  # pyright: ignore[reportArgumentType]
        metrics=Unrequested(strategy.name, "server_metrics")
        if evaluation is None
        else ServerMetrics(shapes(evaluation), shapes(evaluation)),
        path_lengths=per_client,
        subset_loss=subset_loss.stand_in(strategy, per_client),
    )
    state, info, selection = shapes((state, info, selection))
    _, _, _, _, reads = read(strategy.update, state, info, round, selection, outcome)
    scalars = (reads.losses_before, reads.losses_after, reads.path_lengths)
    return OutcomeReads(any(jax.tree.leaves(reads.updates)), *map(bool, scalars))
