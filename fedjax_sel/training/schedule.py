"""Order and number of a client's local steps, with a pseudorandom permutation that needs no sort."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.errors import UserError

# A random order of n examples, computed position by position: no sort, no table, any n.
#
# The swap-or-not shuffle (Hoang, Morris, Rogaway, CRYPTO 2012): in every pass each position x is paired with
# (word - x) mod n, and a hash of the pair decides whether the two swap. A pass is a bijection on 0..n-1 for any hash,
# so each example occurs exactly once. Sorting random numbers is slow on a CPU.

PASSES = 24  # positions, and pairs of positions, are uniform to about 2^-12 (tests/training)


class Order(NamedTuple):
    """The random words of an order, [PASSES], or of one order per position, [PASSES, ...]."""

    offsets: jax.Array  # word mod n, uint32
    masks: jax.Array  # XOR mask of the hash, uint32


def order(key: jax.Array, size: jax.Array) -> Order:
    """Draw the order of n examples, n >= 1; it divides by n once here, since division is slow, and not per position."""
    words = jax.random.bits(key, (PASSES, 2), jnp.uint32)
    return Order(words[:, 0] % size.astype(jnp.uint32), words[:, 1])


def position(drawn: Order, index: jax.Array, size: jax.Array) -> jax.Array:
    """Return the example at each index of the order, int32 [...]; a bijection on 0..size-1.

    `drawn` is one order for all indices, or one per index; `index` is int32 [...], from 0 to size - 1.
    """
    x, n = index.astype(jnp.uint32), size.astype(jnp.uint32)
    for i in range(PASSES):
        x = _one_pass(x, n, drawn.offsets[i], drawn.masks[i])
    return x.astype(jnp.int32)


@jax.jit  # traced once, not in every pass
def _one_pass(x: jax.Array, n: jax.Array, offset: jax.Array, mask: jax.Array) -> jax.Array:
    # (word - x) mod n: the unsigned difference wraps below zero, and adding n wraps it back. A comparison and a
    # selection use x so often that JAX 0.11 and 0.12 compile for about 3^PASSES steps on a CPU: LLVM's
    # vputils::onlyFirstLaneUsed repeats its search on every path of uses. A minimum ends the search.
    difference = offset - x
    partner = jnp.minimum(difference, difference + n)
    mixed = (jnp.maximum(x, partner) ^ mask) * jnp.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE3D)
    return jnp.where(mixed >> 31 == 1, partner, x)


@dataclasses.dataclass(frozen=True)
class LocalWork:
    """A client's work in a round. Static."""

    batch_size: int  # examples of a full batch, B
    steps: int | None  # E of `local_steps`
    epochs: tuple[int, int] | None  # range of E of `local_epochs`, (lowest, highest)
    max_passes: int  # largest number of passes that any client starts
    equal_steps: int | None  # number of steps if it is the same for all clients

    @property
    def varies(self) -> bool:
        """Whether a client's work varies between rounds."""
        return self.epochs is not None and self.epochs[0] < self.epochs[1]


def plan(
    sizes: np.ndarray, batch_size: int, steps: int | None, epochs: int | tuple[int, int] | None, full_batch: bool
) -> LocalWork:
    """Fit the local work to a federation with `sizes` training examples per client.

    `steps` is E of `local_steps`, `epochs` is E of `local_epochs`, a number or (lowest, highest); the other is None.
    """
    sizes = np.asarray(sizes, np.int64)
    if full_batch:
        batch_size = int(sizes.max())
    if steps is not None:
        taken = steps * np.minimum(batch_size, sizes)
        if taken.max() >= 2**31:
            raise UserError(f"--local-steps: {steps} steps are more than 2^31 - 1 examples; choose fewer steps")
        return LocalWork(batch_size, steps, None, int(np.max(-(-taken // sizes))) + 1, steps)
    assert epochs is not None
    low, high = (epochs, epochs) if isinstance(epochs, int) else epochs
    counts = high * -(-np.unique(sizes) // batch_size)
    equal = low == high and (counts == counts[0]).all()
    return LocalWork(batch_size, None, (low, high), high, int(counts[0]) if equal else None)


_EPOCHS = 2  # folded into a client's key of a round; 0 is the order, 1 dropout


def epochs(work: LocalWork, key: jax.Array) -> jax.Array | int:
    """Return a client's number of epochs E in a round from its key there; 0 with `local_steps`."""
    if work.epochs is None:
        return 0
    low, high = work.epochs
    return jax.random.randint(jax.random.fold_in(key, _EPOCHS), (), low, high + 1) if work.varies else low


def num_steps(work: LocalWork, size: jax.Array, epochs: jax.Array | int) -> jax.Array:
    """Return the number of steps of a client with `size` examples."""
    if work.steps is not None:
        return jnp.full_like(size, work.steps)
    return epochs * steps_a_pass(work, size)


def steps_a_pass(work: LocalWork, size: jax.Array) -> jax.Array:
    """Return the number of steps in one pass over `size` examples."""
    return -(-size // work.batch_size)


def num_examples(work: LocalWork, size: jax.Array, epochs: jax.Array | int) -> jax.Array:
    """Return the number of examples that a client with `size` examples processes, repetitions counted."""
    if work.steps is not None:
        return work.steps * jnp.minimum(size, work.batch_size)
    return epochs * size


def orders(work: LocalWork, key: jax.Array, size: jax.Array) -> Order:
    """Draw the orders of a client's passes in a round, [max_passes, PASSES]; pass e depends on (key, e) alone."""
    keys = jax.vmap(lambda e: jax.random.fold_in(key, e))(jnp.arange(work.max_passes))
    return jax.vmap(lambda key: order(key, size))(keys)


def batch(work: LocalWork, drawn: Order, step: jax.Array, size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the examples of the step with index `step`, from 0, of a client with `size` training examples.

    They are positions among the client's training examples, int32 [B], and the mask of the positions that count, bool
    [B]. Masked positions repeat the others in turn. Batch statistics therefore weight examples by at most 2 to 1.
    """
    slots = jnp.arange(work.batch_size)
    if work.steps is not None:
        length = jnp.minimum(size, work.batch_size)
        counts = slots < length
        first = step * length // size
        index = step * length - first * size + slots % length
        # a batch is at most one pass long, so it lies in at most two passes
        straddles = index >= size
        both = jax.tree.map(lambda leaf: jnp.where(straddles, leaf[first + 1][:, None], leaf[first][:, None]), drawn)
        return position(both, jnp.where(straddles, index - size, index), size), counts
    length = steps_a_pass(work, size)
    first = step % length * work.batch_size
    this_pass = jax.tree.map(lambda leaf: leaf[step // length], drawn)
    index = first + slots % jnp.minimum(size - first, work.batch_size)
    return position(this_pass, index, size), first + slots < size
