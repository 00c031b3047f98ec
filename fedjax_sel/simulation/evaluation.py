"""Measures and loss of the global models: on the test set, on the server's own data, on all clients' training data.

What the simulator evaluates for its own curves is never billed, and no strategy sees it.
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
    """Means over examples, float32 [S] each."""

    measures: dict[str, jax.Array]  # of the task, by name
    loss: jax.Array  # the task's
    correct: jax.Array  # the sum of its first measure, see `strategies.base.Evaluation`


class TrainMetrics(NamedTuple):
    """Of the global model on the training data of all clients, float32 [S]."""

    measures: dict[str, jax.Array]  # over examples
    loss: jax.Array  # over examples
    worst_decile: jax.Array  # mean over the tenth of clients with the worst first measure


def block_size(num_examples: int, largest: int) -> int:
    """Return the examples of a block: equal blocks, none above `largest`, as little padding as possible."""
    return -(-num_examples // -(-num_examples // largest))


class Evaluator(NamedTuple):
    """What evaluations have in common. Static.

    Attributes:
        mesh: the devices.
        model: the network.
        task: whose loss and measures.
        block: examples that a job evaluates.
        at_once: jobs that a device runs together.
    """

    mesh: Mesh
    model: Model
    task: Task
    block: int
    at_once: int


def on_examples(evaluator: Evaluator, federation: Federation, inputs: Any, targets: Any, weights: Weights) -> Measured:
    """Evaluate the models of all replicates on some examples.

    Args:
        evaluator: static.
        federation: for the normalisation.
        inputs: [n, ...].
        targets: [n, ...].
        weights: leading axis [S, ...].

    Returns:
        Leaves [S].
    """
    measures, losses = _per_example(evaluator, federation, inputs, targets, weights)
    first = evaluator.task.measure
    told = measures[first.name]
    total = told.sum(axis=1, dtype=jnp.float32 if jnp.issubdtype(told.dtype, jnp.floating) else jnp.int32)
    return Measured(
        {name: values.astype(jnp.float32).mean(axis=1) for name, values in measures.items()},
        losses.mean(axis=1),
        total if first.higher_is_better else -total,
    )


class OfClients(NamedTuple):
    """Of the global model on each client's training data, float32 [S, N]: means over its examples."""

    measures: dict[str, jax.Array]
    loss: jax.Array


def of_clients(evaluator: Evaluator, federation: Federation, weights: Weights) -> OfClients:
    """Evaluate the models of all replicates on each client's training data; args as `on_examples`."""
    measures, losses = _sums_of_clients(evaluator, federation, weights)
    sizes = federation.train_sizes
    return OfClients({name: values / sizes for name, values in measures.items()}, losses / sizes)


def train_metrics(evaluator: Evaluator, federation: Federation, weights: Weights) -> TrainMetrics:
    """Evaluate the models of all replicates on all clients' training data, in one pass over the examples.

    Args as `on_examples`.
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
    """Add up the task's measures and the losses over each client's training examples: float32 [S, N] each."""
    values = _per_example(evaluator, federation, federation.images, federation.labels, weights)
    values = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), values)
    num_clients = federation.starts.shape[1]

    def of_one(values, order, owner):
        return jax.ops.segment_sum(values[order], owner, num_segments=num_clients + 1)[:num_clients]

    return jax.tree.map(lambda leaf: jax.vmap(of_one)(leaf, federation.order, federation.owner), values)


def _per_example(
    evaluator: Evaluator, federation: Federation, inputs: Any, targets: Any, weights: Weights
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return the task's measures, as it tells them, and the loss of each example, float32: [S, examples] each."""
    mesh, model, task, block, at_once = evaluator
    num_replicates = jax.tree.leaves(weights)[0].shape[0]
    num_examples = jax.tree.leaves(targets)[0].shape[0]
    # The last block starts early enough to be full; what it repeats is cut off below.
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
