"""One round, from top to bottom: measure, select, train the cohort, aggregate, update, record.

A round is a pure function (carry, round number) -> (carry, records) over all replicates at once. Nothing in it touches
the host. Shapes: S replicates, N clients, K selected.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Params
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import bill as bills
from fedjax_sel.simulation import client_table, devices, faults, information, keys, reporting, sanitise
from fedjax_sel.simulation.bill import Bill
from fedjax_sel.simulation.client_table import Kept
from fedjax_sel.simulation.faults import Named
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.opening import Opening, ToTrain, to_train
from fedjax_sel.simulation.plan import Carry, Plan, Records
from fedjax_sel.simulation.reads import of_outcome
from fedjax_sel.simulation.recording import evaluate_for_strategy, record
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import (
    Information,
    Outcome,
    Selection,
    ServerMetrics,
    Strategy,
    Unrequested,
)
from fedjax_sel.strategies.protocol import Known
from fedjax_sel.strategies.requests import SELECTED
from fedjax_sel.training import client, server


def one_round(
    plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """One round of all replicates.

    Args:
        plan: static.
        carry: the state at w^t.
        round: t, int32 scalar, from 0; never batched, so that what depends on it alone stays a real branch.
        federation: the data.
        streams: random streams.

    Returns:
        The state at w^(t+1) and the round's records.
    """
    params = carry.params
    available = _available(plan, federation, streams, round)
    opening = open_round(plan, federation, streams, carry, round, available)
    strategy = protocol.over_replicates(plan.strategy)
    named, selection, known = _select(strategy, opening, carry)

    arrives = reporting.arrives(plan.report_failure_rate, streams, round, selection.ids, selection.mask)
    reports = selection._replace(mask=arrives)
    # What the cohort was asked travels with its reports.
    state, info, bill = protocol.ask_cohort(partial(information.measure, opening), known, selection, arrives)
    reads = of_outcome(plan.strategy, params.trained, carry.evaluation, round, state, info, selection)
    weights = _weights(plan, opening, state, info, reports)
    trained, sums = _train_cohorts(plan, opening, selection, reports, weights, reads.updates)
    info, bill = information.learn(opening, info, bill, reports.ids, reports.mask, trained.training_loss)
    shared = jax.tree.map(jnp.add, carry.shared, sums.contributed)

    # Of the finite ones, also where a run is to end at others: the host, which reads of them, ends it.
    mean, carried = jax.vmap(server.mean_of_reports)(sums.averaged, weights, trained.finite)
    mean_update = Weights(jax.vmap(plan.trainer.optimizer.combine)(mean), carried)
    arrived = (reports.mask & trained.finite).any(axis=1)
    step = jax.vmap(partial(server.new_model, plan.server))
    new_params, server_state = step(carry.server, params, mean_update, arrived)
    evaluation = evaluate_for_strategy(plan, federation, new_params)

    before, _, replaced_before = jax.vmap(sanitise.losses)(trained.loss_before, reports.mask)
    after, _, replaced_after = jax.vmap(sanitise.losses)(trained.loss_after, reports.mask)
    updates, before, after, finite = _heard(plan, reports, (trained.updates, before, after, trained.finite))
    outcome = Outcome(
        updates=updates,
        losses_before=before,
        losses_after=after,
        step=jax.tree.map(jnp.subtract, new_params.trained, params.trained),
        finite=finite,
        metrics=Unrequested(plan.strategy.name, "server_metrics")
        if evaluation is None or carry.evaluation is None
        else ServerMetrics(carry.evaluation, evaluation),
    )
    known = protocol.learn(strategy, Known(state, info, bill), round, reports, outcome)

    replaced = int(reads.losses_before) * replaced_before + int(reads.losses_after) * replaced_after
    bill = bill._replace(losses_replaced=bill.losses_replaced + replaced)
    losses = int(reads.losses_before) + int(reads.losses_after)
    found = faults.find(named, federation.starts.shape[1], weights, (new_params, server_state, shared))
    records = record(plan, opening, carry, new_params, selection, reports, trained.finite, bill, losses, found)
    carry = carry._replace(
        params=new_params, server=server_state, strategy=known.state, info=known.info, shared=shared,
        evaluation=evaluation,
    )  # fmt: skip
    # A broken update leaves its client's row as it was.
    kept = selection.mask & trained.finite
    everything = (carry._replace(clients=None), records)
    return carry._replace(
        clients=client_table.write(carry.clients, selection.ids, kept, trained.kept, after=everything)
    ), records


def open_round(plan: Plan, federation: Federation, streams: Streams, carry: Carry, round, available) -> Opening:
    """What the facts of a round are measured on."""
    return Opening(plan, federation, carry.params, carry.server, carry.clients, carry.shared, streams, round, available)


def _available(plan: Plan, federation: Federation, streams: Streams, round: jax.Array) -> jax.Array | None:
    """Who can be reached in this round, bool [S, N]: the same whatever the strategy."""
    num_replicates, num_clients = federation.starts.shape
    if federation.reachable is not None:
        return jnp.broadcast_to(federation.reachable[round], (num_replicates, num_clients))
    share = plan.available
    if share is None or share == 1.0:
        return None

    def draw(stream: jax.Array) -> jax.Array:
        return jax.random.uniform(keys.of_round(stream, round), (num_clients,)) < share

    return jax.vmap(draw)(streams.availability)


def _heard(plan: Plan, reports: Selection, told: Any) -> Any:
    """What the cohort tells, leaves [S, K, ...], with zeros for those whose report is lost."""
    if plan.report_failure_rate == 0.0:
        return told

    def of(leaf: jax.Array) -> jax.Array:
        arrives = reports.mask.reshape(*reports.mask.shape, *[1] * (leaf.ndim - 2))
        return jnp.where(arrives, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(of, told)


def _select(strategy: Strategy, opening: Opening, carry: Carry) -> tuple[Named, Selection, Known]:
    """Measure what is known before there is a cohort and select it: whom the strategy names, and who of them trains."""
    round, available = opening.round, opening.available
    num_replicates, num_clients = opening.federation.starts.shape
    of_select = jax.vmap(lambda stream: keys.of_round(stream, round))(opening.streams.selection)
    of_candidates = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(of_select)

    def serve(info: Information, bill: Bill, who: str, ids: jax.Array | None = None) -> tuple[Information, Bill]:
        asked = None if ids is None else faults.somebody(ids, num_clients)
        return information.measure(opening, info, bill, who, asked)

    known = Known(carry.strategy, carry.info, bills.nothing(num_replicates, num_clients, len(strategy.requests)))
    known, (answer, candidates) = protocol.select(
        strategy, serve, known, protocol.Keys(of_candidates, of_select), round, available
    )
    selection = answer._replace(ids=faults.somebody(answer.ids, num_clients))
    if available is not None:  # whoever cannot be reached does not train, whatever a strategy says
        there = jnp.take_along_axis(available, selection.ids, axis=1)
        selection = selection._replace(mask=selection.mask & there)
    return Named(answer.ids, selection.mask, candidates), selection, known


class Trained(NamedTuple):
    """What the cohorts' training gave, [S, K, ...]."""

    updates: Params  # zeros, of which nothing is computed, where no strategy reads them
    finite: jax.Array
    loss_before: jax.Array
    loss_after: jax.Array
    training_loss: jax.Array
    kept: Kept


class Sums(NamedTuple):
    """Of the finite reports, [S, ...]."""

    averaged: Any  # what the optimizer averages, and what models carry, with the aggregation's weights
    contributed: Any  # with 1/N each


def _train_cohorts(
    plan: Plan,
    opening: Opening,
    selection: Selection,
    reports: Selection,
    weights: jax.Array,
    keep_updates: bool,
) -> tuple[Trained, Sums]:
    """Trains all cohorts from their replicate's model. What nobody reads of the result is not computed.

    Returns:
        What each client reports, and the sums over those whose training arrives.
    """
    round = opening.round
    num_replicates, num_selected = selection.ids.shape
    replicates, clients = devices.pairs(num_replicates, selection.ids)
    job_keys = jax.vmap(lambda s, k: keys.of_client(opening.streams.training[s], round, k))(replicates, clients)
    wanted = [r for r in plan.strategy.requests if r.kind == "training_loss" and r.who == SELECTED]
    statistic = wanted[0].option("statistic", "mean") if wanted else None

    def train(given: ToTrain, job):
        replicate, who, key, arrives = job
        federation, received = given.federation, given.received(replicate)
        kept = given.kept(replicate, who)
        memory = given.memory(replicate, kept)
        result = client.train_and_report(
            plan.trainer, federation, received, replicate, who, key, given.round, statistic, kept.optimizer, memory
        )
        report = plan.trainer.optimizer.report(result.finished, memory)
        # The server does not have the change of a client whose report is lost.
        own = jax.tree.map(lambda new, old: jnp.where(arrives, new, old), report.own, memory.own)
        sums = Sums((report.averaged, result.update.carried), report.contributed)
        part = fed.loss_part(federation, replicate, who, plan.loss_on)
        trained = jax.tree.map(jnp.add, received, result.update)
        finite = server.is_finite(sums)
        told = Trained(
            result.update.trained if keep_updates else None,
            finite,
            client.loss(plan.trainer, federation, received, part),
            client.loss(plan.trainer, federation, trained, part),
            result.training_loss,
            Kept(None if kept.optimizer is None else result.optimizer_state, own),
        )
        return told, server.finite_part(sums, finite)

    jobs = (replicates, clients, job_keys, reports.mask.reshape(-1))
    num_clients = opening.federation.starts.shape[1]
    factors = Sums(weights, jnp.where(reports.mask, 1.0 / num_clients, 0.0))
    told, sums = devices.spread_and_add(plan.mesh, train, to_train(opening), jobs, plan.clients_at_once, factors)
    trained: Trained = devices.unflatten(told, num_replicates)
    if not keep_updates:
        nothing = jax.tree.map(
            lambda w: jnp.zeros((w.shape[0], num_selected, *w.shape[1:]), w.dtype), opening.params.trained
        )
        trained = trained._replace(updates=nothing)
    return trained, sums


def _weights(plan: Plan, opening: Opening, state: Any, info: Information, selection: Selection) -> jax.Array:
    """Aggregation weights, float32 [S, K]: the strategy's own where it derives them, else the runner's rule."""
    unbiased, chance = plan.aggregation == "unbiased", reporting.chance(opening)
    if selection.weights is not None:
        own = jnp.where(selection.mask, selection.weights, 0.0)
        # A strategy weighs those whom it can reach, as if they were all, and does not know what is lost.
        return own * jnp.reshape(reporting.share_there(opening) / chance, (-1, 1)) if unbiased else own
    all_sizes = opening.federation.train_sizes
    sizes, inclusion = jnp.take_along_axis(all_sizes, selection.ids, axis=1), None
    if unbiased:
        expected = plan.strategy.inclusion
        assert expected is not None, "refused before the run"
        of_all = jax.vmap(lambda state, info, there: expected(state, info, opening.round, there))(
            state, info, opening.available
        )
        assert of_all is not None, "refused before the run"
        inclusion = jnp.take_along_axis(of_all, selection.ids, axis=1) * jnp.reshape(chance, (-1, 1))
    of = jax.vmap(partial(server.cohort_weights, plan.aggregation))
    return of(sizes, selection.mask, all_sizes.sum(axis=1), inclusion)


def many_rounds(
    plan: Plan,
    length: int,
    some_are_idle: bool,
    carry: Carry,
    first: jax.Array,
    federation: Federation,
    streams: Streams,
) -> tuple[Carry, Records]:
    """A chunk: `length` rounds from `first`, on one program whatever `first` is. Rounds past the end do nothing.

    Args:
        plan: static.
        length: rounds; static.
        some_are_idle: whether the last chunk goes past the end; static.
        carry: the state at `first`.
        first: rounds before them, int32 scalar.
        federation: the data.
        streams: random streams.

    Returns:
        The carry and the records with leading axes [length, S].
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
