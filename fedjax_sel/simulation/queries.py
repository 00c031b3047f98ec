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
from fedjax_sel.models.core import Weights
from fedjax_sel.numerics import sampling
from fedjax_sel.simulation import availability, billing, clock, keys, noise
from fedjax_sel.simulation.billing import Probe, Query
from fedjax_sel.simulation.ledger import Bill, distinct
from fedjax_sel.simulation.state import Kept, RoundContext, ToTrain, to_train, written
from fedjax_sel.strategies import facts, protocol
from fedjax_sel.strategies.contract import Fact, Information, Selection
from fedjax_sel.strategies.facts import ALL, KINDS, NEVER, SELECTED, Request
from fedjax_sel.strategies.privacy import NO_NOISE
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


def probe_round(context: RoundContext, number: int) -> Probe:
    """Train a uniformly random cohort and take the server's step on its reports (FedCor, Alg. 2, lines 4-8).

    The result equals the model of a round with this cohort: the same federated optimizer, lost reports, and server
    optimizer. The optimizers' memories stay unchanged. `number` is the index of the probe in this round.
    """
    plan, federation, available = context.plan, context.federation, context.available
    trainer = plan.trainer
    num_replicates, num_clients = federation.starts.shape
    own = jax.vmap(lambda stream: keys.probe_key(stream, context.round, number))(context.streams.facts)

    def draw(key: jax.Array, available: jax.Array | None) -> jax.Array:
        key = jax.random.fold_in(key, keys.COHORT)
        return sampling.uniform_without_replacement(key, num_clients, plan.cohort_size, available)

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
        1.0, context.plan.cohort_size / jnp.maximum(num_reached, 1)
    ) * availability.arrival_probability(context)

    def weights_of(sizes: jax.Array, mask: jax.Array, total: jax.Array, inclusion: jax.Array) -> jax.Array:
        return server.cohort_weights(context.plan.aggregation, sizes, mask, total, jnp.full(sizes.shape, inclusion))

    return jax.vmap(weights_of)(sizes, reported, all_sizes.sum(axis=1), inclusion)


# The protocol (`strategies/protocol.py`) decides which clients to query, and when; it calls `measure`. Facts are
# measured at the round's model w^t, for all replicates at once. Shapes: S replicates, N clients, M queried clients.
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
        query = _query(context, bill, position, ids, mask, arrives)
        if request.when.in_every_round:
            info, bill = _serve(context, query, (info, bill))
        else:
            serve = partial(_serve, context, query)
            info, bill = lax.cond(request.when.due(context.round), serve, lambda known: known, (info, bill))
    # The cohort's answers belong to its training, which `clock.time_cohort` times.
    return info, bill if who == SELECTED else clock.end_exchange(bill)


def measure_at_start(context: RoundContext, info: Information, bill: Bill) -> tuple[Information, Bill]:
    """Measure the facts due before the first round; the first round bills them."""
    for position, _ in protocol.requests_at_start(context.plan.strategy):
        query = _query(context, bill, position, None, None, None)._replace(at_start=True)
        info, bill = _serve(context, query, (info, bill))
    return info, clock.end_exchange(bill)


def enter_training_losses(
    context: RoundContext, known: SelectionState, reports: Selection, losses: jax.Array
) -> SelectionState:
    """Enter the training losses, [S, K] in nats, that the cohort reports with its updates, if they are requested."""
    info, bill = known.now.info, known.bill
    for position, request in enumerate(context.plan.strategy.requests):
        if request.kind == "training_loss" and request.who == SELECTED:
            due = reports.mask & request.when.due(context.round)
            if context.plan.noise is not None:
                due &= noise.within_budget(context, bill, reports.ids)
            info, bill = _enter(context, Query(position, reports.ids, due, due), losses, info, bill)
    bill = bill._replace(asked=known.bill.asked, trained=known.bill.trained)  # the cohort's bill has model and training
    return known._replace(now=known.now._replace(info=info), bill=bill)


def _query(context: RoundContext, bill: Bill, position: int, ids, mask, arrives) -> Query:
    """Return the query of a request, with the defaults of `measure`; a client over its budget is not queried."""
    num_replicates, num_clients = context.federation.starts.shape
    if ids is None:
        ids = jnp.broadcast_to(jnp.arange(num_clients, dtype=jnp.int32), (num_replicates, num_clients))
    if mask is None:
        available = context.available
        mask = jnp.ones(ids.shape, bool) if available is None else jnp.take_along_axis(available, ids, axis=1)
    arrives = mask if arrives is None else arrives
    if context.plan.noise is not None and context.plan.strategy.requests[position].kind not in NO_NOISE:
        allowed = noise.within_budget(context, bill, ids)
        mask, arrives = mask & allowed, arrives & allowed
    return Query(position, ids, mask, arrives)


def _serve(context: RoundContext, query: Query, known: tuple[Information, Bill]) -> tuple[Information, Bill]:
    """Query clients and enter the answers that arrive into the tables of facts and the bill."""
    request, (info, bill) = context.plan.strategy.requests[query.position], known
    if request.kind == "loss_change":
        values, bill = _loss_change(context, request, bill, query)
    elif request.kind == "seconds":
        values = clock.profiled(context, query.ids)
    else:
        values = _answers(context, request, context.carry.params, query.ids)
    return _enter(context, query, values, info, bill)


def _enter(
    context: RoundContext, query: Query, values: jax.Array, info: Information, bill: Bill
) -> tuple[Information, Bill]:
    """Write the arriving answers, [S, M, ...], into their table, make losses finite, and bill the query."""
    request = context.plan.strategy.requests[query.position]
    if context.plan.noise is not None and request.kind not in NO_NOISE:
        values = noise.perturb(context, query.position, request, query.ids, values, query.at_start)
        bill = noise.count(bill, query.ids, query.arrives)
    fact: Fact = getattr(info, request.kind)
    ages_now = jnp.zeros(query.ids.shape, jnp.int32)
    if KINDS[request.kind].is_loss:
        measured = (fact.age < NEVER).reshape(*fact.age.shape, *[1] * (fact.value.ndim - 2))
        largest = jnp.where(measured, fact.value, -jnp.inf).max(axis=tuple(range(1, fact.value.ndim)))
        values, missing, replaced = jax.vmap(availability.replace_nonfinite)(values, query.arrives, largest)
        if request.option("nonfinite") == "missing":
            ages_now = jnp.where(missing, NEVER, 0)
        bill = bill._replace(losses_replaced=bill.losses_replaced + replaced)
    fact = written(fact, query.arrives, query.ids, Fact(values, ages_now))
    return info.replace(request.kind, fact), billing.add_answers(context, bill, query)


def _answers(context: RoundContext, request: Request, params: Weights, ids: jax.Array) -> jax.Array:
    """Return each client's answer at the models `params`: [S, M, ...]."""
    streams, round = context.streams, context.round
    replicates, clients = devices.pairs(ids.shape[0], ids)

    def keys_of(stream: jax.Array) -> jax.Array:
        return jax.vmap(lambda s, k: keys.client_key(stream[s], round, k))(replicates, clients)

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


def _loss_change(context: RoundContext, request: Request, bill: Bill, query: Query) -> tuple[jax.Array, Bill]:
    """Return each client's loss at each probe's model minus its loss at w^t, [S, M, probes], and the new bill.

    With the option `restored`, clients restore w^t before the second evaluation, so the change is zero. Clients still
    train, receive a model and report, so the cost is the same.
    """
    as_loss = Request("loss", ALL, request.when, tuple(pair for pair in request.options if pair[0] == "on"))
    before = _answers(context, as_loss, context.carry.params, query.ids)
    answered = distinct(query.ids, query.asked, context.federation.starts.shape[1])
    changes = []
    for probe in range(facts.num_probes(request)):
        probed = probe_round(context, probe)
        after = before if request.option("restored", False) else _answers(context, as_loss, probed.params, query.ids)
        changes.append(after - before)
        bill = billing.add_probe(context, bill, probed, answered)
    return jnp.stack(changes, axis=-1), bill
