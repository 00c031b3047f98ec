"""What every task must keep: one number for each example, which does not depend on the others of its batch."""

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

_LOOKED_THROUGH = 100  # targets, for one unlike the first
_COPIES = 3  # of an example, in a batch without others: not two, for what divides by the batch's size tells itself too
_ROUNDING = 1e-2  # of a value, for batches of other sizes are summed in another order


def check(task: Task, prediction: Any, targets: Any, train_targets: Any) -> None:
    """Refuse a task whose losses or measures are not one number an example, by shapes and then by values.

    Args:
        task: whose.
        prediction: shapes of two.
        targets: shapes of two.
        train_targets: [n, ...], in host memory.

    Raises:
        UserError: one sentence with the part, what it gives, and the way out.
    """
    _check_one_each(task, "losses", task.losses, (jnp.float32,), prediction, targets)
    names = [measure.name for measure in task.measures]
    if not names or "loss" in names or len(set(names)) < len(names):
        raise UserError(
            f"--task {task.name}: its measures are called {', '.join(names) or 'nothing'}; give one or more, each a "
            "name of its own, which is not loss"
        )
    for name, measure in zip(_measures(task), task.measures):
        _check_one_each(task, name, measure.of, (jnp.float32, jnp.bool_, jnp.int32), prediction, targets)
    _check_alone(task, prediction, _two_unlike(targets, train_targets))


def answer(task: Task, what: str, ask: Callable[[], Any]) -> Any:
    """Return what a part of a task answers; what it raises, in a sentence."""
    try:
        return ask()
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"--task {task.name}: {what} cannot be had of what the model gives ({texts.reason(error)}); mend it, or "
            "give another task or model"
        ) from error


def _measures(task: Task) -> list[str]:
    return [f"measure {measure.name!r}" for measure in task.measures]


def _check_one_each(
    task: Task, what: str, part: Callable[..., Any], dtypes: tuple[Any, ...], prediction: Any, targets: Any
) -> None:
    found = answer(task, what, partial(jax.eval_shape, part, prediction, targets))
    if not isinstance(found, jax.ShapeDtypeStruct) or found.shape != (2,) or found.dtype not in dtypes:
        shape = f"{found.dtype} {found.shape}" if hasattr(found, "shape") else type(found).__name__
        raise UserError(
            f"--task {task.name}: {what} gives {shape} for two examples and not one number each, as float32; leave the "
            "mean over the batch out"
        )


def _check_alone(task: Task, prediction: Any, targets: Any) -> None:
    """Refuse a task that tells of an example beside another something else than beside copies of itself.

    Shapes do not show it: [B, 1] against [B] is [B, B], whose mean over an axis is [B] again.
    """
    draws = np.random.default_rng(0)
    # Between zero and one, where logits, rates and probabilities all have a loss.
    predictions = jax.tree.map(lambda leaf: draws.uniform(0.1, 0.9, leaf.shape).astype(leaf.dtype), prediction)
    parts = (task.losses, *(measure.of for measure in task.measures))
    with jax.default_device(jax_settings.cpu()):
        found = answer(task, "what it tells", lambda: jax.device_get(_beside_and_alone(parts, predictions, targets)))
    for what, beside, alone in zip(("losses", *_measures(task)), *found):
        differ = ~np.isclose(beside, alone, rtol=_ROUNDING, atol=_ROUNDING**2, equal_nan=True)
        if differ.any():
            values = f"{beside[differ][0]:.4g} beside another and {alone[differ][0]:.4g} beside copies of itself"
            raise UserError(
                f"--task {task.name}: {what} gives an example {values}, and it is to depend on that example alone; "
                "leave out what mixes a batch, such as predictions [B, 1] that are broadcast against targets [B]"
            )


@partial(jax.jit, static_argnums=0)
def _beside_and_alone(parts: tuple[Callable[..., Any], ...], predictions: Any, targets: Any) -> tuple[Any, Any]:
    """Return what each part tells of two examples in one batch, and of each in a batch of its copies, [2] each."""

    def told(predictions: Any, targets: Any) -> list[jax.Array]:
        return [part(predictions, targets).astype(jnp.float32) for part in parts]

    copies = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], _COPIES, axis=1), (predictions, targets))
    return told(predictions, targets), [values[:, 0] for values in jax.vmap(told)(*copies)]


def _two_unlike(shapes: Any, targets: Any) -> Any:
    """Return two targets, different ones if such are found soon, as a task sees them."""
    number = trees.num_examples(targets)
    places = np.linspace(0, number - 1, min(number, _LOOKED_THROUGH)).astype(int)
    some = trees.take(targets, places)
    others = [(array != array[:1]).reshape(len(array), -1).any(axis=1) for _, array in trees.leaves(some)]
    pair = trees.take(some, np.array([0, int(np.logical_or.reduce(others).argmax())]))
    return trees.transform(lambda array, like: array.astype(like.dtype), pair, shapes)
