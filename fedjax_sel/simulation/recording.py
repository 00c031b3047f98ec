"""What a round leaves behind: curves, cohorts, and the counts of its ledger."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel import measures, metrics
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import evaluation, facts, keys, ledger
from fedjax_sel.simulation.bill import Bill
from fedjax_sel.simulation.evaluation import Evaluator, Measured, TrainMetrics
from fedjax_sel.simulation.faults import Faults
from fedjax_sel.simulation.ledger import Events
from fedjax_sel.simulation.opening import Opening
from fedjax_sel.simulation.plan import Carry, Plan, Records
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies.base import Evaluation, Selection
from fedjax_sel.training import schedule


def evaluate_for_strategy(plan: Plan, federation: Federation, weights: Weights) -> Evaluation | None:
    """The server's own evaluation, where the strategy requests one; leaves [S]."""
    wanted = [request for request in plan.strategy.requests if request.kind == "server_metrics"]
    if not wanted:
        return None
    on_test = wanted[0].option("on", "validation") == "test"
    inputs = federation.test_images if on_test else federation.server_images
    targets = federation.test_labels if on_test else federation.server_labels
    measured = _evaluate(plan, federation, weights, inputs, targets)
    loss = jnp.nan_to_num(measured.loss, nan=LARGEST, posinf=LARGEST)
    return Evaluation(measured.correct, measured.measures[plan.trainer.task.measure.name], loss)


def record(
    plan: Plan,
    opening: Opening,
    carry: Carry,
    weights: Weights,
    selection: Selection,
    reports: Selection,
    finite: jax.Array,
    bill: Bill,
    losses: int,
    faults: Faults,
) -> Records:
    """What a round reports.

    Args:
        plan: static.
        opening: the federation as the round opened.
        carry: the state as the round opened.
        weights: the new models, [S, ...].
        selection: the cohorts.
        reports: the cohorts without those whose training never reached the server.
        finite: whose updates were finite, bool [S, K].
        bill: of the round's facts.
        losses: that each client of the cohort sends with its update.
        faults: what was found wrong.

    Returns:
        The records.
    """
    federation, round = opening.federation, opening.round
    num_replicates, num_clients = federation.starts.shape

    def gemd(counts, ids, mask):
        return metrics.group_earth_movers_distance(jnp.where(mask[:, None], counts[ids], 0), counts.sum(axis=0))

    nothing = jnp.full((num_replicates,), jnp.nan, jnp.float32)
    task = plan.trainer.task
    unmeasured = {each.name: nothing for each in task.measures}
    test = _every(
        plan.eval_every,
        plan.num_rounds,
        round,
        lambda: _evaluate(plan, federation, weights, federation.test_images, federation.test_labels)._replace(
            correct=nothing
        ),
        Measured(unmeasured, nothing, nothing),
    )
    train = _every(
        plan.train_metrics_every,
        plan.num_rounds,
        round,
        lambda: evaluation.train_metrics(evaluator(plan, federation.labels), federation, weights),
        TrainMetrics(unmeasured, nothing, nothing),
    )
    # What was measured before the first round is billed to it.
    start = jax.tree.map(lambda leaf: jnp.where(round == 0, leaf, jnp.zeros_like(leaf)), carry.start)
    distinct = jax.vmap(lambda ids, mask: ledger.distinct(ids, mask, num_clients))
    trained, reported = distinct(selection.ids, selection.mask), distinct(reports.ids, reports.mask)
    # w^0 is evaluated as well, and the first round pays for it, as for all that comes before it.
    evaluations = 0 if carry.evaluation is None else jnp.where(round == 0, 2, 1)
    server_examples = evaluations * _server_examples(plan, federation)
    work = _examples_of_training(plan, opening)
    return Records(
        cohort=jnp.where(selection.mask, selection.ids, -1),
        measured=measures.columns_of(
            task,
            test=(test.measures, test.loss),
            train=(train.measures, train.loss),
            worst_decile=train.worst_decile,
            gemd=jax.vmap(gemd)(federation.label_counts, reports.ids, reports.mask),
        ),
        nonfinite=reports.mask & ~finite,
        faults=faults,
        events=_events(plan, federation, work, trained, reported, bill, start, losses, server_examples)._replace(
            reports_lost=(selection.mask & ~reports.mask).sum(axis=1, dtype=jnp.int32)
            + bill.probe_reports_lost
            + start.probe_reports_lost,
            updates_skipped=(reports.mask & ~finite).sum(axis=1, dtype=jnp.int32),
        ),
    )


def _examples_of_training(plan: Plan, opening: Opening) -> jax.Array:
    """Examples that each client's training of this round takes, int32 [S, N]."""
    work, sizes = plan.trainer.work, opening.federation.train_sizes
    if not work.varies:
        return schedule.num_examples(work, sizes, 0 if work.epochs is None else work.epochs[0])

    def of(stream: jax.Array, client: jax.Array, size: jax.Array) -> jax.Array:
        key = keys.of_client(stream, opening.round, client)
        return schedule.num_examples(work, size, schedule.epochs(work, key))

    each = jax.vmap(jax.vmap(of, (None, 0, 0)), (0, None, 0))
    return each(opening.streams.training, jnp.arange(sizes.shape[1]), sizes)


def _events(
    plan: Plan,
    federation: Federation,
    work: jax.Array,
    trained: jax.Array,
    reported: jax.Array,
    bill: Bill,
    start: Bill,
    losses: int,
    server_examples: jax.Array | int,
) -> Events:
    """The round's counts.

    `work` is the examples that each client's training takes, int32 [S, N]; `trained` is the cohort and `reported` those
    of it whose training arrived, bool [S, N].
    """
    optimizer = plan.trainer.optimizer
    on = facts.reported(federation, plan.loss_on)
    arrived = reported.sum(axis=1, dtype=jnp.int32)

    def of(clients: jax.Array, examples: jax.Array) -> jax.Array:
        return jnp.where(clients, examples, 0).sum(axis=1)

    return Events(
        models_down=(trained | bill.asked | start.asked).sum(axis=1, dtype=jnp.int32)
        + bill.probe_models_down
        + start.probe_models_down,
        models_up=arrived + bill.probe_models_up + start.probe_models_up,
        # Before the first round all that an optimizer remembers is zero, and need not be sent.
        vectors_down=optimizer.vectors_down
        * ((trained | bill.trained).sum(axis=1, dtype=jnp.int32) + bill.probe_models_up + bill.probe_reports_lost),
        vectors_up=optimizer.vectors_up * arrived,
        answers=bill.answers + start.answers,
        floats_reported=(losses + optimizer.floats_up) * arrived,
        examples_trained=of(trained | bill.trained, work)
        + of(start.trained, work)
        + bill.examples_trained
        + start.examples_trained,
        examples_evaluated=bill.examples_evaluated + start.examples_evaluated + losses * of(trained, on),
        server_examples=jnp.full_like(arrived, server_examples),
        losses_replaced=bill.losses_replaced + start.losses_replaced,
        reports_lost=jnp.zeros_like(arrived),
        updates_skipped=jnp.zeros_like(arrived),
    )


def _server_examples(plan: Plan, federation: Federation) -> int:
    on_test = any(r.kind == "server_metrics" and r.option("on") == "test" for r in plan.strategy.requests)
    targets = federation.test_labels if on_test else federation.server_labels
    return jax.tree.leaves(targets)[0].shape[0]


def evaluator(plan: Plan, targets: Any) -> Evaluator:
    """Return what evaluates a plan's models on so many examples."""
    size = evaluation.block_size(jax.tree.leaves(targets)[0].shape[0], plan.evaluation_block)
    return Evaluator(plan.mesh, plan.trainer.model, plan.trainer.task, size, plan.blocks_at_once)


def _evaluate(plan: Plan, federation: Federation, weights: Weights, inputs: Any, targets: Any) -> Measured:
    return evaluation.on_examples(evaluator(plan, targets), federation, inputs, targets, weights)


def _every(period: int, num_rounds: int, round: jax.Array, measure: Callable[[], Any], nothing: Any) -> Any:
    """Measures in every period-th round and in the last; 0: never."""
    if period == 0:
        return nothing
    if period == 1:
        return measure()
    return lax.cond(((round + 1) % period == 0) | (round + 1 == num_rounds), measure, lambda: nothing)
