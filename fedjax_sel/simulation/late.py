"""Synchronous rounds that use late reports (REFL, Abdelmoniem et al. 2023).

A report that arrives after its round is aggregated in the round in which it arrives, with a weight that falls with its
staleness. Its client is unavailable until then, so a table with a row per client holds all late reports. To the
strategy, a late report is lost. Shapes: S replicates, N clients, K places of a cohort.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel import tasks
from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import asynchronous, clock, queries, round
from fedjax_sel.simulation.asynchronous import Flight
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.state import Carry, Plan, Records, written
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.training.server import StalenessWeight


class LateReports(NamedTuple):
    """The late report of each client, leaves [S, N, ...]."""

    in_flight: jax.Array  # whether the client has a late report, bool
    remaining: jax.Array  # seconds from the start of the round to the report; negative: it waits for the server
    version: jax.Array  # server steps before the dispatch, int32
    weights: jax.Array  # the strategy's own aggregation weights; zero without
    finite: jax.Array  # bool
    report: Any  # the update, and the change of non-trained model state


def empty_flight(plan: Plan, carry: Carry) -> Flight:
    """Return a table without reports, from the state before the first round."""
    shape = carry.start.asked.shape
    real, no = jnp.zeros(shape), jnp.zeros(shape, bool)
    report = jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape[1:]), leaf.dtype), tuple(carry.params))
    table = LateReports(no, real, jnp.zeros(shape, jnp.int32), real, no, report)
    return Flight(table, table.version[:, 0])


def one_step(
    plan: Plan, carry: Carry, number: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """Run one round of all replicates; arguments and results are those of `round.one_round`."""
    assert plan.asynchrony is not None and plan.clock is not None
    (table, version), num_places = carry.flight, plan.num_places
    context = round.open_round(plan, carry, number, federation, streams)
    idle = ~table.in_flight if context.available is None else context.available & ~table.in_flight
    context = context._replace(available=idle)

    cohort, known = round.select(context)
    reads = round.outcome_reads(context, cohort, known)
    cohort = clock.time_cohort(context, cohort, known.bill, reads)
    selection, reports = cohort.selection, cohort.reports
    known = protocol.query_cohort(partial(queries.measure, context), known, selection, reports.mask)
    late = cohort.late
    assert cohort.seconds is not None and late is not None and known.bill.time is not None
    started = selection.mask.any(axis=1)
    arrives, seconds = arrivals(table, known.bill.time.elapsed, started, cohort.seconds)
    cohort = cohort._replace(seconds=seconds)

    # The cohort's reports, then the table's rows. A report that is too old is billed, and not aggregated.
    staleness = jnp.where(arrives, version[:, None] - table.version, 0)
    oldest = plan.asynchrony.max_staleness
    used = arrives if oldest is None else arrives & (staleness <= oldest)
    clients = jnp.broadcast_to(jnp.arange(arrives.shape[1], dtype=jnp.int32), arrives.shape)
    ids = _join(selection.ids, clients)
    own = None if selection.weights is None else _join(selection.weights, table.weights)
    aggregated = cohort._replace(reports=Selection(ids, own, _join(reports.mask, used)))
    of_cohort, of_table = jnp.split(round.cohort_weights(context, aggregated, known), [num_places], axis=1)
    trained, sums = round.train_cohorts(context, cohort, of_cohort, reads)
    known = queries.enter_training_losses(context, known, reports, trained.training_loss)
    in_time = jnp.where(trained.finite, of_cohort, 0.0).sum(axis=1)
    mean = jax.vmap(lambda update, total: jax.tree.map(lambda leaf: leaf / jnp.where(total > 0, total, 1.0), update))
    of_table *= factors(plan.asynchrony.weight, staleness, table, used, mean(sums.averaged[0], in_time))
    late_sums = asynchronous.sums(plan, table.report, table.finite, of_table)
    weights, finite = _join(of_cohort, of_table), _join(trained.finite, table.finite)
    step = round.aggregate(
        context, aggregated, trained._replace(finite=finite), jax.tree.map(jnp.add, sums, late_sums), weights
    )
    known = round.learn(context, cohort, known, trained, step, of_cohort, reads)

    is_late = jnp.isfinite(late)
    ended = cohort._replace(
        selection=Selection(ids, None, _join(selection.mask & ~is_late, arrives)),
        reports=Selection(ids, None, _join(reports.mask, arrives)),
        started=selection,
    )
    records = round.record(context, ended, known.bill, trained._replace(finite=finite), step, weights, reads)
    mean_staleness = staleness.sum(axis=1) / ended.reports.mask.sum(axis=1)
    records = records._replace(
        cohort=jnp.where(selection.mask, selection.ids, -1),
        nonfinite=(reports.mask | is_late) & ~trained.finite,
        measured=records.measured | {tasks.STALENESS: mean_staleness.astype(jnp.float32)},
    )
    table = table._replace(
        in_flight=table.in_flight & ~arrives, remaining=table.remaining - records.measured[tasks.SECONDS][:, None]
    )
    new = LateReports(
        in_flight=is_late,
        remaining=late - (seconds + plan.clock.server_seconds)[:, None],
        version=jnp.broadcast_to(version[:, None], is_late.shape),
        weights=jnp.zeros(is_late.shape) if selection.weights is None else selection.weights,
        finite=trained.finite,
        report=(trained.updates, trained.carried),
    )
    version += (aggregated.reports.mask & finite).any(axis=1)
    carry = round.close_round(context, selection, trained, reports, known, step, records)
    return carry._replace(flight=Flight(written(table, new.in_flight, selection.ids, new), version)), records


def arrivals(
    table: LateReports, elapsed: jax.Array, started: jax.Array, seconds: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the reports of the table that arrive in a round, bool [S, N], and its training phase's duration, [S].

    The phase starts after `elapsed` seconds, [S], and lasts `seconds`, [S]; without a `started` client, bool [S], it
    lasts until the next report of the table.
    """
    following = jnp.where(table.in_flight, table.remaining, jnp.inf).min(axis=1)
    waits = ~started & table.in_flight.any(axis=1)
    end = jnp.where(waits, jnp.maximum(following, elapsed), elapsed + seconds)
    return table.in_flight & (table.remaining <= end[:, None]), jnp.where(waits, end - elapsed, seconds)


def factors(weight: StalenessWeight, staleness: jax.Array, table: LateReports, used: jax.Array, mean: Any) -> jax.Array:
    """Return the factors of the weights of the `used` reports of a table, [S, N].

    REFL (Sec. 4.2) compares the `mean` of the n reports in time, leaves [S, ...], with that mean after the late update
    u: ||(n mean + u) / (n + 1) - mean||^2 / ||mean||^2. Its share of the largest is that of ||u - mean||^2.
    """
    factor = weight.factor(staleness)
    if not weight.beta:
        return factor

    def squares(leaf: jax.Array, mean: jax.Array) -> jax.Array:
        return jnp.square(leaf - mean[:, None]).reshape(*staleness.shape, -1).sum(axis=2)

    distances: Any = sum(jax.tree.leaves(jax.tree.map(squares, table.report[0], mean)))
    distances = jnp.where(used & table.finite, distances, 0.0)
    largest = distances.max(axis=1, keepdims=True)
    shares = distances / jnp.where(largest > 0, largest, 1.0)
    return (1.0 - weight.beta) * factor + weight.beta * (1.0 - jnp.exp(-shares))


def _join(of_cohort: jax.Array, of_table: jax.Array) -> jax.Array:
    return jnp.concatenate([of_cohort, of_table], axis=1)
