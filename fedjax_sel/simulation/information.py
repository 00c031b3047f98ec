"""Measurement of a strategy's requested facts: client queries, fact tables, and the bill.

The protocol (`strategies/protocol.py`) decides which clients to query, and when; it calls `measure`. Facts are measured
at the round's model w^t, for all replicates at once, spread over the devices.
Shapes: S replicates, N clients, M queried clients.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel import devices
from fedjax_sel.models import Model
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import bill as bills
from fedjax_sel.simulation import keys, ledger, probes, sanitise
from fedjax_sel.simulation.bill import Bill
from fedjax_sel.simulation.facts import ANSWERS, Question
from fedjax_sel.simulation.round_context import RoundContext, ToTrain, to_train
from fedjax_sel.strategies import kinds, protocol
from fedjax_sel.strategies.base import Fact, Information, OutputLayer, Strategy
from fedjax_sel.strategies.kinds import KINDS, Counts
from fedjax_sel.strategies.requests import ALL, NEVER, SELECTED, Request


def floats_per_answer(strategy: Strategy, model: Model, num_classes: int) -> tuple[int, ...]:
    """Return the number of floats in one client's answer to each request."""
    counts = counts_of(model, num_classes)
    return tuple(kinds.floats(request, counts) for request in strategy.requests)


def counts_of(model: Model, num_classes: int) -> Counts:
    """Return the counts that determine the lengths of facts."""
    return Counts(model.num_params, num_classes, model.profile_size)


def output_layer(model: Model) -> OutputLayer | None:
    """Return the position of a model's output layer, as strategies read it."""
    return None if model.output_layer is None else OutputLayer(*model.output_layer)


def empty(strategy: Strategy, model: Model, num_replicates: int, num_clients: int, num_classes: int) -> Information:
    """Return fact tables without any measurement."""
    return protocol.nothing_known(strategy, counts_of(model, num_classes), num_replicates, num_clients)


def measure(
    context: RoundContext,
    info: Information,
    bill: Bill,
    who: str,
    ids: jax.Array | None = None,
    mask=None,
    arrives=None,
) -> tuple[Information, Bill]:
    """Measure the facts requested of one group of clients that are due in this round (`serve` in the protocol).

    A request's schedule depends on the round number alone, which is never batched, so `cond` stays a real branch.

    Args:
        context: the round's inputs.
        info: fact tables.
        bill: the round's bill so far.
        who: group of clients: ALL, CANDIDATES or SELECTED.
        ids: queried clients, int32 [S, M]; None: all clients.
        mask: queried clients that are available, bool [S, M]; None: as in `context.available`.
        arrives: clients whose answer reaches the server, bool [S, M]; None: all available ones.

    Returns:
        The new tables and the new bill.
    """
    for position, request in protocol.requests_to(context.plan.strategy, who):
        if request.kind == "training_loss" and who == SELECTED:
            continue  # a by-product of the cohort's training; see `enter_training_losses`
        if request.when.in_every_round:
            info, bill = _serve(context, info, bill, position, ids, mask, arrives)
        else:
            info, bill = lax.cond(
                request.when.due(context.round),
                lambda state, position=position: _serve(context, state[0], state[1], position, ids, mask, arrives),
                lambda state: state,
                (info, bill),
            )
    return info, bill


def measure_at_start(context: RoundContext, info: Information, bill: Bill) -> tuple[Information, Bill]:
    """Measure the facts due before the first round; the first round bills them."""
    for position, _ in protocol.requests_at_start(context.plan.strategy):
        info, bill = _serve(context, info, bill, position, None, None, None)
    return info, bill


def enter_training_losses(
    context: RoundContext, info: Information, bill: Bill, ids, mask, losses: jax.Array
) -> tuple[Information, Bill]:
    """Enter the training losses that the cohort reports with its updates, if they are requested.

    Args:
        context: the round's inputs.
        info: fact tables.
        bill: the round's bill so far.
        ids: cohort, int32 [S, K].
        mask: clients whose report arrives, bool [S, K].
        losses: training losses, float32 [S, K], nats.

    Returns:
        The new tables and the new bill.
    """
    for position, request in enumerate(context.plan.strategy.requests):
        if request.kind == "training_loss" and request.who == SELECTED:
            due = mask & request.when.due(context.round)
            # The training itself is already billed as the cohort's.
            info, bill = _enter(context, info, bill, position, ids, due, due, losses)
    return info, bill


def _serve(
    context: RoundContext, info: Information, bill: Bill, position: int, ids, mask, arrives
) -> tuple[Information, Bill]:
    """Query clients (all clients if `ids` is None) and enter the answers that arrive."""
    request = context.plan.strategy.requests[position]
    num_replicates, num_clients = context.federation.starts.shape
    if ids is None:
        ids = jnp.broadcast_to(jnp.arange(num_clients, dtype=jnp.int32), (num_replicates, num_clients))
    if mask is None:
        available = context.available
        mask = jnp.ones(ids.shape, bool) if available is None else jnp.take_along_axis(available, ids, axis=1)
    if request.kind == "loss_change":
        values, bill = _loss_change(context, request, bill, ids, mask)
    else:
        values = _answers(context, request, context.carry.params, ids)
    return _enter(context, info, bill, position, ids, mask, mask if arrives is None else arrives, values)


def _enter(
    context: RoundContext, info: Information, bill: Bill, position: int, ids, queried, arrives, values
) -> tuple[Information, Bill]:
    """Write arriving answers into their table, make losses finite, and bill the answers and the work of all queried."""
    request = context.plan.strategy.requests[position]
    fact: Fact = getattr(info, request.kind)
    ages_now = jnp.zeros(ids.shape, jnp.int32)
    if KINDS[request.kind].is_loss:
        measured = (fact.age < NEVER).reshape(*fact.age.shape, *[1] * (fact.value.ndim - 2))
        largest = jnp.where(measured, fact.value, -jnp.inf).max(axis=tuple(range(1, fact.value.ndim)))
        values, missing, replaced = jax.vmap(sanitise.losses)(values, arrives, largest)
        if request.option("nonfinite") == "missing":
            ages_now = jnp.where(missing, NEVER, 0)
        bill = bill._replace(losses_replaced=bill.losses_replaced + replaced)
    num_clients = fact.age.shape[1]
    rows = jnp.where(arrives, ids, num_clients)  # row N does not exist: lost answers are dropped

    def write(table, ages, rows, values, now):
        return table.at[rows].set(values, mode="drop"), ages.at[rows].set(now, mode="drop")

    value, ages = jax.vmap(write)(fact.value, fact.age, rows, values, ages_now)
    clients_in = jax.vmap(partial(ledger.distinct, num_clients=num_clients))
    federation, loss_on = context.federation, context.plan.loss_on
    bill = bills.add(bill, position, request, federation, clients_in(ids, queried), clients_in(ids, arrives), loss_on)
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
    answered = jax.vmap(partial(ledger.distinct, num_clients=num_clients))(ids, mask)
    changes = []
    for probe in range(kinds.probes(request)):
        probed = probes.probe(context, probe)
        restored = request.option("restored", False)
        after = before if restored else _answers(context, as_loss, probed.params, ids)
        changes.append(after - before)
        bill = bills.add_probe(bill, probed.took_part, probed.reported, probed.num_examples, answered)
    return jnp.stack(changes, axis=-1), bill
