"""Whether model, task, strategy and data go together, before anything is compiled."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel import tasks
from fedjax_sel.config import Config
from fedjax_sel.core import texts
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.model_choice import cannot_take, shapes
from fedjax_sel.models import Model
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task


def check_that_they_fit(config: Config, dataset: Dataset, model: Model, task: Task, strategy: Strategy) -> None:
    """Refuse a model, a task and a strategy that do not go with the data or with each other.

    Raises:
        UserError: one sentence with the part, its value and the way out.
    """
    inputs, targets = shapes(dataset.train_images), shapes(dataset.train_labels)
    try:
        weights = jax.eval_shape(model.init, jax.random.key(0))
        prediction = jax.eval_shape(
            lambda weights, inputs: model.apply(weights, inputs, None), weights, inputs
        ).prediction
    except (TypeError, ValueError) as error:
        raise cannot_take(model.name, dataset, error) from error
    if task.of_classes and not dataset.has_classes:
        raise UserError(
            f"--task {task.name}: targets of {dataset.name} are not one class an example; give whole numbers [n], or "
            f"another --task, one of {', '.join(tasks.TABLE)}, or tasks.Task of your own"
        )
    complaint = _of_task(task, "complaint", lambda: task.complaint(prediction, targets, dataset.num_classes or None))
    for labels in (dataset.train_labels, dataset.test_labels):
        own = partial(task.complaint_of_values, prediction, labels)
        complaint = complaint or _of_task(task, "complaint_of_values", own)
    if complaint is not None:
        raise UserError(f"--task {task.name}: it {complaint}; give another task, model or data set")
    _check_what_is_told(task, prediction, targets)
    for request in strategy.requests:
        if request.kind == "label_histogram" and not dataset.has_classes:
            raise UserError(
                f"--algo {config.selection.algo}: it asks for histograms of labels, and {dataset.name} has no classes; "
                "choose another strategy"
            )
        if request.kind == "profile" and not model.profile_size:
            raise UserError(
                f"--algo {config.selection.algo}: it asks for profiles, and {model.name} has no fully-connected layer "
                "that was found; name a layer with profile_layer= of models.from_flax(...) or models.from_nnx(...), or "
                "choose another strategy"
            )


def _check_what_is_told(task: Task, prediction: Any, targets: Any) -> None:
    """Look at a task's losses and measures on shapes alone."""
    losses = _of_task(task, "losses", lambda: jax.eval_shape(task.losses, prediction, targets))
    _check_one_each(task, "losses", losses, (jnp.float32,))
    names = [measure.name for measure in task.measures]
    if not names or "loss" in names or len(set(names)) < len(names):
        raise UserError(
            f"--task {task.name}: its measures are called {', '.join(names) or 'nothing'}; give one or more, each a "
            "name of its own, which is not loss"
        )
    for measure in task.measures:
        what = f"measure {measure.name!r}"
        told = _of_task(task, what, partial(jax.eval_shape, measure.of, prediction, targets))
        _check_one_each(task, what, told, (jnp.float32, jnp.bool_, jnp.int32))


def _check_one_each(task: Task, what: str, found: Any, dtypes: tuple[Any, ...]) -> None:
    if not isinstance(found, jax.ShapeDtypeStruct) or found.shape != (2,) or found.dtype not in dtypes:
        shape = f"{found.dtype} {found.shape}" if hasattr(found, "shape") else type(found).__name__
        raise UserError(
            f"--task {task.name}: {what} gives {shape} for two examples and not one number each, as float32; leave the "
            "mean over the batch out"
        )


def _of_task(task: Task, what: str, ask: Callable[[], Any]) -> Any:
    """Return what a part of a task answers; what it raises, in a sentence."""
    try:
        return ask()
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"--task {task.name}: {what} cannot be had of what the model gives ({texts.reason(error)}); "
            " mend it, or give another task or model"
        ) from error
