"""One client's local work: SGD on its own data from the received model, and means over its data.

Pure functions of one (replicate, client); `simulation/devices.py` runs many of them at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation, Segment
from fedjax_sel.models import Model, Params
from fedjax_sel.training import schedule
from fedjax_sel.training.schedule import LocalWork


class Trainer(NamedTuple):
    """What all clients do alike. Static.

    Attributes:
        model: the network.
        work: how many steps on which batches.
        optimizer: of the clients, without the learning rate, which the round decides.
        learning_rate: round -> learning rate.
        evaluation_block: examples of one client evaluated at once.
    """

    model: Model
    work: LocalWork
    optimizer: optax.GradientTransformation
    learning_rate: Callable[[jax.Array], jax.Array]
    evaluation_block: int


def sgd(momentum: float, weight_decay: float) -> optax.GradientTransformation:
    """PyTorch's SGD without its learning rate: g + weight_decay * w, then the momentum buffer."""
    parts = []
    if weight_decay:
        parts.append(optax.add_decayed_weights(weight_decay))
    if momentum:
        parts.append(optax.trace(decay=momentum))
    return optax.chain(optax.identity(), *parts)


def mean_loss(model: Model, params: Params, images, labels, counts, dropout_key=None) -> jax.Array:
    """Mean cross-entropy in nats over the examples that count.

    Args:
        model: the network.
        params: its weights.
        images: float32 [B, H, W, channels].
        labels: int32 [B].
        counts: bool [B].
        dropout_key: None outside training.

    Returns:
        A scalar.
    """
    logits = model.apply(params, images, dropout_key).logits
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.sum(jnp.where(counts, losses, 0.0)) / jnp.maximum(counts.sum(), 1)


def train(
    trainer: Trainer,
    federation: Federation,
    params: Params,
    replicate: jax.Array,
    client: jax.Array,
    key: jax.Array,
    round: jax.Array,
) -> Params:
    """Local training of one client.

    Where clients take unequal numbers of steps, `vmap` turns the loop into one that ends with the longest and leaves
    the weights and the optimizer state of the finished ones untouched.

    Args:
        trainer: static.
        federation: the data.
        params: the received model.
        replicate: which seed's partition.
        client: who.
        key: of this client in this round; consumed.
        round: from 0, for the learning rate.

    Returns:
        The update, w_k - w, in the pytree of the model.
    """
    work = trainer.work
    part = fed.train_part(federation, replicate, client)
    order_key, dropout_key = jax.random.split(key)
    drawn = schedule.orders(work, order_key)
    learning_rate = trainer.learning_rate(round)

    def step(index, carry):
        weights, optimizer_state = carry
        positions, counts = schedule.batch(work, drawn, index, part.size)
        images, labels = fed.gather(federation, part, positions)
        step_key = jax.random.fold_in(dropout_key, index)
        gradient = jax.grad(lambda w: mean_loss(trainer.model, w, images, labels, counts, step_key))(weights)
        direction, optimizer_state = trainer.optimizer.update(gradient, optimizer_state, weights)
        return jax.tree.map(lambda w, d: w - learning_rate * d, weights, direction), optimizer_state

    steps = schedule.num_steps(work, part.size) if work.equal_steps is None else work.equal_steps
    weights, _ = lax.fori_loop(0, steps, step, (params, trainer.optimizer.init(params)))
    return jax.tree.map(lambda after, before: after - before, weights, params)


def mean_over(
    trainer: Trainer,
    federation: Federation,
    segment: Segment,
    function: Callable[[jax.Array, jax.Array, jax.Array], Any],
) -> Any:
    """The mean of something over a client's examples, block by block, accumulated in float32.

    Args:
        trainer: static.
        federation: the data.
        segment: which examples.
        function: (images [B, H, W, channels], labels [B], counts bool [B]) -> a pytree of SUMS over those that count.

    Returns:
        The pytree of means.
    """
    block = trainer.evaluation_block

    def body(index, sums):
        positions = index * block + jnp.arange(block)
        images, labels = fed.gather(federation, segment, positions)
        return jax.tree.map(jnp.add, sums, function(images, labels, positions < segment.size))

    shape = federation.images.shape[1:]
    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(
            function,
            jax.ShapeDtypeStruct((block, *shape), jnp.float32),
            jax.ShapeDtypeStruct((block,), jnp.int32),
            jax.ShapeDtypeStruct((block,), bool),
        ),
    )
    sums = lax.fori_loop(0, -(-segment.size // block), body, zeros)
    return jax.tree.map(lambda total: total / segment.size.astype(total.dtype), sums)


def loss(trainer: Trainer, federation: Federation, params: Params, segment: Segment) -> jax.Array:
    """Mean loss of a model over a client's examples, nats."""

    def total(images, labels, counts):
        return mean_loss(trainer.model, params, images, labels, counts) * counts.sum()

    return mean_over(trainer, federation, segment, total)


def profile(trainer: Trainer, federation: Federation, params: Params, segment: Segment, relu: bool) -> jax.Array:
    """Mean output of the first fully-connected layer over a client's examples (FL-DP3S Eq. 11), float32 [Q]."""

    def total(images, labels, counts):
        first = trainer.model.apply(params, images, None).first_dense
        return jnp.sum(jnp.where(counts[:, None], jax.nn.relu(first) if relu else first, 0.0), axis=0)

    return mean_over(trainer, federation, segment, total)


def gradient(trainer: Trainer, federation: Federation, params: Params, segment: Segment) -> Params:
    """Gradient of the mean loss over a client's examples, in the pytree of the model."""

    def total(images, labels, counts):
        def summed(weights):
            return mean_loss(trainer.model, weights, images, labels, counts) * counts.sum()

        return jax.grad(summed)(params)

    return mean_over(trainer, federation, segment, total)
