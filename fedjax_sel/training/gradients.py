"""Gradient accumulation over micro-batches.

The activations of a whole batch in a convolutional network exceed a core's cache many times.
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
    """Return the gradient of the mean loss of the unmasked examples.

    Args:
        losses_of: (params, examples) -> per-example losses, for any number of examples, and the new non-trained state.
        params: the trained weights.
        examples: pytree, leaves [B, ...].
        counts: mask of the examples that count, bool [B]; they come first.
        micro_batch: largest number of examples in a piece; at least B for a model with non-trained state.

    Returns:
        The gradient in the pytree of the model, the losses [B] of the unmasked examples, and the new non-trained state.
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
        assert not jax.tree.leaves(carried), "a model with non-trained state takes its batch whole"
        return jax.tree.map(jnp.add, so_far[0], gradient), so_far[1].at[index].set(losses)

    zeros = jax.tree.map(jnp.zeros_like, params), jnp.zeros((num_pieces, size))
    used_pieces = -(-counts.sum() // size)  # fully masked pieces are skipped
    gradient, losses = lax.fori_loop(0, used_pieces, add, zeros)
    return gradient, losses.reshape(-1)[: len(counts)], ()


def _in_pieces(leaf: jax.Array, num_pieces: int) -> jax.Array:
    """Split [B, ...] into [pieces, B / pieces, ...], padded with zeros."""
    filled = jnp.pad(leaf, [(0, -len(leaf) % num_pieces)] + [(0, 0)] * (leaf.ndim - 1))
    return filled.reshape(num_pieces, -1, *leaf.shape[1:])
