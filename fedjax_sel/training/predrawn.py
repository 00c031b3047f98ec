"""Random draws of a client's steps, such as dropout, drawn for all steps at once before the first.

XLA compiles a random generator to a loop of small operations. On a CPU, that loop costs as much as a layer of a small
network in each step. The draws are the same either way.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.models import Draws, Model
from fedjax_sel.training.schedule import LocalWork

MOST_BYTES = 2**20  # limit per client on the memory of draws made ahead


def of_steps(model: Model, work: LocalWork, key: jax.Array) -> Callable[[jax.Array], Draws]:
    """Return the function from a step's index to its random draws.

    Args:
        model: the network.
        work: number of local steps, and their batches.
        key: a client's key in a round; consumed.
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
    # Without the barrier, XLA would index the table again for each unit that uses a draw.
    return lambda index: lax.optimization_barrier(jax.tree.map(lambda leaf: leaf[index], ahead))
