"""Aggregation: the weight of each report, and the server's step from the weighted sums to the new model."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import lost_reports
from fedjax_sel.simulation.cohort_training import Sums, Trained
from fedjax_sel.simulation.round_context import RoundContext
from fedjax_sel.simulation.selecting import Cohort
from fedjax_sel.simulation.server_evaluation import evaluate_for_strategy
from fedjax_sel.strategies.base import Evaluation
from fedjax_sel.strategies.protocol import Known
from fedjax_sel.training import server


class ServerStep(NamedTuple):
    """The server's model and state after its step, leaves [S, ...]."""

    params: Weights  # w^(t+1)
    optimizer: optax.OptState
    shared: Any  # the federated optimizer's server memory (`Memory.shared`)
    evaluation: Evaluation | None  # metrics of the new model, if the strategy requests them


def cohort_weights(context: RoundContext, cohort: Cohort, selection_state: Known) -> jax.Array:
    """Return the aggregation weights: the strategy's own if it returns some, else the configured rule's.

    Args:
        context: the round's inputs.
        cohort: the selected clients, and the mask of arriving reports.
        selection_state: strategy state and fact tables, which `inclusion` reads under the rule `unbiased`.

    Returns:
        float32 [S, K]; zero for lost reports.
    """
    plan, reports = context.plan, cohort.reports
    unbiased, chance = plan.aggregation == "unbiased", lost_reports.chance(context)
    if reports.weights is not None:
        own = jnp.where(reports.mask, reports.weights, 0.0)
        # The strategy's weights treat the available clients as all clients, and ignore lost reports.
        return own * jnp.reshape(lost_reports.available_share(context) / chance, (-1, 1)) if unbiased else own
    all_sizes = context.federation.train_sizes
    sizes, inclusion = jnp.take_along_axis(all_sizes, reports.ids, axis=1), None
    if unbiased:
        expected = plan.strategy.inclusion
        assert expected is not None, "rejected before the run"
        of_all = jax.vmap(lambda state, info, available: expected(state, info, context.round, available))(
            selection_state.state, selection_state.info, context.available
        )
        assert of_all is not None, "rejected before the run"
        inclusion = jnp.take_along_axis(of_all, reports.ids, axis=1) * jnp.reshape(chance, (-1, 1))
    weights_of = jax.vmap(partial(server.cohort_weights, plan.aggregation))
    return weights_of(sizes, reports.mask, all_sizes.sum(axis=1), inclusion)


def aggregate(context: RoundContext, cohort: Cohort, trained: Trained, sums: Sums, weights: jax.Array) -> ServerStep:
    """Take the server optimizer's step on the weighted mean of the finite reports.

    The step leaves out updates that are not finite in every run. The host reads them from the records afterwards, and
    ends the run if `--on-nonfinite` demands it.

    Args:
        context: the round's inputs.
        cohort: the selected clients, and the mask of arriving reports.
        trained: the clients' results, with the mask of finite updates.
        sums: weighted sums over the finite reports.
        weights: aggregation weights, float32 [S, K].
    """
    plan, carry = context.plan, context.carry
    shared = jax.tree.map(jnp.add, carry.shared, sums.contributed)
    mean, carried = jax.vmap(server.mean_of_reports)(sums.averaged, weights, trained.finite)
    mean_update = Weights(jax.vmap(plan.trainer.optimizer.combine)(mean), carried)
    arrived = (cohort.reports.mask & trained.finite).any(axis=1)
    step = jax.vmap(partial(server.new_model, plan.server))
    params, optimizer = step(carry.server, carry.params, mean_update, arrived)
    return ServerStep(params, optimizer, shared, evaluate_for_strategy(plan, context.federation, params))
