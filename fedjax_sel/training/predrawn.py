"""What a client's steps draw: for all steps at once, before the first.

XLA runs a random generator as a loop of small operations, which in every step of a small network on a CPU cost as much
as a layer. What is drawn is the same either way.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.models import Draws, Model
from fedjax_sel.training.schedule import LocalWork

MOST_BYTES = 2**20  # of a client: what is drawn ahead has to be kept


def of_steps(model: Model, work: LocalWork, key: jax.Array) -> Callable[[jax.Array], Draws]:
    """Return what a training pass of each step draws.

    Args:
        model: the network.
        work: how many steps on which batches.
        key: of a client in a round; consumed.

    Returns:
        The step's index -> its draws.
    """

    def of_step(index: jax.Array) -> Draws:
        return model.draw(jax.random.fold_in(key, index), work.batch_size)

    one = jax.tree.leaves(jax.eval_shape(of_step, jnp.int32(0)))
    if (
        not one
        or work.equal_steps is None
        or work.equal_steps * sum(leaf.size * leaf.dtype.itemsize for leaf in one) > MOST_BYTES
    ):
        return of_step
    ahead = jax.vmap(of_step)(jnp.arange(work.equal_steps))
    # Taken out once, and not anew for each unit that they decide on.
    return lambda index: lax.optimization_barrier(jax.tree.map(lambda leaf: leaf[index], ahead))
