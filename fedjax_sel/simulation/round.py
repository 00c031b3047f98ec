"""One round, from top to bottom: measure, select, train the cohort, aggregate, update, record.

A round is a pure function (carry, round number) -> (carry, records) over all replicates at once. Nothing in it touches
the host. Shapes: S replicates, N clients, K selected.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh

from fedjax_sel import metrics
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Params
from fedjax_sel.simulation import devices, evaluation, information, keys, ledger
from fedjax_sel.simulation.evaluation import TestMetrics, TrainMetrics
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.ledger import Events
from fedjax_sel.strategies.base import Information, Outcome, Selection, Strategy
from fedjax_sel.training import client, schedule, server
from fedjax_sel.training.client import Trainer


class Plan(NamedTuple):
    """Everything about a run that is fixed before tracing. Static."""

    mesh: Mesh
    strategy: Strategy
    trainer: Trainer
    server: optax.GradientTransformation
    aggregation: str
    loss_on: str
    skip_nonfinite: bool
    num_selected: int
    num_rounds: int
    eval_every: int  # 0: never, which only benchmarks want
    train_metrics_every: int  # 0: never
    evaluation_block: int  # examples
    clients_at_once: int  # that a device trains together; 0: all of its share
    facts_at_once: int  # clients that a device measures together
    blocks_at_once: int


class Carry(NamedTuple):
    """What a round hands to the next; every leaf has the leading axis [S]."""

    params: Params
    server: optax.OptState
    strategy: Any
    info: Information


class Records(NamedTuple):
    """What a round reports; leaves [S, ...], NaN where it was not the turn of a measurement."""

    cohort: jax.Array  # int32 [S, K]; -1 where nobody trained
    gemd: jax.Array
    test_accuracy: jax.Array
    test_loss: jax.Array
    train_accuracy: jax.Array
    train_loss: jax.Array
    worst_decile_accuracy: jax.Array
    nonfinite: jax.Array  # bool [S, K]: this client's update held NaN or infinity
    events: Events


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
    info, bill = information.measure(
        plan.mesh, plan.trainer, plan.strategy, carry.info, federation, params, streams.training, round,
        plan.facts_at_once,
    )  # fmt: skip

    selection_keys = jax.vmap(lambda stream: keys.of_round(stream, round))(streams.selection)
    select = jax.vmap(lambda key, state, info: plan.strategy.select(key, state, info, round, None))
    selection: Selection = select(selection_keys, carry.strategy, info)

    updates, losses_before, losses_after = _train_cohorts(plan, federation, params, streams, selection, round)
    finite = jax.vmap(server.all_finite)(updates)

    weights = _weights(plan, federation, selection, finite)
    mean_update = jax.vmap(server.weighted_mean)(updates, weights)
    new_params, server_state = server.step(plan.server, carry.server, params, mean_update)

    outcome = Outcome(updates, losses_before, losses_after, jax.tree.map(jnp.subtract, new_params, params), finite)
    update = jax.vmap(lambda state, info, sel, out: plan.strategy.update(state, info, round, sel, out))
    strategy_state = update(carry.strategy, info, selection, outcome)

    records = _record(plan, federation, new_params, selection, finite, bill, round)
    return Carry(new_params, server_state, strategy_state, information.age(info)), records


def _train_cohorts(plan: Plan, federation: Federation, params: Params, streams: Streams, selection: Selection, round):
    """Trains all cohorts from their replicate's model: updates [S, K, ...], losses before and after [S, K]."""
    num_replicates = selection.ids.shape[0]
    replicates, clients = devices.pairs(num_replicates, selection.ids)
    job_keys = jax.vmap(lambda s, k: keys.of_client(streams.training[s], round, k))(replicates, clients)

    def train(shared, job):
        federation, params, round = shared
        replicate, who, key = job
        received = devices.of_replicate(params, replicate)
        update = client.train(plan.trainer, federation, received, replicate, who, key, round)
        part = fed.loss_part(federation, replicate, who, plan.loss_on)
        trained = jax.tree.map(jnp.add, received, update)
        return (
            update,
            client.loss(plan.trainer, federation, received, part),
            client.loss(plan.trainer, federation, trained, part),
        )

    jobs = (replicates, clients, job_keys)
    shared = (federation, params, round)
    return devices.unflatten(devices.spread(plan.mesh, train, shared, jobs, plan.clients_at_once), num_replicates)


def _weights(plan: Plan, federation: Federation, selection: Selection, finite: jax.Array) -> jax.Array:
    """Aggregation weights, float32 [S, K]: the strategy's own where it derives them, else the runner's rule."""
    sizes = jnp.take_along_axis(federation.train_sizes, selection.ids, axis=1)
    mask = selection.mask & finite if plan.skip_nonfinite else selection.mask
    if selection.weights is None:
        return jax.vmap(lambda n, m: server.cohort_weights(plan.aggregation, n, m))(sizes, mask)
    own = jnp.where(selection.mask, selection.weights, 0.0)
    if not plan.skip_nonfinite:
        return own
    # The weights of those left out go to the others; with nobody left out nothing changes.
    return jnp.where(mask.all(axis=1, where=selection.mask)[:, None], own, jax.vmap(server.renormalise)(own, mask))


def _record(plan: Plan, federation: Federation, params: Params, selection: Selection, finite, bill, round) -> Records:
    num_replicates, num_clients = federation.starts.shape
    trained = jax.vmap(lambda ids, mask: ledger.distinct(ids, mask, num_clients))(selection.ids, selection.mask)
    work = schedule.num_examples(plan.trainer.work, federation.train_sizes)
    # What was measured before the first round is billed to it.
    before = [request.when.before_first_round for request in plan.strategy.requests]
    start = information.bill_all(plan.trainer, plan.strategy, federation, [flag & (round == 0) for flag in before])
    asked = trained | bill.asked | start.asked
    events = Events(
        models_down=asked.sum(axis=1, dtype=jnp.int32),
        models_up=trained.sum(axis=1, dtype=jnp.int32),
        answers=bill.answers + start.answers,
        examples_trained=jnp.where(trained, work, 0).sum(axis=1) + bill.examples_trained + start.examples_trained,
        examples_evaluated=bill.examples_evaluated + start.examples_evaluated,
    )

    def gemd(counts, ids, mask):
        return metrics.group_earth_movers_distance(jnp.where(mask[:, None], counts[ids], 0), counts.sum(axis=0))

    def evaluate(measure: Callable, images: jax.Array) -> Any:
        block = evaluation.block_size(images.shape[0], plan.evaluation_block)
        return measure(plan.mesh, plan.trainer.model, federation, params, block, plan.blocks_at_once)

    nothing = jnp.full((num_replicates,), jnp.nan, jnp.float32)
    test = _every(
        plan.eval_every,
        plan.num_rounds,
        round,
        lambda: evaluate(evaluation.test_metrics, federation.test_images),
        TestMetrics(nothing, nothing),
    )
    train = _every(
        plan.train_metrics_every,
        plan.num_rounds,
        round,
        lambda: evaluate(evaluation.train_metrics, federation.images),
        TrainMetrics(nothing, nothing, nothing),
    )
    return Records(
        cohort=jnp.where(selection.mask, selection.ids, -1),
        gemd=jax.vmap(gemd)(federation.label_counts, selection.ids, selection.mask),
        test_accuracy=test.accuracy,
        test_loss=test.loss,
        train_accuracy=train.accuracy,
        train_loss=train.loss,
        worst_decile_accuracy=train.worst_decile_accuracy,
        nonfinite=selection.mask & ~finite,
        events=events,
    )


def _every(period: int, num_rounds: int, round: jax.Array, measure: Callable[[], Any], nothing: Any) -> Any:
    """Measures in every period-th round and in the last; 0: never."""
    if period == 0:
        return nothing
    if period == 1:
        return measure()
    return lax.cond(((round + 1) % period == 0) | (round + 1 == num_rounds), measure, lambda: nothing)


def many_rounds(
    plan: Plan, length: int, carry: Carry, first: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """A chunk: `length` rounds from `first`, on one program whatever `first` is. Rounds past the end do nothing.

    Returns:
        The carry and the records with leading axes [length, S].
    """

    def body(carry: Carry, round: jax.Array):
        if plan.num_rounds % length == 0:
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
