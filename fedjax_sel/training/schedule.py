"""Which examples a client takes in which step: the arithmetic of local work.

`local_steps`   E steps of min(batch, n) examples; the shuffled data are cycled, so a batch may straddle two passes.
`local_epochs`  E passes; each ends with a partial batch where n is no multiple of the batch.
                With a range, each client's E is drawn anew each round.
Every pass has an order of its own.
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
    """How much a client does in a round. Static.

    Attributes:
        batch_size: B, the examples of a full batch.
        steps: E of `local_steps`, or None.
        epochs: the fewest and the most E of `local_epochs`, or None.
        max_passes: the most passes over its data that any client begins.
        equal_steps: the number of steps where it is the same for all clients, else None.
    """

    batch_size: int
    steps: int | None
    epochs: tuple[int, int] | None
    max_passes: int
    equal_steps: int | None

    @property
    def varies(self) -> bool:
        """Whether a client's work differs from round to round."""
        return self.epochs is not None and self.epochs[0] < self.epochs[1]


def plan(
    sizes: np.ndarray, batch_size: int, steps: int | None, epochs: int | tuple[int, int] | None, full_batch: bool
) -> LocalWork:
    """Fit the local work to a federation.

    Args:
        sizes: training examples of every client (any shape).
        batch_size: examples a step.
        steps: of `local_steps`, or None.
        epochs: of `local_epochs`, a number or the fewest and the most, or None.
        full_batch: a step takes all data of the client, and is one pass.

    Returns:
        The static description.
    """
    sizes = np.asarray(sizes, np.int64)
    if full_batch:
        batch_size = int(sizes.max())
    if steps is not None:
        taken = steps * np.minimum(batch_size, sizes)
        if taken.max() >= 2**31:
            raise UserError(
                f"--local-steps: {steps} steps of {min(batch_size, int(sizes.max()))} examples are more than 2^31 - 1 "
                "examples; give fewer"
            )
        return LocalWork(batch_size, steps, None, int(np.max(-(-taken // sizes))) + 1, steps)
    assert epochs is not None
    low, high = (epochs, epochs) if isinstance(epochs, int) else epochs
    counts = high * -(-np.unique(sizes) // batch_size)
    equal = low == high and (counts == counts[0]).all()
    return LocalWork(batch_size, None, (low, high), high, int(counts[0]) if equal else None)


_EPOCHS = 2  # of a client's key in a round, beside the order (0) and dropout (1)


def epochs(work: LocalWork, key: jax.Array) -> jax.Array | int:
    """Return E of a client in a round; 0 where its work is counted in steps.

    Args:
        work: the local work.
        key: of this client in this round.
    """
    if work.epochs is None:
        return 0
    low, high = work.epochs
    return jax.random.randint(jax.random.fold_in(key, _EPOCHS), (), low, high + 1) if work.varies else low


def num_steps(work: LocalWork, size: jax.Array, epochs: jax.Array | int) -> jax.Array:
    """Return the steps that a client with `size` examples takes in a round of so many epochs."""
    if work.steps is not None:
        return jnp.full_like(size, work.steps)
    return epochs * -(-size // work.batch_size)


def steps_a_pass(work: LocalWork, size: jax.Array) -> jax.Array:
    """Return the steps that take a client with `size` examples once through its data."""
    return -(-size // jnp.minimum(size, work.batch_size))


def num_examples(work: LocalWork, size: jax.Array, epochs: jax.Array | int) -> jax.Array:
    """Return how many examples a client with `size` of them goes through, repetitions counted."""
    if work.steps is not None:
        return work.steps * jnp.minimum(size, work.batch_size)
    return epochs * size


def orders(work: LocalWork, key: jax.Array, size: jax.Array) -> Order:
    """Draw the orders of all passes of one client with `size` examples in one round; pass e depends on (key, e) alone.

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
        step: from 0.
        size: n, the client's training examples.

    Returns:
        Positions among the client's training examples, int32 [B], and which of them count, bool [B]: the others are
        copies of the last one that does.
    """
    slots = jnp.arange(work.batch_size)
    if work.steps is not None:
        length = jnp.minimum(size, work.batch_size)
        counts = slots < length
        first = step * length // size
        index = step * length - first * size + jnp.minimum(slots, length - 1)
        # a batch is at most one pass long, so it lies in this pass and the next
        straddles = index >= size
        both = jax.tree.map(lambda leaf: jnp.where(straddles, leaf[first + 1][:, None], leaf[first][:, None]), drawn)
        return shuffle.position(both, jnp.where(straddles, index - size, index), size), counts
    steps_a_pass = -(-size // work.batch_size)
    index = step % steps_a_pass * work.batch_size + slots
    counts = index < size
    this_pass = jax.tree.map(lambda leaf: leaf[step // steps_a_pass], drawn)
    return shuffle.position(this_pass, jnp.minimum(index, size - 1), size), counts
