"""The bill: what queries, probes and the cohort's training cost, in the ledger's events."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import clock, evaluation, ledger
from fedjax_sel.simulation.ledger import Bill, Events, distinct
from fedjax_sel.simulation.state import Cohort, RoundContext
from fedjax_sel.strategies.facts import KINDS


class Query(NamedTuple):
    """A request to some clients in this round."""

    position: int  # index in the strategy's `requests`; static
    ids: jax.Array  # int32 [S, M]
    asked: jax.Array  # clients that are queried, bool [S, M]
    arrives: jax.Array  # clients whose answer arrives, bool [S, M]
    at_start: bool = False  # whether this is before the first round; static


def add_answers(context: RoundContext, bill: Bill, query: Query) -> Bill:
    """Add the cost of a query: the answers that arrive, and the work of all queried clients."""
    request = context.plan.strategy.requests[query.position]
    kind, num_clients = KINDS[request.kind], context.federation.starts.shape[1]
    clients_in = partial(distinct, num_clients=num_clients)
    asked, answered = clients_in(query.ids, query.asked), clients_in(query.ids, query.arrives)
    examples = ledger.examples_evaluated(request, context.federation, context.plan.loss_on)
    bill = clock.add_query(context, bill, request, asked, examples, query.at_start)
    return bill._replace(
        asked=bill.asked | asked if kind.needs_model else bill.asked,
        trained=bill.trained | asked if kind.trains else bill.trained,
        answers=bill.answers.at[:, query.position].add(answered.sum(axis=1, dtype=jnp.int32)),
        examples_evaluated=bill.examples_evaluated + jnp.where(asked, examples, 0).sum(axis=1),
    )


class Probe(NamedTuple):
    """Result of a probe round."""

    params: Weights  # models after the server's step, [S, ...]
    took_part: jax.Array  # clients of the cohorts that trained, bool [S, K]
    reported: jax.Array  # clients whose report reached the server, bool [S, K]
    num_examples: jax.Array  # examples that the cohort trained on, int32 [S]
    cohorts: jax.Array  # client IDs, int32 [S, K]
    work: jax.Array  # examples that each client of the cohort would train on, int32 [S, K]


def add_probe(context: RoundContext, bill: Bill, probe: Probe, queried: jax.Array) -> Bill:
    """Add the cost of a probe round: its cohort's training and uploads, and its model for each of `queried` [S, N]."""
    bill = clock.add_probe(context, bill, probe.cohorts, probe.took_part, probe.work)
    return bill._replace(
        probe_models_down=bill.probe_models_down + queried.sum(axis=1, dtype=jnp.int32),
        probe_models_up=bill.probe_models_up + probe.reported.sum(axis=1, dtype=jnp.int32),
        probe_reports_lost=bill.probe_reports_lost + (probe.took_part & ~probe.reported).sum(axis=1, dtype=jnp.int32),
        examples_trained=bill.examples_trained + probe.num_examples,
    )


def round_events(
    context: RoundContext, cohort: Cohort, finite: jax.Array, bill: Bill, start: Bill, losses: int
) -> Events:
    """Return the round's ledger events.

    `finite` marks the finite updates, bool [S, K]. `start` is the cost of the facts measured before the first round,
    zero in later rounds. Each client reports 0 to 2 `losses` with its update.
    """
    plan, federation, round = context.plan, context.federation, context.round
    optimizer = plan.trainer.optimizer
    clients_in = partial(distinct, num_clients=federation.starts.shape[1])
    started = cohort.selection if cohort.started is None else cohort.started
    trains = clients_in(started.ids, started.mask)  # bool [S, N]
    reported = clients_in(cohort.reports.ids, cohort.reports.mask)
    work = ledger.examples_of_training(plan.trainer.work, federation.train_sizes, context.streams.training, round)
    evaluations = 0 if context.carry.evaluation is None else jnp.where(round == 0, 2, 1)
    on = ledger.examples_on(federation, plan.loss_on)
    arrived = reported.sum(axis=1, dtype=jnp.int32)
    models_up = arrived + bill.probe_models_up + start.probe_models_up

    def total(clients: jax.Array, examples: jax.Array) -> jax.Array:
        return jnp.where(clients, examples, 0).sum(axis=1)

    return Events(
        models_down=(trains | bill.asked | start.asked).sum(axis=1, dtype=jnp.int32)
        + bill.probe_models_down
        + start.probe_models_down,
        models_up=models_up,
        # Before the first round the optimizer's memory is zero and need not be sent.
        vectors_down=optimizer.vectors_down
        * ((trains | bill.trained).sum(axis=1, dtype=jnp.int32) + bill.probe_models_up + bill.probe_reports_lost),
        vectors_up=optimizer.vectors_up * arrived,
        answers=bill.answers + start.answers,
        floats_reported=losses * arrived + optimizer.floats_up * models_up,
        examples_trained=total(trains | bill.trained, work)
        + total(start.trained, work)
        + bill.examples_trained
        + start.examples_trained,
        examples_evaluated=bill.examples_evaluated + start.examples_evaluated + losses * total(trains, on),
        server_examples=jnp.full_like(arrived, evaluation.server_examples(plan, federation, evaluations)),
        losses_replaced=bill.losses_replaced + start.losses_replaced,
        reports_lost=(cohort.selection.mask & ~cohort.reports.mask).sum(axis=1, dtype=jnp.int32)
        + bill.probe_reports_lost
        + start.probe_reports_lost,
        updates_skipped=(cohort.reports.mask & ~finite).sum(axis=1, dtype=jnp.int32),
    )
