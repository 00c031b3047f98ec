"""The inputs that a strategy's function reads, derived from its jaxpr. Unread facts are not computed."""

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
    """Return a flag per input leaf: whether the function's outputs depend on it.

    A nested function (a branch, a loop body, a jitted helper) counts as reading all of its arguments.

    Args:
        function: a pure, traceable function.
        *arguments: pytrees of arrays, tracers or `jax.ShapeDtypeStruct`.

    Returns:
        The tuple of arguments, with a Boolean in place of each leaf.
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
    """Fields of the outcome that a strategy's `update` reads."""

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
    """Return the fields of the outcome that `update` reads, before the outcome is computed.

    Args:
        strategy: the strategy.
        params: trained weights of the round's models, leaves [S, ...].
        evaluation: the server's evaluation, leaves [S]; None if the strategy does not request it.
        round: round number, int32 scalar.
        state: the strategy's state, leaves [S, ...].
        info: tables of facts, leaves [S, ...].
        selection: the cohorts, leaves [S, K].

    Returns:
        Python Booleans, also under tracing.
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
