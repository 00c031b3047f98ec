"""Asynchronous rounds: C clients train at any time, and the server steps after K reports (FedBuff, Nguyen et al. 2022).

A round dispatches w^t to K idle clients, which train at once: an update depends only on the model that its client
received. The reports wait in a table of C places. The K earliest of the table end the round: the server aggregates them
with weights that fall with their staleness, the number of its steps since their dispatch. With C = K, this is a
synchronous round. The first rounds only fill the table. Shapes: S replicates, N clients.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel import devices, tasks
from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import clock, noise, queries, round, state
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.ledger import distinct
from fedjax_sel.simulation.state import Carry, Cohort, Plan, Records, RoundContext, Sums, Trained
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.contract import Fact, Information, Selection
from fedjax_sel.strategies.facts import NEVER, SELECTED
from fedjax_sel.strategies.protocol import OutcomeReads


class Reports(NamedTuple):
    """A table of reports, leaves [S, C, ...], or some of its rows."""

    ids: jax.Array  # int32
    in_flight: jax.Array  # whether the place holds a report, bool
    arrives: jax.Array  # whether the report will reach the server, bool
    remaining: jax.Array  # seconds from the start of the round to the report; negative: it waits for the server
    number: jax.Array  # of the dispatch, int32; of reports at the same time, the lower number is first
    version: jax.Array  # server steps before the dispatch, int32
    duration: jax.Array  # seconds from the dispatch to the report
    weights: jax.Array  # the strategy's own aggregation weights; zero without
    trained: Trained  # with updates and carried state, and without rows of the client table
    answers: dict[str, Fact]  # what the cohort was asked, by kind of fact; the ages are those at the dispatch


class Flight(NamedTuple):
    """The reports in flight, and the server's version."""

    reports: Any  # `Reports`, or `late.LateReports`
    version: jax.Array  # server steps so far, int32 [S]


def empty_flight(plan: Plan, carry: Carry) -> Flight:
    """Return a table without reports, from the state before the first round."""
    assert plan.asynchrony is not None and plan.asynchrony.concurrency is not None
    shape = len(jax.tree.leaves(carry.params)[0]), plan.asynchrony.concurrency
    whole, real, no = jnp.zeros(shape, jnp.int32), jnp.zeros(shape), jnp.zeros(shape, bool)

    def rows(leaf: jax.Array, skip: int) -> jax.Array:
        return jnp.zeros((*shape, *leaf.shape[skip:]), leaf.dtype)

    updates, carried = jax.tree.map(partial(rows, skip=1), tuple(carry.params))
    trained = Trained(updates, no, real, real, real, real, None, carried)  # pyright: ignore
    tables = {kind: getattr(carry.info, kind) for kind in _answered(plan)}
    answers = jax.tree.map(partial(rows, skip=2), tables)
    return Flight(Reports(whole, no, no, real, whole, whole, real, real, trained, answers), whole[:, 0])


def one_step(
    plan: Plan, carry: Carry, number: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """Run one asynchronous round of all replicates; arguments and results are those of `round.one_round`."""
    assert plan.asynchrony is not None and plan.clock is not None
    table, version = carry.flight
    num_clients, num_places = federation.starts.shape[1], plan.num_places
    context = round.open_round(plan, carry, number, federation, streams)
    available = context.available
    # With C = K, no report is in flight at the start of a round.
    idle = available if plan.asynchrony.concurrency == num_places else _idle(table, available, num_clients)
    context = context._replace(available=idle)

    # Dispatch. The answers of the cohort travel with its reports, so the fact tables do not have them yet.
    dispatched, known = round.select(context)
    reads = round.outcome_reads(context, dispatched, known)
    selection, arrives = dispatched.selection, dispatched.reports.mask
    durations = clock.durations_of(context, selection.ids, known.bill, reads)
    arrives = clock.stay_online(context, selection.ids, known.bill, durations, arrives)
    last = durations
    if federation.deadline is not None:  # the server then gives the client up
        arrives &= durations <= federation.deadline[:, None] * (1.0 + clock.ROUNDING)
        last = jnp.where(arrives, durations, federation.deadline[:, None])
    dispatched = dispatched._replace(reports=selection._replace(mask=arrives))
    asked = protocol.query_cohort(partial(queries.measure, context), known, selection, arrives)
    known = known._replace(bill=asked.bill)
    trained = _train(context, dispatched, reads)
    none = jnp.zeros(selection.ids.shape)
    new = Reports(
        ids=selection.ids,
        in_flight=selection.mask,
        arrives=arrives,
        remaining=last,
        number=jnp.broadcast_to(number * num_places + jnp.arange(num_places, dtype=jnp.int32), selection.ids.shape),
        version=jnp.broadcast_to(version[:, None], selection.ids.shape),
        duration=durations,
        weights=none if selection.weights is None else selection.weights,
        trained=trained._replace(kept=None),  # pyright: ignore
        answers=_take({kind: getattr(asked.now.info, kind) for kind in _answered(plan)}, selection.ids),
    )
    assert known.bill.time is not None
    table = dispatch(table, new, known.bill.time.elapsed)
    more = selection.mask.any(axis=1) & (_idle(table, available, num_clients).sum(axis=1) >= num_places)
    table, ended, wait = wait_for(table, num_places, more, plan.clock.server_seconds)
    if plan.asynchrony.concurrency != num_places:
        ended = ended._replace(ids=_without_stale(ended, num_clients))

    # Aggregate and learn. A report that is too old is billed, and the strategy sees it.
    staleness = jnp.where(ended.in_flight, version[:, None] - ended.version, 0)
    own = None if selection.weights is None else ended.weights
    received = ended.in_flight & ended.arrives
    reports = Selection(ended.ids, own, received)
    oldest = plan.asynchrony.max_staleness
    used = reports if oldest is None else reports._replace(mask=received & (staleness <= oldest))
    cohort = Cohort(
        named=dispatched.named,
        selection=Selection(ended.ids, own, ended.in_flight),
        reports=reports,
        durations=jnp.where(received, ended.duration, 0.0),
        seconds=wait,
        started=selection,
        staleness=staleness,
    )
    aggregated = cohort._replace(reports=used)
    weights = round.cohort_weights(context, aggregated, known) * plan.asynchrony.weight.factor(staleness)
    info = _enter(known.now.info, ended, received, number - ended.number // num_places)
    # `update` sees each reporting client as available, also if its dispatch was in an earlier round.
    reporting = distinct(ended.ids, ended.in_flight, num_clients)
    known = known._replace(now=known.now._replace(info=info, available=None if idle is None else idle | reporting))
    known = queries.enter_training_losses(context, known, reports, ended.trained.training_loss)
    of_ended = sums(plan, (ended.trained.updates, ended.trained.carried), ended.trained.finite, weights)
    step = round.aggregate(context, aggregated, ended.trained, of_ended, weights)
    known = round.learn(context, cohort, known, ended.trained, step, weights, reads)
    records = round.record(context, cohort, known.bill, ended.trained, step, weights, reads)
    mean_staleness = jnp.where(received, staleness, 0).sum(axis=1) / received.sum(axis=1)
    records = records._replace(
        cohort=jnp.where(selection.mask, selection.ids, -1),
        nonfinite=arrives & ~trained.finite,
        measured=records.measured | {tasks.STALENESS: mean_staleness.astype(jnp.float32)},
    )
    finite = ended.trained.finite | (plan.private_training is not None)  # then the noise alone is a step, too
    version += (used.mask & finite).any(axis=1)
    carry = round.close_round(context, selection, trained, reports, known, step, records)
    return carry._replace(flight=Flight(table, version)), records


def dispatch(table: Reports, new: Reports, elapsed: jax.Array) -> Reports:
    """Return the table, leaves [S, C, ...], after `elapsed` seconds, [S], with the `new` reports, leaves [S, K, ...].

    At least K places are empty.
    """
    table = table._replace(remaining=table.remaining - elapsed[:, None])
    empty = jnp.argsort(table.in_flight, axis=1, stable=True)[:, : new.ids.shape[1]]
    put = jax.vmap(lambda table, places, rows: jax.tree.map(lambda leaf, row: leaf.at[places].set(row), table, rows))
    return put(table, empty, new)


def wait_for(table: Reports, count: int, more: jax.Array, server_seconds: float) -> tuple[Reports, Reports, jax.Array]:
    """Take the `count` earliest reports from the table, when the last of them arrives.

    Reports that are lost count, too. The server takes none and waits no time if `more`, bool [S], marks that it can
    start `count` further clients, and the table has room for them.

    Returns:
        The table after the wait and `server_seconds`; the taken reports in the order of their dispatch, leaves
        [S, count, ...], not `in_flight` for none; and the seconds until the last of them arrives, [S].
    """
    remaining = jnp.where(table.in_flight, table.remaining, jnp.inf)
    places = jnp.lexsort((table.number, remaining), axis=1)[:, :count]
    order = jnp.argsort(jnp.take_along_axis(table.number, places, axis=1), axis=1, stable=True)
    places = jnp.take_along_axis(places, order, axis=1)
    starts_more = more & ((~table.in_flight).sum(axis=1) >= count)
    taken = _take(table, places)
    taken = taken._replace(in_flight=taken.in_flight & ~starts_more[:, None])
    seconds = jnp.where(taken.in_flight, taken.remaining, 0.0).max(axis=1, initial=0.0)
    leave = jax.vmap(lambda in_flight, places, taken: in_flight.at[places].set(in_flight[places] & ~taken))
    table = table._replace(
        in_flight=leave(table.in_flight, places, taken.in_flight),
        remaining=table.remaining - (seconds + server_seconds)[:, None],
    )
    return table, taken, seconds


def _idle(table: Reports, available: jax.Array | None, num_clients: int) -> jax.Array:
    """Return the mask of available clients without a report in flight, bool [S, N]."""
    busy = distinct(table.ids, table.in_flight, num_clients)
    return ~busy if available is None else available & ~busy


def _without_stale(ended: Reports, num_clients: int) -> jax.Array:
    """Return the IDs of reports, [S, K], with those of clients without a report in the empty rows.

    `osmd` counts equal IDs as draws of one client.
    """
    others = jnp.argsort(distinct(ended.ids, ended.in_flight, num_clients), axis=1, stable=True)
    place = jnp.maximum(jnp.cumsum(~ended.in_flight, axis=1) - 1, 0)
    return jnp.where(ended.in_flight, ended.ids, jnp.take_along_axis(others, place, axis=1)).astype(jnp.int32)


def _answered(plan: Plan) -> list[str]:
    """Return the kinds of facts that the cohort is asked for; training losses are by-products of its training."""
    asked = {request.kind for _, request in protocol.requests_to(plan.strategy, SELECTED)}
    return sorted(asked - {"training_loss"})


def _train(context: RoundContext, cohort: Cohort, reads: OutcomeReads) -> Trained:
    """Return each client's training result, leaves [S, K, ...]."""
    plan = context.plan
    train = round.client_training(plan, reads, keep_updates=True, keep_carried=True)
    jobs = round.training_jobs(context, cohort)
    results = devices.spread(
        plan.mesh, lambda shared, job: train(shared, job)[0], state.to_train(context), jobs, plan.clients_at_once
    )
    return devices.unflatten(results, len(cohort.selection.ids))


def sums(plan: Plan, reports: Any, finite: jax.Array, weights: jax.Array) -> Sums:
    """Return the sums of the finite reports by `weights`, [S, C], with the arithmetic of `round.train_cohorts`.

    `reports` are the updates and the changes of non-trained model state, leaves [S, C, ...].
    """

    def addend(_: Any, job: Any) -> tuple[tuple[()], Sums]:
        update, finite = job
        return (), noise.addend(plan, Sums(update, ()), finite)

    jobs = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (reports, finite))
    return devices.spread_and_add(plan.mesh, addend, None, jobs, plan.clients_at_once, Sums(weights, weights))[1]


def _enter(info: Information, ended: Reports, received: jax.Array, rounds: jax.Array) -> Information:
    """Write the received answers, measured `rounds` ago, [S, K], into the fact tables, unless they have newer ones."""
    for kind, answer in ended.answers.items():
        fact: Fact = getattr(info, kind)
        age = jnp.minimum(answer.age + rounds, NEVER)
        newer = received & (age <= jnp.take_along_axis(fact.age, ended.ids, axis=1))
        info = info.replace(kind, state.written(fact, newer, ended.ids, Fact(answer.value, age)))
    return info


def _take(tree: Any, places: jax.Array) -> Any:
    """Return the rows `places`, int32 [S, K], of leaves [S, C, ...]."""
    return jax.vmap(lambda tree, places: jax.tree.map(lambda leaf: leaf[places], tree))(tree, places)
