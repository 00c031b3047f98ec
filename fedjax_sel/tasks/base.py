"""The contract between a task and the simulator: what a prediction is worth beside its target.

A task is a value: pure functions of a batch. What it calls a loss is what clients train on and what strategies that buy
losses receive; what it measures is what curves, targets and tables speak of.

Shapes: B examples, n examples of a data set.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Measure(NamedTuple):
    """What is told of each example beside its loss, and averaged.

    Attributes:
        name: in columns and tables, e.g. "accuracy".
        of: (prediction [B, ...], targets [B, ...]) -> bool, int32 or float32 [B], of each example alone.
        higher_is_better: whether a target is reached from below.
    """

    name: str
    of: Callable[[Any, Any], jax.Array]
    higher_is_better: bool = True


class Task(NamedTuple):
    """A task. Functions are pure and traceable; static.

    Attributes:
        name: for messages.
        losses: (prediction [B, ...], targets [B, ...]) -> the loss of each example, float32 [B]; the others of
            its batch, which may be copies that fill it up, are nothing to it.
        measures: of each example; targets, curves and the worst decile of clients speak of the first.
        complaint: (shapes of a prediction [B, ...], of targets [B, ...], number of classes or None) -> why they do not
            fit, or None. Both have a shape and a dtype.
        complaint_of_values: (shapes of a prediction [B, ...], targets [n, ...] in host memory) -> what they hold that
            cannot be learned, or None.
        of_classes: whether a target is one class an example, which label histograms and the GEMD need.
    """

    name: str
    losses: Callable[[Any, Any], jax.Array]
    measures: tuple[Measure, ...]
    complaint: Callable[[Any, Any, int | None], str | None] = lambda prediction, targets, num_classes: None
    of_classes: bool = False
    complaint_of_values: Callable[[Any, Any], str | None] = lambda prediction, targets: None

    @property
    def measure(self) -> Measure:
        """The measure that targets and curves speak of."""
        return self.measures[0]


def shown(array: Any) -> str:
    """Return an array's dtype and shape in words, its leading axis called B."""
    return f"{array.dtype}[{', '.join(map(str, ('B', *array.shape[1:])))}]"


def likeliest(logits: jax.Array) -> jax.Array:
    """Return the class of the largest logit, int32 [...] of logits [..., C], and -1, which no target is, beside a NaN.

    The largest of numbers of which one is NaN is the first NaN: predictions of nothing else would be right about class
    zero.
    """
    return jnp.where(jnp.isnan(logits).any(axis=-1), -1, logits.argmax(axis=-1))
