"""The strategy's feedback from a round: training losses, the outcome that `update` reads, and their cost."""

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


def outcome_reads(context: RoundContext, cohort: Cohort, selection_state: Known) -> OutcomeReads:
    """Return which parts of the outcome the strategy's `update` reads, found by tracing it.

    A part that `update` does not read is neither computed nor billed.

    Args:
        context: the round's inputs.
        cohort: the selected clients.
        selection_state: strategy state, fact tables and bill, with the cohort's answers.
    """
    carry = context.carry
    return of_outcome(
        context.plan.strategy, carry.params.trained, carry.evaluation, context.round, selection_state.state,
        selection_state.info, cohort.selection,
    )  # fmt: skip


def record_training_losses(context: RoundContext, cohort: Cohort, selection_state: Known, trained: Trained) -> Known:
    """Enter the cohort's training losses into the fact table, if the strategy requested them.

    Args:
        context: the round's inputs.
        cohort: the selected clients, and the mask of arriving reports.
        selection_state: strategy state, fact tables and bill before.
        trained: the clients' results, with their training losses.

    Returns:
        The selection state with the new facts and their cost.
    """
    reports = cohort.reports
    info, bill = information.enter_training_losses(
        context, selection_state.info, selection_state.bill, reports.ids, reports.mask, trained.training_loss
    )
    return Known(selection_state.state, info, bill)


def learn(
    context: RoundContext,
    cohort: Cohort,
    selection_state: Known,
    trained: Trained,
    server: ServerStep,
    weights: jax.Array,
    reads: OutcomeReads,
) -> Known:
    """Call the strategy's `update` on the round's outcome, and age its facts by one round.

    The bill counts the losses in the outcome that were not finite and were replaced.

    Args:
        context: the round's inputs.
        cohort: the selected clients, and the mask of arriving reports.
        selection_state: strategy state, fact tables and bill before the update.
        trained: the clients' results.
        server: the new global model and the server's state.
        weights: aggregation weights, float32 [S, K].
        reads: the parts of the outcome that `update` reads.

    Returns:
        The selection state after the update.
    """
    plan, carry, reports = context.plan, context.carry, cohort.reports
    before, _, replaced_before = jax.vmap(sanitise.losses)(trained.loss_before, reports.mask)
    after, _, replaced_after = jax.vmap(sanitise.losses)(trained.loss_after, reports.mask)
    updates, before, after, finite = _zero_lost_reports(reports, (trained.updates, before, after, trained.finite))
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
    strategy = protocol.over_replicates(plan.strategy)
    selection_state = protocol.learn(strategy, selection_state, context.round, reports, outcome)
    replaced = int(reads.losses_before) * replaced_before + int(reads.losses_after) * replaced_after
    bill = selection_state.bill
    return selection_state._replace(bill=bill._replace(losses_replaced=bill.losses_replaced + replaced))


def _zero_lost_reports(reports: Selection, reported: Any) -> Any:
    """Set the leaves [S, K, ...] to zero for lost reports and for places of the cohort without a client."""

    def zero_if_lost(leaf: jax.Array) -> jax.Array:
        arrives = reports.mask.reshape(*reports.mask.shape, *[1] * (leaf.ndim - 2))
        return jnp.where(arrives, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(zero_if_lost, reported)
