"""The contract of a task: one number per example, independent of the rest of the batch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings, texts
from fedjax_sel.data import trees
from fedjax_sel.errors import UserError
from fedjax_sel.tasks import Task

_SEARCHED_TARGETS = 100  # searched for a target that differs from the first
_COPIES = 3  # copies of an example in a batch; differs from the other batch's size 2 to detect a division by it
_ROUNDING = 1e-2  # relative; the order of summation depends on the batch size


def check(task: Task, prediction: Any, targets: Any, train_targets: Any) -> None:
    """Check by shapes, then by values, that losses and measures are one independent number per example.

    Args:
        task: the task.
        prediction: shapes of two examples' predictions.
        targets: shapes of two examples' targets.
        train_targets: all training targets, [n, ...], in host memory.

    Raises:
        UserError: a loss or a measure breaks the contract.
    """
    _check_one_each(task, "losses", task.losses, (jnp.float32,), prediction, targets)
    names = [measure.name for measure in task.measures]
    if not names or "loss" in names or len(set(names)) < len(names):
        raise UserError(
            f"--task {task.name}: invalid names of measures ({', '.join(names) or 'none'}); give at least one measure, "
            "with distinct names other than loss"
        )
    for name, measure in zip(_measures(task), task.measures):
        _check_one_each(task, name, measure.of, (jnp.float32, jnp.bool_, jnp.int32), prediction, targets)
    _check_independent(task, prediction, _different_pair(targets, train_targets))


def evaluate(task: Task, what: str, function: Callable[[], Any]) -> Any:
    """Call a part of a task; raise a UserError for any exception in it."""
    try:
        return function()
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"--task {task.name}: {what} failed on the model's output ({texts.reason(error)}); fix it, or choose "
            "another task or model"
        ) from error


def _measures(task: Task) -> list[str]:
    return [f"measure {measure.name!r}" for measure in task.measures]


def _check_one_each(
    task: Task, what: str, part: Callable[..., Any], dtypes: tuple[Any, ...], prediction: Any, targets: Any
) -> None:
    found = evaluate(task, what, partial(jax.eval_shape, part, prediction, targets))
    if not isinstance(found, jax.ShapeDtypeStruct) or found.shape != (2,) or found.dtype not in dtypes:
        shape = f"{found.dtype} {found.shape}" if hasattr(found, "shape") else type(found).__name__
        raise UserError(
            f"--task {task.name}: {what} returns {shape} for two examples, not one float32 number each; do not "
            "average over the batch"
        )


def _check_independent(task: Task, prediction: Any, targets: Any) -> None:
    """Check that each example's values are independent of the rest of the batch.

    Shapes alone cannot show this: [B, 1] against [B] broadcasts to [B, B], whose mean over an axis is [B] again.
    """
    draws = np.random.default_rng(0)
    # Values in (0, 1) are valid as logits, rates and probabilities.
    predictions = jax.tree.map(lambda leaf: draws.uniform(0.1, 0.9, leaf.shape).astype(leaf.dtype), prediction)
    parts = (task.losses, *(measure.of for measure in task.measures))
    with jax.default_device(jax_settings.cpu()):
        found = evaluate(
            task, "losses or measures", lambda: jax.device_get(_in_pair_and_alone(parts, predictions, targets))
        )
    for what, in_pair, alone in zip(("losses", *_measures(task)), *found):
        differ = ~np.isclose(in_pair, alone, rtol=_ROUNDING, atol=_ROUNDING**2, equal_nan=True)
        if differ.any():
            values = f"{in_pair[differ][0]:.4g} beside another example, {alone[differ][0]:.4g} beside copies of itself"
            raise UserError(
                f"--task {task.name}: {what} of an example depends on the rest of the batch ({values}); remove "
                "operations across the batch, such as broadcasting predictions [B, 1] against targets [B]"
            )


@partial(jax.jit, static_argnums=0)
def _in_pair_and_alone(parts: tuple[Callable[..., Any], ...], predictions: Any, targets: Any) -> tuple[Any, Any]:
    """Return each part's values of two examples in one batch, and of each in a batch of its copies, [2] each."""

    def values_of(predictions: Any, targets: Any) -> list[jax.Array]:
        return [part(predictions, targets).astype(jnp.float32) for part in parts]

    copies = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], _COPIES, axis=1), (predictions, targets))
    return values_of(predictions, targets), [values[:, 0] for values in jax.vmap(values_of)(*copies)]


def _different_pair(shapes: Any, targets: Any) -> Any:
    """Return two targets with the dtypes of `shapes`, different ones if a short search finds some."""
    number = trees.num_examples(targets)
    places = np.linspace(0, number - 1, min(number, _SEARCHED_TARGETS)).astype(int)
    some = trees.take(targets, places)
    others = [(array != array[:1]).reshape(len(array), -1).any(axis=1) for _, array in trees.leaves(some)]
    pair = trees.take(some, np.array([0, int(np.logical_or.reduce(others).argmax())]))
    return trees.transform(lambda array, like: array.astype(like.dtype), pair, shapes)
