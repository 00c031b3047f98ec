"""The server's side of a round: how much each report weighs, and the step from their sums to the new model."""

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
    """What the server has after its step, leaves [S, ...]."""

    params: Weights  # w^(t+1)
    optimizer: optax.OptState
    shared: Any  # what the federated optimizer has it remember
    evaluation: Evaluation | None  # of the new model, where the strategy asks for one


def cohort_weights(context: RoundContext, cohort: Cohort, known: Known) -> jax.Array:
    """Return the aggregation's weights, float32 [S, K]: the strategy's own where it derives them, else the rule's.

    Args:
        context: of the round.
        cohort: whose reports arrive.
        known: with what the cohort answered; the strategy's `inclusion` reads it under the rule `unbiased`.
    """
    plan, reports = context.plan, cohort.reports
    unbiased, chance = plan.aggregation == "unbiased", lost_reports.chance(context)
    if reports.weights is not None:
        own = jnp.where(reports.mask, reports.weights, 0.0)
        # A strategy weighs those whom it can reach, as if they were all, and does not know what is lost.
        return own * jnp.reshape(lost_reports.share_there(context) / chance, (-1, 1)) if unbiased else own
    all_sizes = context.federation.train_sizes
    sizes, inclusion = jnp.take_along_axis(all_sizes, reports.ids, axis=1), None
    if unbiased:
        expected = plan.strategy.inclusion
        assert expected is not None, "refused before the run"
        of_all = jax.vmap(lambda state, info, available: expected(state, info, context.round, available))(
            known.state, known.info, context.available
        )
        assert of_all is not None, "refused before the run"
        inclusion = jnp.take_along_axis(of_all, reports.ids, axis=1) * jnp.reshape(chance, (-1, 1))
    weights_of = jax.vmap(partial(server.cohort_weights, plan.aggregation))
    return weights_of(sizes, reports.mask, all_sizes.sum(axis=1), inclusion)


def aggregate(context: RoundContext, cohort: Cohort, trained: Trained, sums: Sums, weights: jax.Array) -> ServerStep:
    """Take the server's step on the weighted mean of the finite reports.

    So it does where a run is to end at others: the host, which reads of them, ends it.

    Args:
        context: of the round.
        cohort: whose reports arrive.
        trained: who of them is finite.
        sums: over those.
        weights: of the aggregation, float32 [S, K].
    """
    plan, carry = context.plan, context.carry
    shared = jax.tree.map(jnp.add, carry.shared, sums.contributed)
    mean, carried = jax.vmap(server.mean_of_reports)(sums.averaged, weights, trained.finite)
    mean_update = Weights(jax.vmap(plan.trainer.optimizer.combine)(mean), carried)
    arrived = (cohort.reports.mask & trained.finite).any(axis=1)
    step = jax.vmap(partial(server.new_model, plan.server))
    params, optimizer = step(carry.server, carry.params, mean_update, arrived)
    return ServerStep(params, optimizer, shared, evaluate_for_strategy(plan, context.federation, params))
