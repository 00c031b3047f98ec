"""The simulated clock: the seconds of queries and of training, late reports, and over-selection.

A round has up to three exchanges in sequence: all clients answer, the candidates answer, and the cohort trains. The
first two last until the slowest queried client has answered. The third ends with the K-th report; if fewer arrive, it
ends at the deadline, or without one when the slowest client would have reported. If the cohort size is random, all
selected clients take the place of the K-th report, and over-selection is rejected.

A client receives the round's model once, and does the same work once per round, as in the ledger. In an exchange it
spends its latency, then downloads, computes and uploads. All times are float32 seconds. Shapes: S replicates, N
clients, K selected.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.data.federation import Federation
from fedjax_sel.errors import UserError
from fedjax_sel.simulation import availability, keys, ledger
from fedjax_sel.simulation.ledger import BYTES_PER_FLOAT, Bill, Time
from fedjax_sel.simulation.state import Cohort, Plan, RoundContext
from fedjax_sel.strategies import facts
from fedjax_sel.strategies.facts import KINDS, SELECTED, Counts, Request
from fedjax_sel.strategies.protocol import OutcomeReads
from fedjax_sel.timing import FORWARD, Clients, Law, Timing
from fedjax_sel.training import schedule
from fedjax_sel.training.client import Trainer

ROUNDING = 1e-6
"""Relative tolerance of a deadline. NumPy computes a quantile of durations, and the round program the durations: their
float32 sums can differ in the last bits, and clients of one device class share a duration."""

_SPEEDS = 39  # of the generator of each seed's devices: independent of its partition


def speeds(plan: Plan, timing: Timing | None, streams: keys.Streams, round: jax.Array) -> Timing | None:
    """Return the speeds of a round, leaves [S, N]: the federation's, with the round's jitter."""
    if timing is None or plan.clock is None or plan.clock.jitter == 0.0:
        return timing
    jitter, num_clients = plan.clock.jitter, timing.latency.shape[1]

    def draw(stream: jax.Array) -> jax.Array:
        key = jax.random.fold_in(keys.round_key(stream, round), keys.JITTER)
        return jnp.exp(jitter * jax.random.normal(key, (num_clients,)))

    factor = jax.vmap(draw)(streams.availability)
    seconds, down, up, latency = timing
    return Timing(seconds * factor, down / factor, up / factor, latency * factor)


def timed(federation: Federation, law: Law, seeds: Sequence[int], trainer: Trainer, deadline: str | None) -> Federation:
    """Return the federation, in host memory, with the speed of each client and the deadline of each replicate."""
    sizes, label_counts = (np.asarray(table) for table in (federation.train_sizes, federation.label_counts))
    drawn = [
        law.draw(np.random.default_rng((_SPEEDS, seed)), Clients(own, labels))
        for seed, own, labels in zip(seeds, sizes, label_counts, strict=True)
    ]
    speeds = Timing(*map(np.stack, zip(*drawn)))
    if deadline is None:
        return federation._replace(timing=speeds)
    number, is_quantile = parsing.deadline(deadline) or (0.0, False)
    least, most = trainer.work.epochs or (0, 0)
    extremes = [schedule.num_examples(trainer.work, jnp.asarray(sizes), count) for count in (least, most)]
    examples = np.mean(extremes, axis=0)
    durations = training_seconds(trainer, speeds, examples.astype(np.float32))
    limits = np.quantile(durations, number, axis=1) if is_quantile else np.full(len(sizes), number)
    late = durations.min(axis=1) > limits * (1.0 + ROUNDING)
    if late.any():
        place = int(np.flatnonzero(late)[0])
        raise UserError(
            f"--deadline: no client reports within {limits[place]:.4g} s (the fastest of seed {seeds[place]} needs "
            f"{durations[place].min():.4g} s); choose a longer deadline, such as q0.8"
        )
    return federation._replace(timing=speeds, deadline=limits.astype(np.float32))


def model_bytes(trainer: Trainer) -> int:
    """Return the bytes of a model in one direction."""
    return trainer.model.size * BYTES_PER_FLOAT


def to_training(trainer: Trainer) -> int:
    """Return the bytes that a client downloads to train, beside the model."""
    return trainer.optimizer.vectors_down * trainer.model.num_params * BYTES_PER_FLOAT


def training_seconds(trainer: Trainer, timing: Any, examples: Any) -> Any:
    """Return the seconds of a model's way to a client, its training on `examples`, and back; arrays [..., N]."""
    down = (model_bytes(trainer) + to_training(trainer)) / timing.down
    extra = trainer.optimizer.vectors_up * trainer.model.num_params + trainer.optimizer.floats_up
    report = model_bytes(trainer) + extra * BYTES_PER_FLOAT
    return timing.latency + down + examples * timing.seconds_per_example + report / timing.up


def add_query(
    context: RoundContext, bill: Bill, request: Request, queried: jax.Array, examples: jax.Array, at_start: bool
) -> Bill:
    """Add the seconds of one request to the exchange in progress; `bill` does not include the request yet.

    `queried` marks the clients, bool [S, N], and `examples` counts the examples that each evaluates, int32 [S, N].
    Before the first round (`at_start`) the optimizer's memory is zero and is not sent.
    """
    timing, kind, plan = context.timing, KINDS[request.kind], context.plan
    if timing is None or bill.time is None:
        return bill
    floats = facts.floats(request, _counts(context))
    seconds = jnp.where(bill.time.busy == 0.0, timing.latency, 0.0) + floats * BYTES_PER_FLOAT / timing.up
    seconds += examples * (kind.passes * FORWARD) * timing.seconds_per_example
    probes = facts.num_probes(request)
    models = (~_has_model(context, bill) if kind.needs_model else 0) + probes
    seconds += models * model_bytes(plan.trainer) / timing.down
    if kind.trains:
        work = _work(context)
        training = work * timing.seconds_per_example
        training += 0.0 if at_start else to_training(plan.trainer) / timing.down
        seconds += jnp.where(bill.trained, 0.0, training)
    return bill._replace(time=bill.time._replace(busy=bill.time.busy + jnp.where(queried, seconds, 0.0)))


def add_probe(context: RoundContext, bill: Bill, cohorts: jax.Array, trains: jax.Array, examples: jax.Array) -> Bill:
    """Add the seconds of a probe's training; `cohorts`, `trains` and `examples` are [S, K].

    Probes run in sequence, and each one's training includes the download of the round's model, which the bill counts
    once. Their reports leave out the optimizer's vectors.
    """
    if context.timing is None or bill.time is None:
        return bill
    trainer = context.plan.trainer
    timing = Timing(*(jnp.take_along_axis(leaf, cohorts, axis=1) for leaf in context.timing))
    seconds = training_seconds(trainer, timing, examples)
    if trainer.optimizer.vectors_up:
        seconds -= trainer.optimizer.vectors_up * trainer.model.num_params * BYTES_PER_FLOAT / timing.up
    seconds = jnp.where(trains, seconds, 0.0).max(axis=1)
    return bill._replace(time=bill.time._replace(elapsed=bill.time.elapsed + seconds))


def end_exchange(bill: Bill) -> Bill:
    """End an exchange when its slowest client has answered."""
    if bill.time is None:
        return bill
    busy, elapsed = bill.time
    return bill._replace(time=Time(jnp.zeros_like(busy), elapsed + busy.max(axis=1)))


def profiled(context: RoundContext, ids: jax.Array) -> jax.Array:
    """Return the fact `seconds`: the duration of one local training with both transfers, float32 [S, M]."""
    assert context.timing is not None, "rejected before the run"
    work = _work(context)
    return jnp.take_along_axis(training_seconds(context.plan.trainer, context.timing, work), ids, axis=1)


def durations_of(context: RoundContext, ids: jax.Array, bill: Bill, reads: OutcomeReads) -> jax.Array:
    """Return the seconds from the model's dispatch to the report of each client, float32 [S, K].

    A client answers what the cohort is asked, trains, and evaluates the losses that the strategy `reads`. It does not
    repeat work of this round, whose queries are in `bill`.
    """
    timing, plan = context.timing, context.plan
    assert timing is not None, "only with a clock"
    trainer, federation = plan.trainer, context.federation
    work = _work(context)
    whole = training_seconds(trainer, timing, work)
    spared = jnp.where(_has_model(context, bill), model_bytes(trainer) / timing.down, 0.0)
    trained = work * timing.seconds_per_example + to_training(trainer) / timing.down
    spared += jnp.where(bill.trained, trained, 0.0)
    answers = _answer_seconds(context, timing)
    losses = reads.num_losses
    on = ledger.examples_on(federation, plan.loss_on)
    reported = losses * (on * FORWARD * timing.seconds_per_example + BYTES_PER_FLOAT / timing.up)
    return jnp.take_along_axis(whole - spared + answers + reported, ids, axis=1)


def stay_online(
    context: RoundContext, ids: jax.Array, bill: Bill, durations: jax.Array, arrives: jax.Array
) -> jax.Array:
    """Return the mask `arrives` without clients that go offline before their report, bool [S, K]."""
    if context.online is None:
        return arrives
    start = context.carry.start
    assert bill.time is not None and start.time is not None, "only with a clock"
    asked = bill.time.elapsed + jnp.where(context.round == 0, start.time.elapsed, 0.0)
    return arrives & (asked[:, None] + durations <= jnp.take_along_axis(context.online, ids, axis=1))


def time_cohort(context: RoundContext, cohort: Cohort, bill: Bill, reads: OutcomeReads) -> Cohort:
    """Return the cohort with each client's duration, without late reports, and with the training phase's duration."""
    plan, federation = context.plan, context.federation
    if context.timing is None or plan.clock is None:
        return cohort
    ids, selected, arrives = cohort.selection.ids, cohort.selection.mask, cohort.reports.mask
    durations = durations_of(context, ids, bill, reads)
    arrives = stay_online(context, ids, bill, durations, arrives)
    if federation.deadline is None and plan.cohort_size <= plan.clock.num_reports:
        counted = arrives  # a constant mask, so that XLA removes the masking of updates
    else:
        in_time = arrives
        if federation.deadline is not None:
            in_time &= durations <= federation.deadline[:, None] * (1.0 + ROUNDING)
        arrival = jnp.where(in_time, durations, jnp.inf)
        # The place of each report in the order of arrival; ties are in the order of the cohort.
        place = jnp.argsort(jnp.argsort(arrival, axis=1, stable=True), axis=1)
        counted = in_time & (place < plan.clock.num_reports)
    last = jnp.where(counted, durations, 0.0).max(axis=1)
    wanted = jnp.minimum(plan.clock.num_reports, selected.sum(axis=1))
    slowest = jnp.where(selected, durations, 0.0).max(axis=1)
    fallback = slowest if federation.deadline is None else federation.deadline
    seconds = jnp.where(counted.sum(axis=1) >= wanted, last, fallback)
    late = None if plan.asynchrony is None else jnp.where(arrives & ~counted, durations, jnp.inf)
    reports = cohort.reports._replace(mask=counted)
    return cohort._replace(reports=reports, durations=jnp.where(counted, durations, 0.0), seconds=seconds, late=late)


def round_seconds(context: RoundContext, cohort: Cohort, bill: Bill, start: Bill) -> jax.Array | None:
    """Return the duration of a round, float32 [S]; `start` is the cost before the first round, zero in later ones.

    If availability follows the clock, a round without any client lasts until its next row.
    """
    plan = context.plan
    if plan.clock is None or cohort.seconds is None or bill.time is None or start.time is None:
        return None
    seconds = start.time.elapsed + bill.time.elapsed + cohort.seconds + plan.clock.server_seconds
    if context.carry.clock is None:
        return seconds
    started = cohort.selection if cohort.started is None else cohort.started
    some = cohort.selection.mask.any(axis=1) | started.mask.any(axis=1)
    return jnp.where(some, seconds, jnp.maximum(seconds, availability.until_next_row(plan, context.carry.clock)))


def _has_model(context: RoundContext, bill: Bill) -> jax.Array:
    """Return which clients received w^t for an answer, bool [S, N]; answers before the first round are on w^0, too."""
    return bill.asked | ((context.round == 0) & context.carry.start.asked)


def _work(context: RoundContext) -> jax.Array:
    """Count the examples that each client would process in this round's training, int32 [S, N]."""
    sizes, work = context.federation.train_sizes, context.plan.trainer.work
    return ledger.examples_of_training(work, sizes, context.streams.training, context.round)


def _counts(context: RoundContext) -> Counts:
    return ledger.fact_counts(context.plan.trainer.model, context.federation.label_counts.shape[-1])


def _answer_seconds(context: RoundContext, timing: Timing) -> jax.Array | float:
    """Return the seconds that each client would need for what the cohort is asked in this round, [S, N]."""
    plan, federation, total = context.plan, context.federation, 0.0
    counts = _counts(context)
    for request in plan.strategy.requests:
        if request.who == SELECTED:
            examples = ledger.examples_evaluated(request, federation, plan.loss_on)
            seconds = examples * (KINDS[request.kind].passes * FORWARD) * timing.seconds_per_example
            seconds += facts.floats(request, counts) * BYTES_PER_FLOAT / timing.up
            total += jnp.where(request.when.due(context.round), seconds, 0.0)
    return total
