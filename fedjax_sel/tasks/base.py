"""The contract between a task and the simulator.

A task is a NamedTuple of pure functions of a batch of predictions and targets. Clients train on its loss, and
strategies that buy losses receive it. Curves, target accuracies and tables show its measures.

Shapes: B examples, n examples of a data set.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Measure(NamedTuple):
    """A measure of each example besides its loss, which is averaged.

    Attributes:
        name: name in columns and tables, e.g. "accuracy".
        of: (prediction [B, ...], targets [B, ...]) -> bool, int32 or float32 [B]; each entry depends on its example
            only.
        higher_is_better: whether larger values are better.
    """

    name: str
    of: Callable[[Any, Any], jax.Array]
    higher_is_better: bool = True


class Task(NamedTuple):
    """A task. Functions are pure and traceable; static.

    Attributes:
        name: name used in messages.
        losses: (prediction [B, ...], targets [B, ...]) -> loss of each example, float32 [B]. A loss must not depend on
            the other examples of the batch, which may be padding copies.
        measures: measures of each example. Targets, curves and the worst decile of clients use the first one.
        complaint: (shape of a prediction [B, ...], shape of targets [B, ...], number of classes or None) -> reason why
            they do not fit, or None. Shapes have the fields `shape` and `dtype`.
        complaint_of_values: (shape of a prediction [B, ...], targets [n, ...] in host memory) -> reason why the
            targets' values cannot be learned, or None.
        of_classes: whether each target is one class; label histograms and the GEMD require it.
    """

    name: str
    losses: Callable[[Any, Any], jax.Array]
    measures: tuple[Measure, ...]
    complaint: Callable[[Any, Any, int | None], str | None] = lambda prediction, targets, num_classes: None
    of_classes: bool = False
    complaint_of_values: Callable[[Any, Any], str | None] = lambda prediction, targets: None

    @property
    def measure(self) -> Measure:
        """The first measure, which targets and curves use."""
        return self.measures[0]


def shown(array: Any) -> str:
    """Return an array's dtype and shape as text, with B for the leading axis."""
    return f"{array.dtype}[{', '.join(map(str, ('B', *array.shape[1:])))}]"


def likeliest(logits: jax.Array) -> jax.Array:
    """Return the class of the largest logit, int32 [...] for logits [..., C]; -1, which is no class, if one is NaN.

    `argmax` returns the index of the first NaN, so a model that predicts only NaN would be right about class zero.
    """
    return jnp.where(jnp.isnan(logits).any(axis=-1), -1, logits.argmax(axis=-1))
