"""Local schedule: the number of steps and the examples of each step.

`local_steps`   E steps of min(batch, n) examples; the shuffled data are cycled, so a batch may straddle two passes.
`local_epochs`  E passes; each ends with a partial batch if n is no multiple of the batch.
                With a range, E is drawn for each client and round.
Each pass has its own random order.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.training import shuffle
from fedjax_sel.training.shuffle import Order


@dataclasses.dataclass(frozen=True)
class LocalWork:
    """A client's work in a round. Static.

    Attributes:
        batch_size: examples of a full batch, B.
        steps: E of `local_steps`, or None.
        epochs: range of E of `local_epochs`, (lowest, highest), or None.
        max_passes: largest number of passes that any client starts.
        equal_steps: number of steps if it is the same for all clients, else None.
    """

    batch_size: int
    steps: int | None
    epochs: tuple[int, int] | None
    max_passes: int
    equal_steps: int | None

    @property
    def varies(self) -> bool:
        """Whether a client's work varies between rounds."""
        return self.epochs is not None and self.epochs[0] < self.epochs[1]


def plan(
    sizes: np.ndarray, batch_size: int, steps: int | None, epochs: int | tuple[int, int] | None, full_batch: bool
) -> LocalWork:
    """Fit the local work to a federation.

    Args:
        sizes: training examples per client, integers of any shape.
        batch_size: examples per step.
        steps: E of `local_steps`, or None.
        epochs: E of `local_epochs`, a number or (lowest, highest), or None.
        full_batch: whether each step uses all of the client's data.
    """
    sizes = np.asarray(sizes, np.int64)
    if full_batch:
        batch_size = int(sizes.max())
    if steps is not None:
        taken = steps * np.minimum(batch_size, sizes)
        if taken.max() >= 2**31:
            raise UserError(
                f"--local-steps: {steps} steps of {min(batch_size, int(sizes.max()))} examples are more than 2^31 - 1 "
                "examples; choose fewer steps"
            )
        return LocalWork(batch_size, steps, None, int(np.max(-(-taken // sizes))) + 1, steps)
    assert epochs is not None
    low, high = (epochs, epochs) if isinstance(epochs, int) else epochs
    counts = high * -(-np.unique(sizes) // batch_size)
    equal = low == high and (counts == counts[0]).all()
    return LocalWork(batch_size, None, (low, high), high, int(counts[0]) if equal else None)


_EPOCHS = 2  # folded into a client's key of a round; 0 is the order, 1 dropout


def epochs(work: LocalWork, key: jax.Array) -> jax.Array | int:
    """Return a client's number of epochs E in a round; 0 with `local_steps`.

    Args:
        work: the local work.
        key: this client's key in this round.
    """
    if work.epochs is None:
        return 0
    low, high = work.epochs
    return jax.random.randint(jax.random.fold_in(key, _EPOCHS), (), low, high + 1) if work.varies else low


def num_steps(work: LocalWork, size: jax.Array, epochs: jax.Array | int) -> jax.Array:
    """Return the number of steps of a client with `size` examples."""
    if work.steps is not None:
        return jnp.full_like(size, work.steps)
    return epochs * -(-size // work.batch_size)


def steps_a_pass(work: LocalWork, size: jax.Array) -> jax.Array:
    """Return the number of steps in one pass over `size` examples."""
    return -(-size // jnp.minimum(size, work.batch_size))


def num_examples(work: LocalWork, size: jax.Array, epochs: jax.Array | int) -> jax.Array:
    """Return the number of examples that a client with `size` examples processes, repetitions counted."""
    if work.steps is not None:
        return work.steps * jnp.minimum(size, work.batch_size)
    return epochs * size


def orders(work: LocalWork, key: jax.Array, size: jax.Array) -> Order:
    """Draw the orders of a client's passes in a round; pass e depends on (key, e) alone.

    Returns:
        Leaves [max_passes, shuffle.PASSES].
    """
    keys = jax.vmap(lambda e: jax.random.fold_in(key, e))(jnp.arange(work.max_passes))
    return jax.vmap(lambda key: shuffle.order(key, size))(keys)


def batch(work: LocalWork, drawn: Order, step: jax.Array, size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the examples of a step.

    Args:
        work: the local work.
        drawn: the client's orders.
        step: index of the step, from 0.
        size: number of the client's training examples, n.

    Returns:
        Positions among the client's training examples, int32 [B], and the mask of the positions that count, bool [B].
        Masked positions repeat the last unmasked one.
    """
    slots = jnp.arange(work.batch_size)
    if work.steps is not None:
        length = jnp.minimum(size, work.batch_size)
        counts = slots < length
        first = step * length // size
        index = step * length - first * size + jnp.minimum(slots, length - 1)
        # a batch is at most one pass long, so it lies in at most two passes
        straddles = index >= size
        both = jax.tree.map(lambda leaf: jnp.where(straddles, leaf[first + 1][:, None], leaf[first][:, None]), drawn)
        return shuffle.position(both, jnp.where(straddles, index - size, index), size), counts
    steps_a_pass = -(-size // work.batch_size)
    index = step % steps_a_pass * work.batch_size + slots
    counts = index < size
    this_pass = jax.tree.map(lambda leaf: leaf[step // steps_a_pass], drawn)
    return shuffle.position(this_pass, jnp.minimum(index, size - 1), size), counts
