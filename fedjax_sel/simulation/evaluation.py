"""Evaluation of the global models: on the test set, on the server's own data, and on all clients' training data.

Evaluations for the simulator's own curves are never billed, and no strategy sees them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from fedjax_sel import devices, metrics
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Model
from fedjax_sel.models.weights import Weights
from fedjax_sel.tasks import Task


class Measured(NamedTuple):
    """Metrics of the global models on some examples, [S] each."""

    measures: dict[str, jax.Array]  # means of the task's measures by name, float32
    loss: jax.Array  # mean loss, float32
    correct: jax.Array  # sum of the task's first measure, see `strategies.base.Evaluation`


class TrainMetrics(NamedTuple):
    """Metrics of the global models on all clients' training data, float32 [S]."""

    measures: dict[str, jax.Array]  # means over examples
    loss: jax.Array  # mean over examples
    worst_decile: jax.Array  # mean first measure of the worst tenth of the clients


def block_size(num_examples: int, largest: int) -> int:
    """Return the size of equal blocks, at most `largest`, with the least padding."""
    return -(-num_examples // -(-num_examples // largest))


class Evaluator(NamedTuple):
    """Static configuration of an evaluation.

    Attributes:
        mesh: the devices.
        model: the network.
        task: the loss and the measures.
        block: examples per job.
        at_once: jobs that a device runs at once.
    """

    mesh: Mesh
    model: Model
    task: Task
    block: int
    at_once: int


def on_examples(evaluator: Evaluator, federation: Federation, inputs: Any, targets: Any, weights: Weights) -> Measured:
    """Evaluate the models of all replicates on the same examples.

    Args:
        evaluator: static configuration.
        federation: the data, for its input normalization.
        inputs: [n, ...].
        targets: [n, ...].
        weights: one model per replicate, [S, ...].

    Returns:
        Metrics, leaves [S].
    """
    measures, losses = _per_example(evaluator, federation, inputs, targets, weights)
    first = evaluator.task.measure
    values = measures[first.name]
    total = values.sum(axis=1, dtype=jnp.float32 if jnp.issubdtype(values.dtype, jnp.floating) else jnp.int32)
    return Measured(
        {name: values.astype(jnp.float32).mean(axis=1) for name, values in measures.items()},
        losses.mean(axis=1),
        total if first.higher_is_better else -total,
    )


class OfClients(NamedTuple):
    """Metrics of the global models on each client's training data: means over its examples, float32 [S, N]."""

    measures: dict[str, jax.Array]
    loss: jax.Array


def of_clients(evaluator: Evaluator, federation: Federation, weights: Weights) -> OfClients:
    """Evaluate the models of all replicates on each client's training data; arguments as in `on_examples`."""
    measures, losses = _sums_of_clients(evaluator, federation, weights)
    sizes = federation.train_sizes
    return OfClients({name: values / sizes for name, values in measures.items()}, losses / sizes)


def train_metrics(evaluator: Evaluator, federation: Federation, weights: Weights) -> TrainMetrics:
    """Evaluate the models of all replicates on all clients' training data, in one pass over the examples.

    It takes the same arguments as `on_examples`.
    """
    sums, losses = _sums_of_clients(evaluator, federation, weights)
    total, first = federation.train_sizes.sum(axis=1), evaluator.task.measure
    goodness = (1.0 if first.higher_is_better else -1.0) * sums[first.name] / federation.train_sizes
    worst = jax.vmap(metrics.worst_decile)(goodness)
    return TrainMetrics(
        {name: values.sum(axis=1) / total for name, values in sums.items()},
        losses.sum(axis=1) / total,
        worst if first.higher_is_better else -worst,
    )


def _sums_of_clients(
    evaluator: Evaluator, federation: Federation, weights: Weights
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Sum the task's measures and the losses over each client's training examples: float32 [S, N] each."""
    values = _per_example(evaluator, federation, federation.images, federation.labels, weights)
    values = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), values)
    num_clients = federation.starts.shape[1]

    def of_one(values, order, owner):
        return jax.ops.segment_sum(values[order], owner, num_segments=num_clients + 1)[:num_clients]

    return jax.tree.map(lambda leaf: jax.vmap(of_one)(leaf, federation.order, federation.owner), values)


def _per_example(
    evaluator: Evaluator, federation: Federation, inputs: Any, targets: Any, weights: Weights
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return the task's measures, in their own dtypes, and the float32 losses of the examples: [S, examples] each."""
    mesh, model, task, block, at_once = evaluator
    num_replicates = jax.tree.leaves(weights)[0].shape[0]
    num_examples = jax.tree.leaves(targets)[0].shape[0]
    # The last block is full: it overlaps the one before, and `in_order` removes the overlap.
    num_blocks = -(-num_examples // block)
    starts = jnp.minimum(jnp.arange(num_blocks) * block, num_examples - block)

    def evaluate(shared, job):
        federation, inputs, targets, weights = shared
        replicate, start = job
        batch = fed.block(federation, inputs, start, block)
        answers = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, block), targets)
        prediction = model.apply(devices.of_replicate(weights, replicate), batch, None).prediction
        losses = task.losses(prediction, answers)
        return {each.name: each.of(prediction, answers) for each in task.measures}, losses

    jobs = devices.pairs(num_replicates, starts)
    values = devices.spread(mesh, evaluate, (federation, inputs, targets, weights), jobs, at_once)

    def in_order(leaf):
        blocks = leaf.reshape(num_replicates, num_blocks, block)
        overlap = num_blocks * block - num_examples
        last = blocks[:, -1, overlap:]
        return jnp.concatenate([blocks[:, :-1].reshape(num_replicates, -1), last], axis=1)

    return jax.tree.map(in_order, values)
