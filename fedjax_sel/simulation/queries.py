"""Queries for the facts that a strategy requests: measurement on clients, probes, tables of answers, and the bill."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from fedjax_sel import devices
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Model
from fedjax_sel.models.core import Weights
from fedjax_sel.numerics import sampling
from fedjax_sel.simulation import availability, clock, keys
from fedjax_sel.simulation.state import Bill, Kept, RoundContext, Time, ToTrain, distinct, to_train
from fedjax_sel.strategies import facts, protocol
from fedjax_sel.strategies.contract import Fact, Information, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, KINDS, NEVER, SELECTED, Request
from fedjax_sel.strategies.protocol import SelectionState
from fedjax_sel.training import client, server
from fedjax_sel.training.client import Trainer
from fedjax_sel.training.optimizers import Memory


class Question(NamedTuple):
    """A request to one client, with the inputs of its answer."""

    trainer: Trainer  # static
    request: Request  # static
    loss_on: str  # part of the data that losses are measured on by default; static
    federation: Federation
    params: Weights
    kept: Kept  # the client's row of the client table; an answer leaves it unchanged
    memory: Memory  # the federated optimizer's memory: this client's and the server's
    replicate: jax.Array  # int32 scalar
    who: jax.Array  # client ID, int32 scalar
    training_key: jax.Array  # this client's key for training in this round
    facts_key: jax.Array  # this client's key for choosing examples in this round
    round: jax.Array  # t, int32 scalar


def _loss(question: Question) -> jax.Array:
    request, on = question.request, question.request.option("on") or question.loss_on
    part = fed.loss_part(question.federation, question.replicate, question.who, on)
    common = (question.trainer, question.federation, question.params, part)
    if request.option("batch_size"):
        return client.batch_loss(*common, question.facts_key, request.option("batch_size"))
    return client.loss(*common, request.option("statistic", "mean"))


def _train(question: Question, statistic: str | None) -> client.LocalResult:
    return client.train_and_report(
        question.trainer, question.federation, question.params, question.replicate, question.who,
        question.training_key, question.round, statistic, question.kept.optimizer, question.memory,
    )  # fmt: skip


def _whole(question: Question) -> tuple[Trainer, Federation, Weights, fed.Segment]:
    all_examples = fed.all_parts(question.federation, question.replicate, question.who)
    return question.trainer, question.federation, question.params, all_examples


ANSWERS: Mapping[str, Callable[[Question], jax.Array]] = {
    "loss": _loss,
    "training_loss": lambda question: _train(question, question.request.option("statistic", "mean")).training_loss,
    "profile": lambda question: client.profile(*_whole(question), question.request.option("relu", False)),
    "gradient": lambda question: ravel_pytree(client.gradient(*_whole(question)))[0],
    "update": lambda question: ravel_pytree(_train(question, None).update.trained)[0],
    "label_histogram": lambda question: question.federation.label_counts[question.replicate, question.who].astype(
        jnp.float32
    ),
    "update_norm": lambda question: jnp.linalg.norm(ravel_pytree(_train(question, None).update.trained)[0]),
}
"""Kind of fact -> function that computes one client's entry of the table.

`loss_change` combines several losses (`_loss_change`); the server evaluates `server_metrics` and `subset_loss`."""


def empty_bill(num_replicates: int, num_clients: int, num_requests: int, timed: bool) -> Bill:
    """Return the bill of a round without requests; `timed`: whether there is a clock."""
    zero = jnp.zeros((num_replicates,), jnp.int32)
    no_clients = jnp.zeros((num_replicates, num_clients), bool)
    answers = jnp.zeros((num_replicates, num_requests), jnp.int32)
    time = Time(jnp.zeros((num_replicates, num_clients)), jnp.zeros((num_replicates,))) if timed else None
    return Bill(no_clients, no_clients, answers, zero, zero, zero, zero, zero, zero, time)


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


def probe_round(context: RoundContext, number: int) -> Probe:
    """Train a uniformly random cohort and take the server's step on its reports (FedCor, Alg. 2, lines 4-8).

    The result equals the model of a round with this cohort: the same federated optimizer, lost reports, and server
    optimizer. The optimizers' memories stay unchanged. `number` is the index of the probe in this round.
    """
    plan, federation, available = context.plan, context.federation, context.available
    trainer = plan.trainer
    num_replicates, num_clients = federation.starts.shape
    own = jax.vmap(lambda stream: keys.of_probe(stream, context.round, number))(context.streams.facts)

    def draw(key: jax.Array, available: jax.Array | None) -> jax.Array:
        key = jax.random.fold_in(key, keys.COHORT)
        return sampling.uniform_without_replacement(key, num_clients, plan.num_selected, available)

    cohorts = jax.vmap(draw)(own, available)
    took_part = jnp.ones(cohorts.shape, bool) if available is None else jnp.take_along_axis(available, cohorts, axis=1)
    replicates, clients = devices.pairs(num_replicates, cohorts)
    job_keys = jax.vmap(lambda s, k: jax.random.fold_in(own[s], k))(replicates, clients)

    def train(shared: ToTrain, job):
        replicate, who, key = job
        kept = shared.kept(replicate, who)
        memory, received = shared.memory(replicate, kept), shared.received(replicate)
        result = client.train_and_report(
            trainer, shared.federation, received, replicate, who, key, shared.round, None, kept.optimizer, memory
        )
        averaged = trainer.optimizer.report(result.finished, memory).averaged, result.update.carried
        finite = server.is_finite(averaged)
        return (finite, result.num_examples), server.finite_part(averaged, finite)

    reported = availability.arrives(plan.report_failure_rate, context.streams, context.round, cohorts, took_part)
    weights = _weights(context, cohorts, reported)
    jobs = (replicates, clients, job_keys)
    reports, sums = devices.spread_and_add(plan.mesh, train, to_train(context), jobs, plan.facts_at_once, weights)
    finite, num_examples = devices.unflatten(reports, num_replicates)
    mean, carried = jax.vmap(server.mean_of_reports)(sums, weights, finite)
    mean_update = Weights(jax.vmap(trainer.optimizer.combine)(mean), carried)
    step = jax.vmap(partial(server.new_model, plan.server))
    return Probe(
        params=step(context.carry.server, context.carry.params, mean_update, (reported & finite).any(axis=1))[0],
        took_part=took_part,
        reported=reported,
        num_examples=jnp.where(took_part, num_examples, 0).sum(axis=1, dtype=jnp.int32),
        cohorts=cohorts,
        work=num_examples,
    )


def _weights(context: RoundContext, cohorts: jax.Array, reported: jax.Array) -> jax.Array:
    """Return aggregation weights by the configured rule, float32 [S, K]."""
    all_sizes = context.federation.train_sizes
    sizes = jnp.take_along_axis(all_sizes, cohorts, axis=1)
    available = context.available
    num_reached = jnp.full(all_sizes.shape[:1], all_sizes.shape[1]) if available is None else available.sum(1)
    inclusion = jnp.minimum(
        1.0, context.plan.num_selected / jnp.maximum(num_reached, 1)
    ) * availability.arrival_probability(context)

    def weights_of(sizes: jax.Array, mask: jax.Array, total: jax.Array, inclusion: jax.Array) -> jax.Array:
        return server.cohort_weights(context.plan.aggregation, sizes, mask, total, jnp.full(sizes.shape, inclusion))

    return jax.vmap(weights_of)(sizes, reported, all_sizes.sum(axis=1), inclusion)


# The protocol (`strategies/protocol.py`) decides which clients to query, and when; it calls `measure`. Facts are
# measured at the round's model w^t, for all replicates at once. Shapes: S replicates, N clients, M queried clients.
def empty(strategy: Strategy, model: Model, num_replicates: int, num_clients: int, num_classes: int) -> Information:
    """Return fact tables without any measurement."""
    return protocol.empty_information(strategy, clock.counts_of(model, num_classes), num_replicates, num_clients)


def measure(
    context: RoundContext, info: Information, bill: Bill, who: str, ids=None, mask=None, arrives=None
) -> tuple[Information, Bill]:
    """Measure the facts requested of one group of clients that are due in this round (`serve` in the protocol).

    A request's schedule depends on the round number alone, which is never batched, so `cond` stays a real branch.
    `ids` are the queried clients, int32 [S, M]; None: all clients. `mask` marks the available ones, bool [S, M]; None:
    as in `context.available`. `arrives` marks those whose answer arrives, bool [S, M]; None: all available ones.
    """
    for position, request in protocol.requests_to(context.plan.strategy, who):
        if request.kind == "training_loss" and who == SELECTED:
            continue  # a by-product of the cohort's training; see `enter_training_losses`

        def served(state: tuple[Information, Bill], position: int = position) -> tuple[Information, Bill]:
            return _serve(context, *state, position, ids, mask, arrives)

        if request.when.in_every_round:
            info, bill = served((info, bill))
        else:
            info, bill = lax.cond(request.when.due(context.round), served, lambda state: state, (info, bill))
    # The cohort's answers belong to its training, which `clock.time_cohort` times.
    return info, bill if who == SELECTED else clock.end_exchange(bill)


def measure_at_start(context: RoundContext, info: Information, bill: Bill) -> tuple[Information, Bill]:
    """Measure the facts due before the first round; the first round bills them."""
    for position, _ in protocol.requests_at_start(context.plan.strategy):
        info, bill = _serve(context, info, bill, position, None, None, None, at_start=True)
    return info, clock.end_exchange(bill)


def enter_training_losses(
    context: RoundContext, known: SelectionState, reports: Selection, losses: jax.Array
) -> SelectionState:
    """Enter the training losses, [S, K] in nats, that the cohort reports with its updates, if they are requested."""
    info, bill = known.now.info, known.bill
    for position, request in enumerate(context.plan.strategy.requests):
        if request.kind == "training_loss" and request.who == SELECTED:
            due = reports.mask & request.when.due(context.round)
            # The training itself is already billed as the cohort's.
            info, bill = _enter(context, info, bill, position, reports.ids, due, due, losses)
    return known._replace(now=known.now._replace(info=info), bill=bill)


def _serve(
    context: RoundContext, info: Information, bill: Bill, position: int, ids, mask, arrives, at_start: bool = False
) -> tuple[Information, Bill]:
    """Query clients and enter the answers that arrive.

    Args:
        context: the round.
        info: the tables of facts.
        bill: the bill so far.
        position: index of the request in the strategy's `requests`.
        ids: clients to query, int32 [S, M]; None: all.
        mask: which of them are queried, bool [S, M]; None: the available ones.
        arrives: whose answer arrives, bool [S, M]; None: all that are queried.
        at_start: whether this is before the first round.
    """
    request = context.plan.strategy.requests[position]
    num_replicates, num_clients = context.federation.starts.shape
    if ids is None:
        ids = jnp.broadcast_to(jnp.arange(num_clients, dtype=jnp.int32), (num_replicates, num_clients))
    if mask is None:
        available = context.available
        mask = jnp.ones(ids.shape, bool) if available is None else jnp.take_along_axis(available, ids, axis=1)
    if request.kind == "loss_change":
        values, bill = _loss_change(context, request, bill, ids, mask)
    elif request.kind == "seconds":
        values = clock.profiled(context, ids)
    else:
        values = _answers(context, request, context.carry.params, ids)
    return _enter(context, info, bill, position, ids, mask, mask if arrives is None else arrives, values, at_start)


def _enter(
    context: RoundContext, info: Information, bill: Bill, position: int, ids, queried, arrives, values, at_start=False
) -> tuple[Information, Bill]:
    """Write arriving answers into their table, make losses finite, and bill the answers and the work of all queried.

    `ids`, `queried` and `arrives` are [S, M]; `values` is [S, M] with the shape of an answer after it.
    """
    request = context.plan.strategy.requests[position]
    fact: Fact = getattr(info, request.kind)
    ages_now = jnp.zeros(ids.shape, jnp.int32)
    if KINDS[request.kind].is_loss:
        measured = (fact.age < NEVER).reshape(*fact.age.shape, *[1] * (fact.value.ndim - 2))
        largest = jnp.where(measured, fact.value, -jnp.inf).max(axis=tuple(range(1, fact.value.ndim)))
        values, missing, replaced = jax.vmap(availability.replace_nonfinite)(values, arrives, largest)
        if request.option("nonfinite") == "missing":
            ages_now = jnp.where(missing, NEVER, 0)
        bill = bill._replace(losses_replaced=bill.losses_replaced + replaced)
    num_clients = fact.age.shape[1]
    rows = jnp.where(arrives, ids, num_clients)  # row N does not exist: lost answers are dropped

    def write(table, ages, rows, values, now):
        return table.at[rows].set(values, mode="drop"), ages.at[rows].set(now, mode="drop")

    value, ages = jax.vmap(write)(fact.value, fact.age, rows, values, ages_now)
    clients_in = jax.vmap(partial(distinct, num_clients=num_clients))
    asked, answered, kind = clients_in(ids, queried), clients_in(ids, arrives), KINDS[request.kind]
    examples = clock.evaluated(request, context.federation, context.plan.loss_on)
    work = jnp.where(asked, examples, 0).sum(axis=1)
    bill = clock.add_query(context, bill, request, asked, examples, at_start)
    bill = bill._replace(
        asked=bill.asked | asked if kind.needs_model else bill.asked,
        trained=bill.trained | asked if kind.trains else bill.trained,
        answers=bill.answers.at[:, position].add(answered.sum(axis=1, dtype=jnp.int32)),
        examples_evaluated=bill.examples_evaluated + work,
    )
    return info.replace(request.kind, Fact(value, ages)), bill


def _answers(context: RoundContext, request: Request, params: Weights, ids: jax.Array) -> jax.Array:
    """Return each client's answer at the models `params`: [S, M, ...]."""
    streams, round = context.streams, context.round
    replicates, clients = devices.pairs(ids.shape[0], ids)

    def keys_of(stream: jax.Array) -> jax.Array:
        return jax.vmap(lambda s, k: keys.of_client(stream[s], round, k))(replicates, clients)

    def answer(shared: ToTrain, job: Any) -> jax.Array:
        replicate, who, training_key, facts_key = job
        kept = shared.kept(replicate, who)
        question = Question(
            context.plan.trainer, request, context.plan.loss_on, shared.federation, shared.received(replicate), kept,
            shared.memory(replicate, kept), replicate, who, training_key, facts_key, shared.round,
        )  # fmt: skip
        return ANSWERS[request.kind](question)

    jobs = (replicates, clients, keys_of(streams.training), keys_of(streams.facts))
    values = devices.spread(context.plan.mesh, answer, to_train(context, params), jobs, context.plan.facts_at_once)
    return devices.unflatten(values, ids.shape[0])


def _loss_change(context: RoundContext, request: Request, bill: Bill, ids, mask) -> tuple[jax.Array, Bill]:
    """Return each client's loss at each probe's model minus its loss at w^t, [S, M, probes], and the new bill.

    With the option `restored`, clients restore w^t before the second evaluation, so the change is zero. Clients still
    train, receive a model and report, so the cost is the same.
    """
    as_loss = Request("loss", ALL, request.when, tuple(pair for pair in request.options if pair[0] == "on"))
    before = _answers(context, as_loss, context.carry.params, ids)
    num_clients = context.federation.starts.shape[1]
    answered = jax.vmap(partial(distinct, num_clients=num_clients))(ids, mask)
    changes = []
    for probe in range(facts.num_probes(request)):
        probed = probe_round(context, probe)
        after = before if request.option("restored", False) else _answers(context, as_loss, probed.params, ids)
        changes.append(after - before)
        bill = add_probe(context, bill, probed, answered)
    return jnp.stack(changes, axis=-1), bill
