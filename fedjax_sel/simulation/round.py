"""One round from top to bottom: select a cohort, train it, aggregate, learn, record.

A round is a pure function (carry, round number) -> (carry, records) over all replicates at once. Nothing in it touches
the host. Shapes: S replicates, N clients, K selected clients.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel import devices
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import availability, client_table, facts, keys, state
from fedjax_sel.simulation.availability import reachable
from fedjax_sel.simulation.client_table import Kept
from fedjax_sel.simulation.evaluation import Reports, evaluate_for_strategy, subsets
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.recording import record
from fedjax_sel.simulation.state import (
    Bill,
    Carry,
    Cohort,
    Plan,
    Records,
    RoundContext,
    ServerStep,
    Sums,
    ToTrain,
    Trained,
    UncheckedIds,
    to_train,
)
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import Information, Outcome, Selection, ServerMetrics, Unrequested
from fedjax_sel.strategies.facts import SELECTED
from fedjax_sel.strategies.protocol import Known, OutcomeReads, of_outcome
from fedjax_sel.training import client, server


def select(context: RoundContext) -> tuple[Cohort, Known]:
    """Measure the facts requested of all clients and of candidates, then let the strategy select the cohort.

    The order of the strategy's hooks is `protocol.select`'s.

    Args:
        context: the round's inputs.

    Returns:
        The cohort, and the selection state (strategy state, fact tables, bill) after the selection.
    """
    plan, round, available = context.plan, context.round, context.available
    num_replicates, num_clients = context.federation.starts.shape
    of_select = jax.vmap(lambda stream: keys.of_round(stream, round))(context.streams.selection)
    of_candidates = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(of_select)

    def serve(info: Information, bill: Bill, who: str, ids: jax.Array | None = None) -> tuple[Information, Bill]:
        queried = None if ids is None else state.clip_ids(ids, num_clients)
        return facts.measure(context, info, bill, who, queried)

    bill = facts.empty_bill(num_replicates, num_clients, len(plan.strategy.requests))
    selection_state, (answer, candidates) = protocol.select(
        protocol.over_replicates(plan.strategy),
        serve,
        Known(context.carry.strategy, context.carry.info, bill),
        protocol.Keys(of_candidates, of_select),
        round,
        available,
    )
    selection = answer._replace(ids=state.clip_ids(answer.ids, num_clients))
    if available is not None:  # an unavailable client does not train, even if the strategy selected it
        reachable = jnp.take_along_axis(available, selection.ids, axis=1)
        selection = selection._replace(mask=selection.mask & reachable)
    arrives = availability.arrives(plan.report_failure_rate, context.streams, round, selection.ids, selection.mask)
    named = UncheckedIds(answer.ids, selection.mask, candidates)
    return Cohort(named, selection, selection._replace(mask=arrives)), selection_state


def measure_cohort(context: RoundContext, cohort: Cohort, selection_state: Known) -> Known:
    """Measure the facts requested of the cohort; a lost report loses these answers too.

    Args:
        context: the round's inputs.
        cohort: the queried clients, and the mask of arriving reports.
        selection_state: strategy state, fact tables and bill after the selection.

    Returns:
        The selection state with the new facts and their cost.
    """
    serve = partial(facts.measure, context)
    return protocol.ask_cohort(serve, selection_state, cohort.selection, cohort.reports.mask)


def train_cohorts(
    context: RoundContext, cohort: Cohort, weights: jax.Array, reads: OutcomeReads
) -> tuple[Trained, Sums]:
    """Train each cohort from its replicate's model w^t, with all S * K clients spread over the devices.

    Args:
        context: the round's inputs.
        cohort: the selected clients, and the mask of arriving reports.
        weights: aggregation weights, float32 [S, K].
        reads: the parts of the outcome that the strategy reads.

    Returns:
        Each client's result, and the weighted sums of the arriving finite reports.
    """
    plan, selection, reports = context.plan, cohort.selection, cohort.reports
    round = context.round
    num_replicates, num_selected = selection.ids.shape
    replicates, clients = devices.pairs(num_replicates, selection.ids)
    job_keys = jax.vmap(lambda s, k: keys.of_client(context.streams.training[s], round, k))(replicates, clients)
    wanted = [r for r in plan.strategy.requests if r.kind == "training_loss" and r.who == SELECTED]
    averages = protocol.requested(plan.strategy) is not None
    keep_updates = reads.updates or averages
    statistic = wanted[0].option("statistic", "mean") if wanted else None

    def train(shared: ToTrain, job):
        replicate, who, key, arrives = job
        federation, received = shared.federation, shared.received(replicate)
        kept = shared.kept(replicate, who)
        memory = shared.memory(replicate, kept)
        result = client.train_and_report(
            plan.trainer, federation, received, replicate, who, key, shared.round, statistic, kept.optimizer, memory
        )
        report = plan.trainer.optimizer.report(result.finished, memory)
        # The server never receives the change in a lost report, so the client keeps its old memory.
        own = jax.tree.map(lambda new, old: jnp.where(arrives, new, old), report.own, memory.own)
        sums = Sums((report.averaged, result.update.carried), report.contributed)
        part = fed.loss_part(federation, replicate, who, plan.loss_on)
        trained = jax.tree.map(jnp.add, received, result.update)
        finite = server.is_finite(sums)
        of_client = Trained(
            result.update.trained if keep_updates else None,
            finite,
            client.loss(plan.trainer, federation, received, part),
            client.loss(plan.trainer, federation, trained, part),
            result.training_loss,
            result.coefficient * result.learning_rate if reads.path_lengths else None,
            Kept(None if kept.optimizer is None else result.optimizer_state, own),
            result.update.carried if averages else None,
        )
        return of_client, server.finite_part(sums, finite)

    jobs = (replicates, clients, job_keys, reports.mask.reshape(-1))
    num_clients = context.federation.starts.shape[1]
    factors = Sums(weights, jnp.where(reports.mask, 1.0 / num_clients, 0.0))
    of_jobs, sums = devices.spread_and_add(plan.mesh, train, to_train(context), jobs, plan.clients_at_once, factors)
    trained: Trained = devices.unflatten(of_jobs, num_replicates)
    if not keep_updates:
        zeros = jax.tree.map(
            lambda w: jnp.zeros((w.shape[0], num_selected, *w.shape[1:]), w.dtype), context.carry.params.trained
        )
        trained = trained._replace(updates=zeros)
    return trained, sums


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
    unbiased, chance = plan.aggregation == "unbiased", availability.chance(context)
    if reports.weights is not None:
        own = jnp.where(reports.mask, reports.weights, 0.0)
        # The strategy's weights treat the available clients as all clients, and ignore lost reports.
        return own * jnp.reshape(availability.available_share(context) / chance, (-1, 1)) if unbiased else own
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
    info, bill = facts.enter_training_losses(
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
    before, _, replaced_before = jax.vmap(availability.losses)(trained.loss_before, reports.mask)
    after, _, replaced_after = jax.vmap(availability.losses)(trained.loss_after, reports.mask)
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


def one_round(
    plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """Run one round of all replicates.

    Two values pass through the steps below. `cohort` holds the selected clients and marks those whose report arrives.
    `selection_state` holds the strategy's state, its fact tables and the round's bill.

    Args:
        plan: the run's static configuration.
        carry: the run's state at w^t.
        round: t, int32 scalar, from 0. It is never batched, so a condition on it alone stays a real branch.
        federation: the clients' and the server's data.
        streams: random streams.

    Returns:
        The run's state at w^(t+1) and the round's records.
    """
    available = reachable(plan, federation, streams, round)
    context = RoundContext(plan, federation, carry, streams, round, available)

    cohort, selection_state = select(context)
    selection_state = measure_cohort(context, cohort, selection_state)
    reads = outcome_reads(context, cohort, selection_state)
    weights = cohort_weights(context, cohort, selection_state)
    trained, sums = train_cohorts(context, cohort, weights, reads)
    selection_state = record_training_losses(context, cohort, selection_state, trained)
    server = aggregate(context, cohort, trained, sums, weights)
    selection_state = learn(context, cohort, selection_state, trained, server, weights, reads)
    records = record(context, cohort, selection_state.bill, trained, server, weights, reads)

    carry = carry._replace(
        params=server.params, server=server.optimizer, strategy=selection_state.state, info=selection_state.info,
        shared=server.shared, evaluation=server.evaluation,
    )  # fmt: skip
    # A client whose update is not finite keeps its previous row.
    kept = cohort.selection.mask & trained.finite
    results = (carry._replace(clients=None), records)
    return carry._replace(
        clients=client_table.write(carry.clients, cohort.selection.ids, kept, trained.kept, after=results)
    ), records


def many_rounds(
    plan: Plan,
    length: int,
    some_are_idle: bool,
    carry: Carry,
    first: jax.Array,
    federation: Federation,
    streams: Streams,
) -> tuple[Carry, Records]:
    """Scan a chunk of `length` rounds; one compiled program serves every value of `first`.

    Args:
        plan: the run's static configuration.
        length: number of rounds; static.
        some_are_idle: whether the last chunk extends past the run's end, where rounds change nothing; static.
        carry: the run's state before round `first`.
        first: number of the first round, int32 scalar.
        federation: the clients' and the server's data.
        streams: random streams.

    Returns:
        The carry after the chunk, and the records with leading axes [length, S].
    """

    def body(carry: Carry, round: jax.Array):
        if not some_are_idle:
            return one_round(plan, carry, round, federation, streams)
        shapes = jax.eval_shape(lambda c: one_round(plan, c, round, federation, streams)[1], carry)
        idle = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return lax.cond(
            round < plan.num_rounds,
            lambda c: one_round(plan, c, round, federation, streams),
            lambda c: (c, idle),
            carry,
        )

    return lax.scan(body, carry, first + jnp.arange(length, dtype=jnp.int32))
