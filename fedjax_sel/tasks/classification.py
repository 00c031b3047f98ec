"""Classification tasks: one class per example, or several labels per example."""

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.tasks.base import Measure, Task, likeliest, shown


def classification() -> Task:
    """Make the classification task: cross-entropy in nats; logits [B, C], targets int32 [B]."""
    losses = optax.softmax_cross_entropy_with_integer_labels
    return Task("classification", losses, (Measure("accuracy", _is_right),), _not_classes, of_classes=True)


def multilabel() -> Task:
    """Make the multilabel task: mean binary cross-entropy over C labels in nats; logits and 0/1 targets [B, C].

    Measures: the fraction of an example's labels that are predicted correctly, and whether all of them are.
    """
    measures = (Measure("accuracy", _share_right), Measure("all_right", _all_right))
    return Task("multilabel", _binary_cross_entropy, measures, _unlike, complaint_of_values=_not_zero_or_one)


def _is_right(logits: jax.Array, classes: jax.Array) -> jax.Array:
    return likeliest(logits) == classes


def _share_right(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return _agree(logits, labels).astype(jnp.float32).mean(axis=1)


def _all_right(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return _agree(logits, labels).all(axis=1)


def _agree(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return a mask of correct labels, bool [B, C]; NaN logits are never correct."""
    return ((logits > 0) == (labels > 0.5)) & ~jnp.isnan(logits)


def _binary_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(logits, labels.astype(jnp.float32)).mean(axis=1)


def _not_classes(prediction, targets, num_classes) -> str | None:
    if len(targets.shape) != 1 or not jnp.issubdtype(targets.dtype, jnp.integer):
        return f"needs one integer class per example as targets, [B], but they are {shown(targets)}"
    if len(prediction.shape) != 2 or (num_classes is not None and prediction.shape[1] < num_classes):
        required = "C" if num_classes is None else num_classes
        return f"needs logits [B, {required}], but the model gives {shown(prediction)}"
    return None


def _not_zero_or_one(prediction, targets) -> str | None:
    del prediction
    others = targets[(targets != 0) & (targets != 1)]
    return f"needs labels that are 0 or 1, but one label is {others[0]:g}" if others.size else None


def _unlike(prediction, targets, num_classes) -> str | None:
    del num_classes
    if len(targets.shape) != 2 or prediction.shape != targets.shape:
        return (
            f"needs logits and labels of equal shape [B, C]; the model gives {shown(prediction)} for {shown(targets)}"
        )
    return None
