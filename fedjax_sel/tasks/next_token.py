"""Next-token prediction at every position of a sequence."""

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.tasks.base import Measure, Task, likeliest, shown


def next_token() -> Task:
    """Make the next-token task: cross-entropy in nats, averaged over positions; logits [B, L, V], targets int32 [B, L].

    Positions with a negative target are padding and do not count. An example with padding only has loss zero.
    """
    return Task("next_token", _losses, (Measure("accuracy", _share_right),), _not_tokens, complaint_of_values=_unknown)


def _losses(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return _mean(optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(tokens, 0)), tokens)


def _share_right(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return _mean((likeliest(logits) == tokens).astype(jnp.float32), tokens)


def _mean(values: jax.Array, tokens: jax.Array) -> jax.Array:
    counts = tokens >= 0
    return jnp.where(counts, values, 0.0).sum(axis=1) / jnp.maximum(counts.sum(axis=1), 1)


def _unknown(prediction, targets) -> str | None:
    largest, vocabulary = int(targets.max(initial=-1)), prediction.shape[2]
    if largest >= vocabulary:
        return f"needs tokens below {vocabulary}, the model's number of logits, but one token is {largest}"
    return None


def _not_tokens(prediction, targets, num_classes) -> str | None:
    if len(targets.shape) != 2 or not jnp.issubdtype(targets.dtype, jnp.integer):
        return f"needs integer tokens [B, L] as targets, but they are {shown(targets)}"
    if len(prediction.shape) != 3 or prediction.shape[:2] != targets.shape:
        return f"needs logits [B, L, V] for targets {shown(targets)}, but the model gives {shown(prediction)}"
    del num_classes
    return None
