"""Regression: one or several numbers per example."""

import jax
import jax.numpy as jnp

from fedjax_sel.tasks.base import Measure, Task, shown


def regression() -> Task:
    """Make the regression task: mean squared error; predictions and targets of equal shape [B, ...].

    Measures (lower is better): the mean absolute error of an example, and its mean squared error.
    """
    absolute = Measure("absolute_error", _absolute_error, higher_is_better=False)
    squared = Measure("squared_error", _squared_error, higher_is_better=False)
    return Task("regression", _squared_error, (absolute, squared), _unlike)


def _absolute_error(prediction: jax.Array, targets: jax.Array) -> jax.Array:
    return _mean(jnp.abs(prediction - targets))


def _squared_error(prediction: jax.Array, targets: jax.Array) -> jax.Array:
    return _mean((prediction - targets) ** 2)


def _mean(values: jax.Array) -> jax.Array:
    return values.reshape(values.shape[0], -1).mean(axis=1)


def _unlike(prediction, targets, num_classes) -> str | None:
    del num_classes
    if prediction.shape != targets.shape:
        advice = " (use targets[:, None])" if prediction.shape == (*targets.shape, 1) else ""
        given = f"the model gives {shown(prediction)} for {shown(targets)}"
        return f"needs predictions of the targets' shape, but {given}{advice}"
    if not jnp.issubdtype(targets.dtype, jnp.floating):
        return f"needs float targets, but they are {shown(targets)}"
    return None
