"""A round's records: metrics, cohorts, faults, and the counts of its ledger."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel import metrics, tasks
from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import clock, evaluation, ledger, state
from fedjax_sel.simulation.evaluation import Measured, TrainMetrics, evaluate, evaluator, server_examples
from fedjax_sel.simulation.ledger import Events
from fedjax_sel.simulation.state import Bill, Cohort, Plan, Records, RoundContext, ServerStep, Trained
from fedjax_sel.strategies.protocol import OutcomeReads


def record(
    context: RoundContext,
    cohort: Cohort,
    bill: Bill,
    trained: Trained,
    server: ServerStep,
    weights: jax.Array,
    reads: OutcomeReads,
) -> Records:
    """Return the round's records, leaves [S, ...]: evaluations that are due, the cohort, faults, and ledger events.

    The losses that the strategy reads (`reads`) are billed, as they travel with the updates.
    """
    plan, federation, round, carry = context.plan, context.federation, context.round, context.carry
    selection, reports, finite = cohort.selection, cohort.reports, trained.finite
    num_replicates, num_clients = federation.starts.shape
    losses = int(reads.losses_before) + int(reads.losses_after)
    found = state.find_faults(cohort.named, num_clients, weights, (server.params, server.optimizer, server.shared))

    def gemd(counts, ids, mask):
        return metrics.group_earth_movers_distance(jnp.where(mask[:, None], counts[ids], 0), counts.sum(axis=0))

    nan = jnp.full((num_replicates,), jnp.nan, jnp.float32)
    task = plan.trainer.task
    unmeasured = {each.name: nan for each in task.measures}

    def measure_test() -> Measured:
        measured = evaluate(plan, federation, server.params, federation.test_images, federation.test_labels)
        return measured._replace(correct=nan)

    def measure_train() -> TrainMetrics:
        return evaluation.train_metrics(evaluator(plan, federation.labels), federation, server.params)

    test = _every(plan.eval_every, plan.num_rounds, round, measure_test, Measured(unmeasured, nan, nan))
    unknown = TrainMetrics(unmeasured, nan, nan)
    train = _every(plan.train_metrics_every, plan.num_rounds, round, measure_train, unknown)
    # Facts measured before the first round, and the evaluation of w^0, are billed to the first round.
    start = jax.tree.map(lambda leaf: jnp.where(round == 0, leaf, jnp.zeros_like(leaf)), carry.start)
    distinct = jax.vmap(lambda ids, mask: ledger.distinct(ids, mask, num_clients))
    trains, reported = distinct(selection.ids, selection.mask), distinct(reports.ids, reports.mask)
    evaluated = server_examples(plan, federation, 0 if carry.evaluation is None else jnp.where(round == 0, 2, 1))
    work = clock.examples_of_training(plan.trainer.work, federation.train_sizes, context.streams.training, round)
    return Records(
        cohort=jnp.where(selection.mask, selection.ids, -1),
        measured=tasks.columns_of(
            task,
            test=(test.measures, test.loss),
            train=(train.measures, train.loss),
            worst_decile=train.worst_decile,
            gemd=jax.vmap(gemd)(federation.label_counts, reports.ids, reports.mask),
            seconds=clock.round_seconds(plan, cohort, bill, start),
        ),
        nonfinite=reports.mask & ~finite,
        faults=found,
        events=_events(plan, federation, work, trains, reported, bill, start, losses, evaluated)._replace(
            reports_lost=(selection.mask & ~reports.mask).sum(axis=1, dtype=jnp.int32)
            + bill.probe_reports_lost
            + start.probe_reports_lost,
            updates_skipped=(reports.mask & ~finite).sum(axis=1, dtype=jnp.int32),
        ),
    )


def _events(
    plan: Plan,
    federation: Federation,
    work: jax.Array,
    trains: jax.Array,
    reported: jax.Array,
    bill: Bill,
    start: Bill,
    losses: int,
    evaluated: jax.Array | int,
) -> Events:
    """Return the round's ledger events.

    `work` counts the examples that each client's training processes, int32 [S, N]. `trains` and `reported` mark the
    cohort and the arrived reports, bool [S, N]. `start` is the cost of the facts measured before the first round, zero
    in later rounds. Each client reports 0 to 2 `losses` with its update.
    """
    optimizer = plan.trainer.optimizer
    on = clock.examples_on(federation, plan.loss_on)
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
        server_examples=jnp.full_like(arrived, evaluated),
        losses_replaced=bill.losses_replaced + start.losses_replaced,
        reports_lost=jnp.zeros_like(arrived),
        updates_skipped=jnp.zeros_like(arrived),
    )


def _every(period: int, num_rounds: int, round: jax.Array, measure: Callable[[], Any], skipped: Any) -> Any:
    """Measure in every period-th round and in the last round; return `skipped` otherwise, or always if period is 0."""
    if period == 0:
        return skipped
    if period == 1:
        return measure()
    return lax.cond(((round + 1) % period == 0) | (round + 1 == num_rounds), measure, lambda: skipped)
