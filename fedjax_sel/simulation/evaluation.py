"""Accuracy and loss of the global models: on the test set, on the server's own data, on all clients' training data.

What the simulator evaluates for its own curves is never billed, and no strategy sees it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh

from fedjax_sel import metrics
from fedjax_sel.data import host_images
from fedjax_sel.data.federation import Federation, normalise
from fedjax_sel.models import Model, Params
from fedjax_sel.simulation import devices
from fedjax_sel.strategies.base import Evaluation


class TrainMetrics(NamedTuple):
    """Of the global model on the training data of all clients, float32 [S]."""

    accuracy: jax.Array  # over examples
    loss: jax.Array  # over examples, nats
    worst_decile_accuracy: jax.Array  # mean over the tenth of clients with the lowest accuracy


def block_size(num_examples: int, largest: int) -> int:
    """Examples in a block: equal blocks, none above `largest`, as little padding as possible."""
    return -(-num_examples // -(-num_examples // largest))


def on_images(
    mesh: Mesh, model: Model, federation: Federation, images, labels, params: Params, block: int, at_once: int
) -> Evaluation:
    """Evaluates the models of all replicates on some images.

    Args:
        mesh: the devices.
        model: the network.
        federation: for the normalisation.
        images: uint8 [n, H, W, channels].
        labels: int32 [n].
        params: leading axis [S, ...].
        block: examples a job evaluates.
        at_once: jobs a device runs together.

    Returns:
        Leaves [S].
    """
    correct, losses = _per_example(mesh, model, federation, images, labels, params, block, at_once)
    return Evaluation(correct.sum(axis=1, dtype=jnp.int32), correct.mean(axis=1), losses.mean(axis=1))


def train_metrics(mesh: Mesh, model: Model, federation: Federation, params: Params, block: int, at_once: int):
    """Evaluates the models of all replicates on all clients' training data, in one pass over the images.

    Args as `on_images`.

    Returns:
        TrainMetrics.
    """
    correct, losses = _per_example(
        mesh, model, federation, federation.images, federation.labels, params, block, at_once
    )
    num_clients = federation.starts.shape[1]

    def of_clients(values, order, owner):
        return jax.ops.segment_sum(values[order], owner, num_segments=num_clients + 1)[:num_clients]

    correct_of_clients = jax.vmap(of_clients)(correct, federation.order, federation.owner)
    loss_of_clients = jax.vmap(of_clients)(losses, federation.order, federation.owner)
    total = federation.train_sizes.sum(axis=1)
    return TrainMetrics(
        correct_of_clients.sum(axis=1) / total,
        loss_of_clients.sum(axis=1) / total,
        jax.vmap(metrics.worst_decile)(correct_of_clients / federation.train_sizes),
    )


def _per_example(mesh, model, federation, images, labels, params, block, at_once):
    """Whether each example is classified correctly, and its loss: float32 [S, examples] each."""
    num_examples, num_replicates = images.shape[0], jax.tree.leaves(params)[0].shape[0]
    # The last block starts early enough to be full; what it repeats is cut off below.
    num_blocks = -(-num_examples // block)
    starts = jnp.minimum(jnp.arange(num_blocks) * block, num_examples - block)

    def evaluate(shared, job):
        federation, images, labels, params = shared
        replicate, start = job
        pixels = normalise(federation, host_images.block(images, start, block))
        answers = lax.dynamic_slice_in_dim(labels, start, block)
        logits = model.apply(devices.of_replicate(params, replicate), pixels, None).logits
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, answers)
        return (logits.argmax(axis=1) == answers).astype(jnp.float32), losses

    jobs = devices.pairs(num_replicates, starts)
    values = devices.spread(mesh, evaluate, (federation, images, labels, params), jobs, at_once)

    def in_order(leaf):
        blocks = leaf.reshape(num_replicates, num_blocks, block)
        overlap = num_blocks * block - num_examples
        last = blocks[:, -1, overlap:]
        return jnp.concatenate([blocks[:, :-1].reshape(num_replicates, -1), last], axis=1)

    return jax.tree.map(in_order, values)
