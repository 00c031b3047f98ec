"""The gradient of a step, added up over pieces of its batch.

What the images of a batch leave behind in a convolutional network is many times what a core's cache holds.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.models import Params


def of_batch(
    losses_of: Callable[[Params, Any], tuple[jax.Array, Any]],
    params: Params,
    examples: Any,
    counts: jax.Array,
    micro_batch: int,
) -> tuple[Params, jax.Array, Any]:
    """Return the gradient of the mean loss of the examples that count.

    Args:
        losses_of: (params, examples) -> the loss of each, for any number of them, and what the pass carries on.
        params: the trained weights.
        examples: a pytree with leading axis [B].
        counts: which of them count, bool [B]; those that do come first.
        micro_batch: the most examples of a piece; all of them where a pass carries something on.

    Returns:
        The gradient in the pytree of the model, the losses [B] of the examples that count, and what is carried on.
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
    pieces = jax.tree.map(lambda leaf: _in_pieces(leaf, num_pieces), (examples, counts))
    size = pieces[1].shape[1]

    def add(index: jax.Array, so_far: tuple[Params, jax.Array]) -> tuple[Params, jax.Array]:
        gradient, (losses, carried) = gradient_of(params, *jax.tree.map(lambda leaf: leaf[index], pieces))
        assert not jax.tree.leaves(carried), "a pass that carries something on takes its batch whole"
        return jax.tree.map(jnp.add, so_far[0], gradient), so_far[1].at[index].set(losses)

    nothing = jax.tree.map(jnp.zeros_like, params), jnp.zeros((num_pieces, size))
    some_count = -(-counts.sum() // size)  # pieces in which nothing does are left out
    gradient, losses = lax.fori_loop(0, some_count, add, nothing)
    return gradient, losses.reshape(-1)[: len(counts)], ()


def _in_pieces(leaf: jax.Array, num_pieces: int) -> jax.Array:
    """Split [B, ...] into [pieces, B / pieces, ...], filled up with zeros."""
    filled = jnp.pad(leaf, [(0, -len(leaf) % num_pieces)] + [(0, 0)] * (leaf.ndim - 1))
    return filled.reshape(num_pieces, -1, *leaf.shape[1:])
