"""What the strategy hears of a round: training losses, the outcome it learns from, and what that costs."""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import information, sanitise
from fedjax_sel.simulation.aggregation import ServerStep
from fedjax_sel.simulation.cohort_training import Trained
from fedjax_sel.simulation.round_context import RoundContext
from fedjax_sel.simulation.selecting import Cohort
from fedjax_sel.simulation.server_evaluation import Reports, subsets
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import Outcome, Selection, ServerMetrics, Unrequested
from fedjax_sel.strategies.dependencies import OutcomeReads, of_outcome
from fedjax_sel.strategies.protocol import Known


def what_update_reads(context: RoundContext, cohort: Cohort, known: Known) -> OutcomeReads:
    """Return which parts of the outcome the strategy reads; what it does not read is neither computed nor billed.

    Args:
        context: of the round.
        cohort: that trains.
        known: with what the cohort answered.
    """
    carry = context.carry
    return of_outcome(
        context.plan.strategy, carry.params.trained, carry.evaluation, context.round, known.state, known.info,
        cohort.selection,
    )  # fmt: skip


def hear_training_losses(context: RoundContext, cohort: Cohort, known: Known, trained: Trained) -> Known:
    """Enter the losses that the cohort found while it trained, where the strategy buys them.

    Args:
        context: of the round.
        cohort: whose reports arrive.
        known: before.
        trained: with the losses.
    """
    reports = cohort.reports
    info, bill = information.learn(
        context, known.info, known.bill, reports.ids, reports.mask, trained.training_loss
    )  # fmt: skip
    return Known(known.state, info, bill)


def learn(
    context: RoundContext,
    cohort: Cohort,
    known: Known,
    trained: Trained,
    server: ServerStep,
    weights: jax.Array,
    reads: OutcomeReads,
) -> Known:
    """Let the strategy learn from the round, and add to the bill what stood in for losses that were not finite.

    Args:
        context: of the round.
        cohort: whose reports arrive.
        known: before it learns.
        trained: what the clients report.
        server: the server's step.
        weights: of the aggregation, float32 [S, K].
        reads: which parts of the outcome count.
    """
    plan, carry, reports = context.plan, context.carry, cohort.reports
    before, _, replaced_before = jax.vmap(sanitise.losses)(trained.loss_before, reports.mask)
    after, _, replaced_after = jax.vmap(sanitise.losses)(trained.loss_after, reports.mask)
    updates, before, after, finite = _heard(reports, (trained.updates, before, after, trained.finite))
    averaged = Reports(Weights(updates, trained.carried), jnp.where(finite, weights, 0.0), carry.params)
    outcome = Outcome(
        updates=updates,
        losses_before=before,
        losses_after=after,
        step=jax.tree.map(jnp.subtract, server.params.trained, carry.params.trained),
        finite=finite,
        metrics=Unrequested(plan.strategy.name, "server_metrics")
        if server.evaluation is None or carry.evaluation is None
        else ServerMetrics(carry.evaluation, server.evaluation),
        path_lengths=trained.path_lengths,
        subset_loss=subsets(plan, context.federation, averaged),
    )
    known = protocol.learn(protocol.over_replicates(plan.strategy), known, context.round, reports, outcome)
    replaced = int(reads.losses_before) * replaced_before + int(reads.losses_after) * replaced_after
    return known._replace(bill=known.bill._replace(losses_replaced=known.bill.losses_replaced + replaced))


def _heard(reports: Selection, reported: Any) -> Any:
    """Return what the cohort tells, leaves [S, K, ...], with zeros for whom nobody hears of.

    Reports are lost, and where fewer can be reached than a cohort has places, those left over train for nobody.
    """

    def zero_if_lost(leaf: jax.Array) -> jax.Array:
        arrives = reports.mask.reshape(*reports.mask.shape, *[1] * (leaf.ndim - 2))
        return jnp.where(arrives, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(zero_if_lost, reported)
