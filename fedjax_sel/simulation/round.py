"""One round from top to bottom: select a cohort, train it, aggregate, learn, record.

A round is a pure function (carry, round number) -> (carry, records) over all replicates at once. Nothing in it touches
the host. Shapes: S replicates, N clients, K places of a cohort.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel import devices, metrics, tasks
from fedjax_sel.core import jax_settings
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import availability, billing, clock, evaluation, keys, ledger, noise, queries, state
from fedjax_sel.simulation.availability import available_clients
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.ledger import Bill, distinct
from fedjax_sel.simulation.state import Carry, Cohort, Kept, Plan, Records, RoundContext, ServerStep, Sums, Trained
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.contract import Information, Now, Outcome, Selection, ServerMetrics, Unrequested
from fedjax_sel.strategies.facts import SELECTED
from fedjax_sel.strategies.protocol import OutcomeReads, SelectionState
from fedjax_sel.training import client, server


def one_round(
    plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """Run one round of all replicates, from the state at w^t to the state at w^(t+1) and the round's records.

    Args:
        plan: static configuration.
        carry: state at w^t; leaves [S, ...] for S replicates.
        round: round t from 0, int32 scalar; never batched, so a condition on it alone stays a real branch.
        federation: the clients' data.
        streams: random keys, [S] for each purpose.
    """
    context = open_round(plan, carry, round, federation, streams)

    # `cohort` holds the selected clients, and the mask of those whose report arrives. `selection_state` holds the
    # strategy's state, its fact tables and the round's bill.
    cohort, selection_state = select(context)
    reads = outcome_reads(context, cohort, selection_state)
    # The clock marks late reports as lost. The answers of a lost report are lost, too.
    cohort = clock.time_cohort(context, cohort, selection_state.bill, reads)
    selection_state = protocol.query_cohort(
        partial(queries.measure, context), selection_state, cohort.selection, cohort.reports.mask
    )
    weights = cohort_weights(context, cohort, selection_state)
    trained, sums = train_cohorts(context, cohort, weights, reads)
    selection_state = queries.enter_training_losses(context, selection_state, cohort.reports, trained.training_loss)
    server_step = aggregate(context, cohort, trained, sums, weights)
    selection_state = learn(context, cohort, selection_state, trained, server_step, weights, reads)
    records = record(context, cohort, selection_state.bill, trained, server_step, weights, reads)
    carry = close_round(context, cohort.selection, trained, cohort.reports, selection_state, server_step, records)
    return carry, records


def open_round(plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams) -> RoundContext:
    """Return the context of a round: which clients can train, how fast they are, and how long they stay online."""
    available = available_clients(plan, federation, streams, round, carry.clock)
    return RoundContext(
        plan, federation, carry, streams, round,
        available=noise.may_train(plan, carry, available),
        timing=clock.speeds(plan, federation.timing, streams, round),
        online=availability.online_seconds(plan, federation, carry.clock),
    )  # fmt: skip


def close_round(
    context: RoundContext,
    selection: Selection,
    trained: Trained,
    reports: Selection,
    selection_state: SelectionState,
    server_step: ServerStep,
    records: Records,
) -> Carry:
    """Return the state at w^(t+1); `trained` are the results of the clients of `selection`, which have new rows.

    A client whose update is not finite keeps its row.
    """
    carry = context.carry
    return carry._replace(
        params=server_step.params, server=server_step.optimizer, shared=server_step.shared,
        strategy=selection_state.state, info=selection_state.now.info, evaluation=server_step.evaluation,
        clock=None if carry.clock is None else carry.clock + records.measured[tasks.SECONDS],
        answered=noise.answered(context, selection_state.bill), trainings=noise.trainings(context, reports),
        clients=state.written(carry.clients, selection.mask & trained.finite, selection.ids, trained.kept),
    )  # fmt: skip


def select(context: RoundContext) -> tuple[Cohort, SelectionState]:
    """Measure the facts requested of all clients and of candidates, then select cohorts [S, K].

    The order of the strategy's hooks is `protocol.select`'s.
    """
    plan, round, available = context.plan, context.round, context.available
    num_replicates, num_clients = context.federation.starts.shape
    of_select = jax.vmap(lambda stream: keys.round_key(stream, round))(context.streams.selection)
    of_candidates = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(of_select)

    def serve(info: Information, bill: Bill, who: str, ids: jax.Array | None = None) -> tuple[Information, Bill]:
        return queries.measure(context, info, bill, who, None if ids is None else clip_ids(ids, num_clients))

    count, timed, noisy = len(plan.strategy.requests), plan.clock is not None, plan.noise is not None
    bill = ledger.empty_bill(num_replicates, num_clients, count, timed, noisy)
    env = state.env_of(plan, context.federation, context.carry.params.trained)
    known = SelectionState(context.carry.strategy, Now(env, context.carry.info, round, available), bill)
    keys_of_hooks = protocol.Keys(of_candidates, of_select)
    selection_state, (answer, candidates) = protocol.select(
        protocol.over_replicates(plan.strategy), serve, known, keys_of_hooks
    )
    selection = answer._replace(ids=clip_ids(answer.ids, num_clients))
    if available is not None:  # an unavailable client does not train, even if the strategy selected it
        selection = selection._replace(mask=selection.mask & jnp.take_along_axis(available, selection.ids, axis=1))
    arrives = availability.arrives(plan.report_failure_rate, context.streams, round, selection.ids, selection.mask)
    named = state.UncheckedIds(answer.ids, selection.mask, candidates)
    return Cohort(named, selection, selection._replace(mask=arrives)), selection_state


def outcome_reads(context: RoundContext, cohort: Cohort, selection_state: SelectionState) -> OutcomeReads:
    """Return which parts of the outcome `update` reads, found by tracing it. The others are not computed."""
    held = (context.carry.params.trained, selection_state.state, selection_state.now)
    return protocol.outcome_reads(context.plan.strategy, *held, cohort.selection)


def cohort_weights(context: RoundContext, cohort: Cohort, selection_state: SelectionState) -> jax.Array:
    """Return the aggregation weights, float32 [S, K], zero for lost reports.

    They are the strategy's own if it returns some, else the configured rule's. Under the rule `unbiased`, the
    strategy's `inclusion` reads its state and fact tables.
    """
    plan, reports = context.plan, cohort.reports
    if plan.private_training is not None:  # the number of reports must not change the weights
        return jnp.where(reports.mask, 1.0 / plan.private_training.num_reports, 0.0)
    unbiased, chance = plan.aggregation == "unbiased", availability.arrival_probability(context)
    if reports.weights is not None:
        own = jnp.where(reports.mask, reports.weights, 0.0)
        # The strategy's weights treat the available clients as all clients, and ignore lost reports.
        return own * jnp.reshape(availability.available_share(context) / chance, (-1, 1)) if unbiased else own
    all_sizes = context.federation.train_sizes
    sizes, inclusion = jnp.take_along_axis(all_sizes, reports.ids, axis=1), None
    if unbiased:
        expected = protocol.over_replicates(plan.strategy).inclusion
        assert expected is not None, "rejected before the run"
        of_all = expected(selection_state.state, selection_state.now)
        assert of_all is not None, "rejected before the run"
        inclusion = jnp.take_along_axis(of_all, reports.ids, axis=1) * jnp.reshape(chance, (-1, 1))
    weights_of = jax.vmap(partial(server.cohort_weights, plan.aggregation))
    return weights_of(sizes, reports.mask, all_sizes.sum(axis=1), inclusion)


def train_cohorts(
    context: RoundContext, cohort: Cohort, weights: jax.Array, reads: OutcomeReads
) -> tuple[Trained, Sums]:
    """Train each cohort from its replicate's model w^t, with all S * K clients spread over the devices.

    Returns:
        Each client's result, leaves [S, K, ...], and the sums of the arriving finite reports by `weights`, float32
        [S, K].
    """
    plan, arriving = context.plan, cohort.reports.mask
    num_replicates, num_places = arriving.shape
    jobs = training_jobs(context, cohort)
    averages = protocol.requested_subset_loss(plan.strategy) is not None or plan.asynchrony is not None
    keep_updates = reads.updates or averages
    train = client_training(plan, reads, keep_updates, averages)
    num_clients = context.federation.starts.shape[1]
    # `Report.contributed` enters the server's memory with weight 1/N (SCAFFOLD, Algorithm 1, line 17).
    factors = Sums(weights, jnp.where(arriving, 1.0 / num_clients, 0.0))
    of_jobs, sums = devices.spread_and_add(
        plan.mesh, train, state.to_train(context), jobs, plan.clients_at_once, factors
    )
    trained: Trained = devices.unflatten(of_jobs, num_replicates)
    if not keep_updates:

        def zeros(w: jax.Array) -> jax.Array:
            return jnp.zeros((w.shape[0], num_places, *w.shape[1:]), w.dtype)

        trained = trained._replace(updates=jax.tree.map(zeros, context.carry.params.trained))
    return trained, sums


def training_jobs(context: RoundContext, cohort: Cohort) -> tuple[jax.Array, ...]:
    """Return the jobs of a cohort's training, leaves [S * K]: replicate, client, key, and whether it reports."""
    ids = cohort.selection.ids
    replicates, clients = devices.pairs(len(ids), ids)
    streams, round = context.streams.training, context.round
    job_keys = jax.vmap(lambda s, k: keys.client_key(streams[s], round, k))(replicates, clients)
    return replicates, clients, job_keys, cohort.reports.mask.reshape(-1)


def client_training(
    plan: Plan, reads: OutcomeReads, keep_updates: bool, keep_carried: bool
) -> Callable[[state.ToTrain, Any], tuple[Trained, Sums]]:
    """Return the function that trains the client of a job; `Trained` has the update and the carried state if kept."""
    wanted = [r for r in plan.strategy.requests if r.kind == "training_loss" and r.who == SELECTED]
    statistic = wanted[0].option("statistic", "mean") if wanted else None

    def train(shared: state.ToTrain, job):
        replicate, who, key, arrives = job
        federation, received = shared.federation, shared.received(replicate)
        kept = shared.kept(replicate, who)
        memory = shared.memory(replicate, kept)
        result = client.train_and_report(
            plan.trainer, federation, received, replicate, who, key, shared.round, statistic, kept.optimizer, memory
        )
        report = plan.trainer.optimizer.report(result.finished, memory)
        # The server never receives the change in a lost report, so the client keeps its old memory.
        own = jax.tree.map(lambda new, old: jnp.where(arrives, new, old), report.own, memory.own)
        sums = Sums((report.averaged, result.update.carried), report.contributed)
        part = fed.loss_part(federation, replicate, who, plan.loss_on)
        trained = jax.tree.map(jnp.add, received, result.update)
        finite, unread = server.is_finite(sums), jnp.zeros(())
        of_client = Trained(
            result.update.trained if keep_updates else None,
            finite,
            client.loss(plan.trainer, federation, received, part) if reads.losses_before else unread,
            client.loss(plan.trainer, federation, trained, part) if reads.losses_after else unread,
            result.training_loss,
            result.coefficient * result.learning_rate if reads.path_lengths else unread,
            Kept(None if kept.optimizer is None else result.optimizer_state, own),
            result.update.carried if keep_carried else None,
        )
        return of_client, noise.addend(plan, sums, finite)

    return train


def aggregate(context: RoundContext, cohort: Cohort, trained: Trained, sums: Sums, weights: jax.Array) -> ServerStep:
    """Take the server optimizer's step on the mean of the finite reports by `weights`, float32 [S, K].

    The step leaves out updates that are not finite in every run. The host reads them from the records afterwards, and
    ends the run if `--on-nonfinite` demands it.
    """
    plan, carry = context.plan, context.carry
    shared = jax.tree.map(jnp.add, carry.shared, sums.contributed)
    private, received = plan.private_training is not None, cohort.reports.mask
    if private:
        mean, carried = noise.private_mean(context, sums.averaged)
    else:
        mean, carried = jax.vmap(server.mean_of_reports)(sums.averaged, weights, trained.finite)
    mean_update = Weights(jax.vmap(plan.trainer.optimizer.combine)(mean), carried)
    arrived = (received if private else received & trained.finite).any(axis=1)
    step = jax.vmap(partial(server.new_model, plan.server))
    params, optimizer = step(carry.server, carry.params, mean_update, arrived)
    return ServerStep(params, optimizer, shared, evaluation.evaluate_for_strategy(plan, context.federation, params))


def learn(
    context: RoundContext,
    cohort: Cohort,
    selection_state: SelectionState,
    trained: Trained,
    server_step: ServerStep,
    weights: jax.Array,
    reads: OutcomeReads,
) -> SelectionState:
    """Call the strategy's `update` on the round's outcome, leaves [S, K, ...], and age its facts by one round.

    The bill counts the losses in the outcome that were not finite and were replaced.
    """
    cohort, selection_state, trained = noise.perturb_reports(context, cohort, selection_state, trained)
    plan, carry, reports = context.plan, context.carry, cohort.reports
    before, _, replaced_before = jax.vmap(availability.replace_nonfinite)(trained.loss_before, reports.mask)
    after, _, replaced_after = jax.vmap(availability.replace_nonfinite)(trained.loss_after, reports.mask)
    reported = (trained.updates, before, after, trained.finite)
    updates, before, after, finite = jax.tree.map(partial(_zero_if_lost, reports.mask), reported)
    averaged = evaluation.CohortModels(Weights(updates, trained.carried), jnp.where(finite, weights, 0.0), carry.params)
    server_metrics: Any = Unrequested(plan.strategy.name, "server_metrics")
    if server_step.evaluation is not None and carry.evaluation is not None:
        server_metrics = ServerMetrics(carry.evaluation, server_step.evaluation)
    outcome = Outcome(
        updates=updates,
        losses_before=before,
        losses_after=after,
        step=jax.tree.map(jnp.subtract, server_step.params.trained, carry.params.trained),
        reported=reports.mask,
        finite=finite,
        metrics=server_metrics,
        path_lengths=trained.path_lengths,
        subset_loss=evaluation.subsets(plan, context.federation, averaged),
        seconds=cohort.durations,
        staleness=np.zeros(reports.ids.shape, np.int32) if cohort.staleness is None else cohort.staleness,
    )
    strategy = protocol.over_replicates(plan.strategy)
    selection_state = protocol.learn(strategy, selection_state, cohort.selection, outcome)
    replaced = int(reads.losses_before) * replaced_before + int(reads.losses_after) * replaced_after
    bill = selection_state.bill
    return selection_state._replace(bill=bill._replace(losses_replaced=bill.losses_replaced + replaced))


def _zero_if_lost(arrives: jax.Array, leaf: jax.Array) -> jax.Array:
    """Set a leaf [S, K, ...] to zero for lost reports and for empty places of the cohort; `arrives` is bool [S, K]."""
    return jnp.where(arrives.reshape(*arrives.shape, *[1] * (leaf.ndim - 2)), leaf, jnp.zeros_like(leaf))


def record(
    context: RoundContext,
    cohort: Cohort,
    bill: Bill,
    trained: Trained,
    server_step: ServerStep,
    weights: jax.Array,
    reads: OutcomeReads,
) -> Records:
    """Return the round's records, leaves [S, ...]: evaluations that are due, the cohort, faults, and ledger events.

    The losses that the strategy reads (`reads`) are billed, as they travel with the updates.
    """
    plan, federation, round, carry = context.plan, context.federation, context.round, context.carry
    selection, reports, finite, params = cohort.selection, cohort.reports, trained.finite, server_step.params
    num_clients = federation.starts.shape[1]

    def gemd(counts, ids, mask):
        return metrics.group_earth_movers_distance(jnp.where(mask[:, None], counts[ids], 0), counts.sum(axis=0))

    def measure_test() -> tuple[evaluation.Measured, Any]:
        values = evaluation.per_example(plan, federation, params, federation.test_images, federation.test_labels)
        return evaluation.means(plan, values), values

    task, spent, every = plan.trainer.task, noise.epsilons(context, bill, reports), partial(_every, plan, round)
    test, values = every(plan.eval_every, measure_test)
    train = every(plan.train_metrics_every, partial(evaluation.train_metrics, plan, federation, params))
    own_tests = {}
    if federation.client_tests is not None:
        period = plan.eval_clients_every
        measured = not plan.tests_in_training_set and (period == plan.last_every or period % plan.eval_every == 0)
        of_test_set = values if measured else None
        own_tests = every(period, partial(evaluation.client_tests, plan, federation, params, of_test_set))
    # Facts measured before the first round, and the evaluation of w^0, are billed to the first round.
    start = jax.tree.map(lambda leaf: jnp.where(round == 0, leaf, jnp.zeros_like(leaf)), carry.start)
    return Records(
        cohort=jnp.where(selection.mask, selection.ids, -1),
        measured=tasks.columns_of(
            task,
            test=(test.measures, test.loss),
            train=(train.measures, train.loss),
            over_clients=(train.worst_decile, train.gini, train.jain, train.undefined),
            gemd=jax.vmap(gemd)(federation.label_counts, reports.ids, reports.mask),
            seconds=clock.round_seconds(context, cohort, bill, start),
        )
        | own_tests
        | ({} if spent is None else dict(zip(tasks.EPSILONS, (spent.max(axis=1), spent.mean(axis=1))))),
        nonfinite=reports.mask & ~finite,
        faults=find_faults(cohort.named, num_clients, weights, (params, server_step.optimizer, server_step.shared)),
        events=billing.round_events(context, cohort, finite, bill, start, reads.num_losses),
        epsilons=spent,
    )


def _every(plan: Plan, round: jax.Array, period: int, measure: Callable[[], Any]) -> Any:
    """Measure in every period-th round and in each that can be the last; otherwise return NaN, and zeros for integers.

    A period of 0 means never.
    """
    if period == 1:
        return measure()
    measure = jax_settings.traced_once(measure)

    def missing(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.full(leaf.shape, jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0, leaf.dtype)

    def skip() -> Any:
        return jax.tree.map(missing, jax.eval_shape(measure))

    ends = ((round + 1) % plan.last_every == 0) | (round + 1 == plan.num_rounds)
    return lax.cond(ends | ((round + 1) % period == 0), measure, skip) if period else skip()


def find_faults(named: state.UncheckedIds, num_clients: int, weights: jax.Array, held: Any) -> state.Faults:
    """Detect the faults of a round.

    `weights` are the aggregation weights, float32 [S, K]; `held` is the server's model and state after its step, with
    floating-point and integer leaves [S, ...].
    """

    def misnamed(ids: jax.Array, mask: jax.Array) -> jax.Array:
        """Return whether any ID is out of range, masked or not, or any unmasked ID occurs twice, bool [S]."""
        outside = ((ids < 0) | (ids >= num_clients)).any(axis=1)
        return outside | (distinct(ids, mask, num_clients).sum(axis=1) != mask.sum(axis=1))

    wrong = misnamed(named.ids, named.mask)
    if named.candidates is not None:
        wrong |= misnamed(named.candidates, jnp.ones(named.candidates.shape, bool))
    broken = ~jax.vmap(server.is_finite)(held)
    return state.Faults(wrong, named.ids, named.candidates, broken, ~jnp.isfinite(weights).all(axis=1))


def clip_ids(ids: jax.Array, num_clients: int) -> jax.Array:
    """Clip IDs to 0..N-1, so that a round with invalid IDs can finish before the host ends the run."""
    return jnp.clip(ids, 0, num_clients - 1)
