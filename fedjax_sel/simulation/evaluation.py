"""Evaluation of models on the test set, on each client, and on the server for a strategy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel import devices, metrics, tasks
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation.availability import bounded
from fedjax_sel.simulation.state import Plan
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.contract import Evaluation, Unrequested
from fedjax_sel.strategies.facts import SERVER, Request
from fedjax_sel.strategies.protocol import SubsetLoss


class Measured(NamedTuple):
    """Metrics of the global models on some examples, [S] each."""

    measures: dict[str, jax.Array]  # means of the task's measures by name, float32
    loss: jax.Array  # mean loss, float32
    correct: jax.Array  # sum of the task's first measure, see `strategies.contract.Evaluation`


class TrainMetrics(NamedTuple):
    """Metrics of the global models on all clients' training data, float32 [S]."""

    measures: dict[str, jax.Array]  # means over examples
    loss: jax.Array  # mean over examples
    worst_decile: jax.Array  # mean first measure of the worst tenth of the clients
    gini: jax.Array  # Gini index of the clients' first measures
    jain: jax.Array  # Jain index of the clients' first measures
    undefined: jax.Array  # number of clients whose first measure is NaN or infinite


def block_size(num_examples: int, largest: int) -> int:
    """Return the size of equal blocks, at most `largest`, with the least padding."""
    return -(-num_examples // -(-num_examples // largest))


def means(plan: Plan, values: tuple[dict[str, jax.Array], jax.Array]) -> Measured:
    """Return the means, [S], of the values of examples that `per_example` returns."""
    (measures, losses), first = values, plan.trainer.task.measure
    of_first = measures[first.name]
    total = of_first.sum(axis=1, dtype=jnp.float32 if jnp.issubdtype(of_first.dtype, jnp.floating) else jnp.int32)
    found = {name: leaf.astype(jnp.float32).mean(axis=1) for name, leaf in measures.items()}
    return Measured(*_worst_if_nan(plan, found, losses.mean(axis=1)), total if first.higher_is_better else -total)


def _worst_if_nan(plan: Plan, means: dict[str, jax.Array], loss: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return means in which NaN, of a diverged model, is the worst value: records mark a missing evaluation by NaN."""
    worst = {each.name: -jnp.inf if each.higher_is_better else jnp.inf for each in plan.trainer.task.measures}
    found = {name: jnp.where(jnp.isnan(mean), worst[name], mean) for name, mean in means.items()}
    return found, jnp.where(jnp.isnan(loss), jnp.inf, loss)


def client_measures(
    plan: Plan, federation: Federation, weights: Weights, tests: bool = False, of_test_set: Any = None
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return the task's measures and the loss on each client's training data, means over its examples, float32 [S, N].

    With `tests`, they are those on the clients' test examples, [S, N + U]; NaN for a client without any. `of_test_set`,
    the values of the whole test set from `per_example`, saves the evaluation of clients' tests that are a part of it.
    """
    measures, losses = _sums_of_clients(plan, federation, weights, tests, of_test_set)
    sizes = federation.train_sizes if federation.client_tests is None or not tests else federation.client_tests.sizes
    return {name: values / sizes for name, values in measures.items()}, losses / sizes


def train_metrics(plan: Plan, federation: Federation, weights: Weights) -> TrainMetrics:
    """Evaluate the models of all replicates on all clients' training data, in one pass over the examples."""
    sums, losses = _sums_of_clients(plan, federation, weights, tests=False)
    total, first = federation.train_sizes.sum(axis=1), plan.trainer.task.measure
    means = {name: values.sum(axis=1) / total for name, values in sums.items()}
    means, loss = _worst_if_nan(plan, means, losses.sum(axis=1) / total)
    spread = _spread(plan, sums[first.name] / federation.train_sizes)
    return TrainMetrics(means, loss, *spread)


def _spread(plan: Plan, of_clients: jax.Array) -> tuple[jax.Array, ...]:
    """Return worst decile, Gini index, Jain index and number of undefined clients, [S], of the first measure [S, N]."""
    sign = 1.0 if plan.trainer.task.measure.higher_is_better else -1.0
    worst = sign * jax.vmap(metrics.worst_decile)(sign * of_clients)
    undefined = metrics.undefined_clients(of_clients).astype(jnp.float32)
    return worst, metrics.gini_index(of_clients), metrics.jain_index(of_clients), undefined


def _sums_of_clients(
    plan: Plan, federation: Federation, weights: Weights, tests: bool, of_test_set: Any = None
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Sum the task's measures and the losses over each client's training or test examples: float32 [S, N] each."""
    inputs, targets, order, owner = federation.images, federation.labels, federation.order, federation.owner
    num_clients = federation.starts.shape[1]
    if tests:
        assert federation.client_tests is not None
        order, owner, num_clients = *federation.client_tests[:2], federation.client_tests.sizes.shape[1]
        if not plan.tests_in_training_set:
            inputs, targets = federation.test_images, federation.test_labels
    # Clients' tests in the training set are a few of its examples; the others are not evaluated.
    few = of_test_set is None and order.shape[1] < jax.tree.leaves(targets)[0].shape[0]
    values = of_test_set or per_example(plan, federation, weights, inputs, targets, order if few else None)

    def of_one(values, order, owner):
        values = (values if few else values[order]).astype(jnp.float32)
        return jax.ops.segment_sum(values, owner, num_segments=num_clients + 1)[:num_clients]

    return jax.tree.map(lambda leaf: jax.vmap(of_one)(leaf, order, owner), values)


def client_tests(plan: Plan, federation: Federation, weights: Weights, of_test_set: Any = None) -> dict[str, jax.Array]:
    """Evaluate the models of all replicates on the clients' test examples; columns of `tasks.client_columns`, [S].

    The mean is over clients with a defined measure. A client without test examples is undefined.
    """
    measure, num_clients = plan.trainer.task.measure.name, federation.starts.shape[1]
    of_clients = client_measures(plan, federation, weights, True, of_test_set)[0][measure]
    found = {}
    for kind, own in (("client", of_clients[:, :num_clients]), ("unseen", of_clients[:, num_clients:])):
        if own.shape[1]:
            mean = jnp.nanmean(jnp.where(jnp.isfinite(own), own, jnp.nan), axis=1)
            found |= dict(zip(tasks.client_columns(kind, measure), (mean, *_spread(plan, own)), strict=True))
    return found


def per_example(
    plan: Plan, federation: Federation, weights: Weights, inputs: Any, targets: Any, rows: jax.Array | None = None
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return the task's measures, in their own dtypes, and the float32 losses of the examples: [S, examples] each.

    The examples are all of `inputs` and `targets`, or each replicate's `rows` of them, int32 [S, examples].
    """
    model, task = plan.trainer.model, plan.trainer.task
    num_replicates = jax.tree.leaves(weights)[0].shape[0]
    num_examples = jax.tree.leaves(targets)[0].shape[0] if rows is None else rows.shape[1]
    block = block_size(num_examples, plan.evaluation_block)
    # The last block is full: it overlaps the one before, and `in_order` removes the overlap.
    num_blocks = -(-num_examples // block)
    starts = jnp.minimum(jnp.arange(num_blocks) * block, num_examples - block)

    def of_block(shared, job):
        federation, inputs, targets, weights, rows = shared
        replicate, start = job
        if rows is None:
            batch = fed.block(federation, inputs, start, block)
            answers = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, block), targets)
        else:
            places = lax.dynamic_slice_in_dim(rows[replicate], start, block)
            batch, answers = fed.normalize(federation, fed.take(inputs, places)), fed.take(targets, places)
        prediction = model.apply(devices.replicate_slice(weights, replicate), batch, None).prediction
        losses = task.losses(prediction, answers)
        return {each.name: each.of(prediction, answers) for each in task.measures}, losses

    jobs = devices.pairs(num_replicates, starts)
    values = devices.spread(
        plan.mesh, of_block, (federation, inputs, targets, weights, rows), jobs, plan.blocks_at_once
    )

    def in_order(leaf):
        blocks = leaf.reshape(num_replicates, num_blocks, block)
        overlap = num_blocks * block - num_examples
        last = blocks[:, -1, overlap:]
        return jnp.concatenate([blocks[:, :-1].reshape(num_replicates, -1), last], axis=1)

    return jax.tree.map(in_order, values)


def evaluate_for_strategy(plan: Plan, federation: Federation, weights: Weights) -> Evaluation | None:
    """Return the server's evaluation of the models, leaves [S]; None if the strategy does not request one."""
    wanted = [request for request in plan.strategy.requests if request.kind == "server_metrics"]
    if not wanted:
        return None
    inputs, targets = _examples(federation, wanted[0])
    measured = means(plan, per_example(plan, federation, weights, inputs, targets))
    return Evaluation(measured.correct, measured.measures[plan.trainer.task.measure.name], bounded(measured.loss))


class CohortModels(NamedTuple):
    """Inputs of averages over subsets of a cohort."""

    updates: Weights  # w_k - w, zero for lost reports, [S, K, ...]
    weights: jax.Array  # aggregation weights, zero for reports lost or not finite, float32 [S, K]
    params: Weights  # w, [S, ...]


def subsets(plan: Plan, federation: Federation, reports: CohortModels) -> SubsetLoss | Unrequested:
    """Return the `subset_loss` that `update` calls: the server's loss of averaged models of subsets of the cohort."""
    request = protocol.requested_subset_loss(plan.strategy)
    if request is None:
        return Unrequested(plan.strategy.name, protocol.SUBSET_LOSS)
    inputs, targets = _examples(federation, request)
    count = jax.tree.leaves(targets)[0].shape[0]
    block = block_size(count, plan.evaluation_block)
    starts = jnp.minimum(jnp.arange(-(-count // block)) * block, count - block)
    fresh = jnp.arange(-(-count // block)) * block  # first example of each block that is not in the block before

    def of_model(weights: Weights) -> jax.Array:
        def of_block(job: tuple[jax.Array, jax.Array]) -> jax.Array:
            start, first = job
            batch = fed.block(federation, inputs, start, block)
            answers = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, block), targets)
            losses = plan.trainer.task.losses(plan.trainer.model.apply(weights, batch, None).prediction, answers)
            return jnp.where(start + jnp.arange(block) >= first, losses, 0.0).sum()

        return lax.map(of_block, (starts, fresh)).sum() / count

    def loss(reports: CohortModels, mask: jax.Array) -> jax.Array:
        def of_subset(members: jax.Array) -> jax.Array:
            shares = jnp.where(members, reports.weights, 0.0)
            shares = shares / jnp.where(shares.sum() > 0, shares.sum(), 1.0)

            def average(w: jax.Array, updates: jax.Array) -> jax.Array:
                own = jnp.where(shares.reshape(-1, *[1] * w.ndim) > 0, updates, 0.0)
                return w + jnp.tensordot(shares, own, 1, precision=lax.Precision.HIGHEST)

            return bounded(of_model(jax.tree.map(average, reports.params, reports.updates)))

        return lax.map(of_subset, mask)

    return protocol.make_subset_loss(plan.strategy, loss, reports)


def _examples(federation: Federation, request: Request) -> tuple[Any, Any]:
    """Return the inputs and targets on which the server evaluates a request."""
    if request.option("on", "validation") == "test":
        return federation.test_images, federation.test_labels
    return federation.server_images, federation.server_labels


def server_examples(plan: Plan, federation: Federation, evaluations: jax.Array | int) -> jax.Array | int:
    """Count the examples that the server evaluates for the strategy in a round; `evaluations` of the global model."""
    counts = {}
    for request in plan.strategy.requests:
        if request.who == SERVER:
            times = evaluations if request.kind == "server_metrics" else request.option("subsets", 1)
            counts[request.kind] = times * jax.tree.leaves(_examples(federation, request)[1])[0].shape[0]
    return sum(counts.values())
