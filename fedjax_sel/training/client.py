"""Local training of one client: gradient steps, losses, and its report."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_sel.core import jax_settings
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation, Segment
from fedjax_sel.models import Draws, Model, Params
from fedjax_sel.models.core import Weights
from fedjax_sel.numerics import privacy
from fedjax_sel.tasks import Task
from fedjax_sel.training import schedule
from fedjax_sel.training.optimizers import NOTHING_REMEMBERED, FederatedOptimizer, Finished, Memory
from fedjax_sel.training.schedule import LocalWork


# In-place weight updates on CPUs.
#
# A step can overwrite a layer's weights only after their last read. On CPUs, XLA assigns buffers before it orders the
# operations. If a layer's new weights do not depend on the gradient that passed through it to the layer below, XLA
# copies the old weights in each step (a dense layer of 6.4 MB in pfl-research's CNN). The learning rate is therefore
# made to depend on the whole gradient.
def depend_on(value: jax.Array, tree: Any) -> jax.Array:
    """Return a float32 scalar unchanged, bit for bit, with a data dependency on all leaves of a tree on CPUs."""
    if jax.default_backend() != "cpu":
        return value

    def opaque_zero(leaf: jax.Array) -> jax.Array:
        """Return a zero that XLA does not simplify: one bit of a number, shifted out of its word."""
        first = lax.bitcast_convert_type(leaf.reshape(-1)[0].astype(jnp.float32), jnp.uint32)
        return (first >> 31) >> 1

    bits = lax.bitcast_convert_type(jnp.asarray(value, jnp.float32), jnp.uint32)  # bit patterns depend on the width
    for leaf in jax.tree.leaves(tree):
        bits = bits | opaque_zero(leaf) if leaf.size else bits
    return lax.bitcast_convert_type(bits, jnp.float32)


# Random numbers, such as dropout's, are drawn for all steps at once. XLA compiles a random generator to a loop of small
# operations, which costs as much as a layer of a small network in each step on a CPU.

MOST_BYTES = 2**20  # limit per client on the memory of draws made ahead


def draws_by_step(model: Model, work: LocalWork, key: jax.Array) -> Callable[[jax.Array], Draws]:
    """Return the function from a step's index to its random draws; `key` is a client's key in a round, consumed."""

    def of_step(index: jax.Array) -> Draws:
        return model.draw(jax.random.fold_in(key, index), work.batch_size)

    step_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(of_step, jnp.int32(0))))
    if not step_bytes or work.equal_steps is None or work.equal_steps * step_bytes > MOST_BYTES:
        return of_step
    ahead = jax.vmap(of_step)(jnp.arange(work.equal_steps))
    # Without the barrier, XLA would index the table again for each unit that uses a draw.
    return lambda index: lax.optimization_barrier(jax.tree.map(lambda leaf: leaf[index], ahead))


# Micro-batches: the activations of a whole batch in a convolutional network exceed a core's cache many times.
def batch_gradient(
    losses_of: Callable[[Params, Any], tuple[jax.Array, Any]],
    params: Params,
    examples: Any,
    counts: jax.Array,
    micro_batch: int,
) -> tuple[Params, jax.Array, Any]:
    """Return the gradient of the mean loss of the examples with `counts`, their losses [B], and the new carried state.

    `losses_of` is (params, examples) -> per-example losses, for any number of examples, and the new non-trained state.
    Examples [B, ...] with `counts`, bool [B], come first. A piece has at most `micro_batch` examples; that is at least
    B for a model with non-trained state.
    """
    number = jnp.maximum(counts.sum(), 1)

    def mean_loss(params: Params, examples: Any, counts: jax.Array) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        losses, carried = losses_of(params, examples)
        return jnp.sum(jnp.where(counts, losses, 0.0)) / number, (losses, carried)

    gradient_of = jax.grad(mean_loss, has_aux=True)
    num_pieces = -(-len(counts) // micro_batch)
    if num_pieces == 1:
        gradient, (losses, carried) = gradient_of(params, examples, counts)
        return gradient, losses, carried

    def in_pieces(leaf: jax.Array) -> jax.Array:
        """Split [B, ...] into [pieces, B / pieces, ...], padded with zeros."""
        filled = jnp.pad(leaf, [(0, -len(leaf) % num_pieces)] + [(0, 0)] * (leaf.ndim - 1))
        return filled.reshape(num_pieces, -1, *leaf.shape[1:])

    pieces = jax.tree.map(in_pieces, (examples, counts))
    size = pieces[1].shape[1]

    def add(index: jax.Array, so_far: tuple[Params, jax.Array]) -> tuple[Params, jax.Array]:
        gradient, (losses, carried) = gradient_of(params, *jax.tree.map(lambda leaf: leaf[index], pieces))
        assert not jax.tree.leaves(carried), "a model with non-trained state takes its batch whole"
        return jax.tree.map(jnp.add, so_far[0], gradient), so_far[1].at[index].set(losses)

    zeros = jax.tree.map(jnp.zeros_like, params), jnp.zeros((num_pieces, size))
    used_pieces = -(-counts.sum() // size)  # fully masked pieces are skipped
    gradient, losses = lax.fori_loop(0, used_pieces, add, zeros)
    return gradient, losses.reshape(-1)[: len(counts)], ()


class Bounds(NamedTuple):
    """Limits of each example's part in what a client reports; None: no limit."""

    loss: float | None = None  # clipped to [0, bound], nats
    profile: float | None = None  # L2 norm of the output
    gradient: float | None = None  # L2 norm


class Trainer(NamedTuple):
    """Static configuration of local training, the same for all clients."""

    model: Model
    task: Task
    work: LocalWork
    optimizer: FederatedOptimizer  # defines the gradient that clients step on, and their reports
    client_optimizer: optax.GradientTransformation  # applied to that gradient; `learning_rate` scales its step
    learning_rate: Callable[[jax.Array], jax.Array]  # of a round
    evaluation_block: int  # examples of a client evaluated at once
    micro_batch: int  # examples of a step whose gradient is computed at once
    unroll: int | None = None  # of the step loop, if all clients take the same number of steps; None: JAX's default
    bounds: Bounds = Bounds()  # of `loss`, `batch_loss`, `profile` and `gradient`


def sgd(momentum: float, weight_decay: float) -> optax.GradientTransformation:
    """Make PyTorch's SGD without its learning rate: g + weight_decay * w, then the momentum buffer."""
    decay = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    return optax.chain(optax.identity(), *decay, *([optax.trace(decay=momentum)] if momentum else []))


def example_losses(model: Model, task: Task, weights: Weights, inputs: Any, targets: Any) -> jax.Array:
    """Return the loss of each example outside training, float32 [B], for inputs and targets [B, ...]."""
    return task.losses(model.apply(weights, inputs, None).prediction, targets)


def mean_loss(model: Model, task: Task, weights: Weights, inputs: Any, targets: Any, counts: jax.Array) -> jax.Array:
    """Return the mean loss outside training over the examples [B, ...] with `counts`, bool [B]; a scalar."""
    losses = example_losses(model, task, weights, inputs, targets)
    return jnp.sum(jnp.where(counts, losses, 0.0)) / jnp.maximum(counts.sum(), 1)


class OptimizerState(NamedTuple):
    """State of a client's own optimizer."""

    model: optax.OptState
    unit: optax.OptState  # the same optimizer on a single weight with gradients of one: see `coefficient`


def fresh(trainer: Trainer, params: Params) -> OptimizerState:
    """Return the initial state of the clients' own optimizer."""
    init = trainer.client_optimizer.init
    return OptimizerState(init(params), init(jnp.zeros(())))


class LocalResult(NamedTuple):
    """Result of a client's local training."""

    update: Weights  # w_k - w^t
    training_loss: jax.Array  # the requested statistic, nats; zero if none
    optimizer_state: OptimizerState  # after the last step
    num_examples: jax.Array  # examples processed, repetitions counted, int32
    coefficient: jax.Array  # see `coefficient`
    learning_rate: jax.Array

    @property
    def finished(self) -> Finished:
        """The federated optimizer's view of this result."""
        return Finished(self.update.trained, self.coefficient, self.learning_rate)


def train_and_report(
    trainer: Trainer,
    federation: Federation,
    received: Weights,
    replicate: jax.Array,
    client: jax.Array,
    key: jax.Array,
    round: jax.Array,
    statistic: str | None = None,
    optimizer_state: OptimizerState | None = None,
    memory: Memory = NOTHING_REMEMBERED,
) -> LocalResult:
    """Train one client from the model `received`, and measure its training loss along the way.

    `statistic` is the statistic of the mini-batch losses, each measured before its step; None: none. `mean` covers all
    steps and `last-pass` the last pass. `rms-first-pass` is the root mean square over the examples of the first pass;
    with `local_steps`, it includes all of the batch in which that pass ends.
    """
    work = trainer.work
    part = fed.train_part(federation, replicate, client)
    order_key, dropout_key = jax.random.split(key)
    order = schedule.orders(work, order_key, part.size)
    draws_of = draws_by_step(trainer.model, work, dropout_key)
    learning_rate = trainer.learning_rate(round)
    epochs = schedule.epochs(work, key)
    steps = schedule.num_steps(work, part.size, epochs)

    def seen(index, losses, counts):
        """Return a step's contribution to the statistic: a total and a count, [2]."""
        steps_a_pass = schedule.steps_a_pass(work, part.size)
        if statistic == "rms-first-pass":
            counts &= index < steps_a_pass
            return jnp.stack([jnp.sum(jnp.where(counts, losses**2, 0.0)), counts.sum(dtype=jnp.float32)])
        taken = jnp.where(index >= steps - steps_a_pass, 1.0, 0.0) if statistic == "last-pass" else 1.0
        return taken * jnp.stack([jnp.sum(jnp.where(counts, losses, 0.0)) / counts.sum(), jnp.ones(())])

    def step(index, carry):
        (weights, carried), optimizer_state, total = carry
        positions, counts = schedule.batch(work, order, index, part.size)

        def losses_of(weights, examples):
            positions, drawn = examples
            inputs, targets = fed.gather(federation, part, positions)
            output = trainer.model.apply(Weights(weights, carried), inputs, drawn)
            return trainer.task.losses(output.prediction, targets), output.carried

        examples = positions, draws_of(index)
        gradient, losses, carried = batch_gradient(losses_of, weights, examples, counts, trainer.micro_batch)
        if statistic is not None:
            total += seen(index, losses, counts)
        gradient = trainer.optimizer.gradient(gradient, weights, received.trained, memory)
        direction, optimizer_state = trainer.client_optimizer.update(gradient, optimizer_state, weights)
        rate = depend_on(learning_rate, gradient)
        weights = jax.tree.map(lambda w, d: w - rate * d, weights, direction)
        return Weights(weights, carried), optimizer_state, total

    started = fresh(trainer, received.trained) if optimizer_state is None else optimizer_state
    last, unroll = (steps, None) if work.equal_steps is None else (work.equal_steps, trainer.unroll)
    start = (received, started.model, jnp.zeros((2,)))
    weights, final, (total, count) = lax.fori_loop(0, last, step, start, unroll=unroll)
    gone, unit = coefficient(trainer, last, learning_rate, started.unit)
    mean = total / jnp.maximum(count, 1.0)
    update = jax.tree.map(lambda after, before: after - before, weights, received)
    training_loss = jnp.sqrt(mean) if statistic == "rms-first-pass" else mean
    num_examples = schedule.num_examples(work, part.size, epochs)
    return LocalResult(update, training_loss, OptimizerState(final, unit), num_examples, gone, learning_rate)


def coefficient(
    trainer: Trainer, steps: jax.Array | int, learning_rate: jax.Array, unit: optax.OptState
) -> tuple[jax.Array, optax.OptState]:
    """Return FedNova's |a|_1, a client's displacement in learning rates if every gradient is one, and the new `unit`.

    The client's optimizer takes the same steps on a single weight that starts at zero. If its state persists between
    rounds, so does `unit`, its state on that weight: gradients of earlier rounds still move the client, and count.
    """
    zero = jnp.zeros(())
    memory = Memory(trainer.optimizer.init_own(zero), trainer.optimizer.init_shared(zero))

    def step(_, carry):
        gone, state = carry
        weight = -learning_rate * gone
        gradient = trainer.optimizer.gradient(jnp.ones(()), weight, zero, memory)
        direction, state = trainer.client_optimizer.update(gradient, state, weight)
        return gone + direction, state

    return lax.fori_loop(0, steps, step, (zero, unit))


def mean_over(
    trainer: Trainer, federation: Federation, segment: Segment, function: Callable[[Any, Any, jax.Array], Any]
) -> Any:
    """Return the mean of a function over a client's examples, computed block by block in float32.

    `function` is (inputs [B, ...], targets [B, ...], counts bool [B]) -> a pytree of SUMS over the unmasked examples.
    """
    block = trainer.evaluation_block
    function = jax_settings.traced_once(function)

    def body(index, sums):
        positions = index * block + jnp.arange(block)
        inputs, targets = fed.gather(federation, segment, positions)
        return jax.tree.map(jnp.add, sums, function(inputs, targets, positions < segment.size))

    examples = jax.eval_shape(lambda: fed.gather(federation, segment, jnp.arange(block)))
    shapes = jax.eval_shape(function, *examples, jax.ShapeDtypeStruct((block,), bool))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums = lax.fori_loop(0, -(-segment.size // block), body, zeros)
    return jax.tree.map(lambda total: total / segment.size.astype(total.dtype), sums)


def loss(
    trainer: Trainer, federation: Federation, weights: Weights, segment: Segment, statistic: str = "mean"
) -> jax.Array:
    """Return a model's mean loss over a client's examples, nats; the root mean square with statistic="rms"."""

    def total(inputs, targets, counts):
        losses = _reported_losses(trainer, weights, inputs, targets)
        return jnp.sum(jnp.where(counts, losses**2 if statistic == "rms" else losses, 0.0))

    mean = mean_over(trainer, federation, segment, total)
    return jnp.sqrt(mean) if statistic == "rms" else mean


def batch_loss(
    trainer: Trainer, federation: Federation, weights: Weights, segment: Segment, key: jax.Array, batch_size: int
) -> jax.Array:
    """Return a model's mean loss over `batch_size` random examples of a client, or all if it has fewer, nats."""
    slots = jnp.arange(batch_size)
    positions = schedule.position(schedule.order(key, segment.size), jnp.minimum(slots, segment.size - 1), segment.size)
    inputs, targets = fed.gather(federation, segment, positions)
    losses, counts = _reported_losses(trainer, weights, inputs, targets), slots < segment.size
    return jnp.sum(jnp.where(counts, losses, 0.0)) / jnp.maximum(counts.sum(), 1)


def _reported_losses(trainer: Trainer, weights: Weights, inputs: Any, targets: Any) -> jax.Array:
    losses = example_losses(trainer.model, trainer.task, weights, inputs, targets)
    return losses if trainer.bounds.loss is None else privacy.bounded(losses, trainer.bounds.loss)


def profile(trainer: Trainer, federation: Federation, weights: Weights, segment: Segment, relu: bool) -> jax.Array:
    """Return the first fully-connected layer's mean output over a client's examples (FL-DP3S Eq. 11), float32 [Q]."""

    def total(inputs, targets, counts):
        first = trainer.model.apply(weights, inputs, None).profile
        assert first is not None, "rejected before the run"
        first = jax.nn.relu(first) if relu else first
        if trainer.bounds.profile is not None:
            first = privacy.clipped(first, trainer.bounds.profile)
        return jnp.sum(jnp.where(counts[:, None], first, 0.0), axis=0)

    return mean_over(trainer, federation, segment, total)


def gradient(trainer: Trainer, federation: Federation, weights: Weights, segment: Segment) -> Params:
    """Return the gradient of the mean loss over a client's examples, in the pytree of the trained weights."""

    def total(inputs, targets, counts):
        def summed(trained):
            moved = weights._replace(trained=trained)
            return mean_loss(trainer.model, trainer.task, moved, inputs, targets, counts) * counts.sum()

        return jax.grad(summed)(weights.trained)

    bound = trainer.bounds.gradient
    if bound is None:
        return mean_over(trainer, federation, segment, total)

    def clipped(example):
        return privacy.clipped_tree(total(*jax.tree.map(lambda leaf: leaf[None], example)), bound)

    def clipped_total(*examples):
        gradients = lax.map(clipped, examples, batch_size=8)  # held together in memory
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), gradients)

    return mean_over(trainer, federation, segment, clipped_total)
