"""Compatibility checks of model, task, strategy and data, before compilation."""

from functools import partial

import jax

from fedjax_sel import tasks
from fedjax_sel.config import Config
from fedjax_sel.core import jax_settings
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import task_contract
from fedjax_sel.experiment.model_choice import cannot_take, shapes
from fedjax_sel.models import Model
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task


def check_compatibility(config: Config, dataset: Dataset, model: Model, task: Task, strategy: Strategy) -> None:
    """Check that model, task, strategy and data are compatible.

    Raises:
        UserError: two of them are incompatible.
    """
    inputs, targets = shapes(dataset.train_images), shapes(dataset.train_labels)
    try:
        weights = jax.eval_shape(model.init, jax_settings.key(0))
        prediction = jax.eval_shape(
            lambda weights, inputs: model.apply(weights, inputs, None), weights, inputs
        ).prediction
    except UserError:
        raise
    except Exception as error:
        raise cannot_take(model.name, dataset, error) from error
    if task.of_classes and not dataset.has_classes:
        raise UserError(
            f"--task {task.name}: targets of {dataset.name} are not one class per example; give integer targets [n], "
            f"or choose another --task: {', '.join(tasks.TABLE)}, or your own tasks.Task"
        )
    complaint = task_contract.evaluate(
        task, "complaint", lambda: task.complaint(prediction, targets, dataset.num_classes or None)
    )
    for labels in (dataset.train_labels, dataset.test_labels):
        own = partial(task.complaint_of_values, prediction, labels)
        complaint = complaint or task_contract.evaluate(task, "complaint_of_values", own)
    if complaint is not None:
        raise UserError(f"--task {task.name}: it {complaint}; choose another task, model or data set")
    task_contract.check(task, prediction, targets, dataset.train_labels)
    for request in strategy.requests:
        if request.kind == "label_histogram" and not dataset.has_classes:
            raise UserError(
                f"--algo {config.selection.algo}: it requests label histograms, but {dataset.name} has no classes; "
                "choose another strategy"
            )
        if request.kind == "profile" and not model.profile_size:
            raise UserError(
                f"--algo {config.selection.algo}: it requests profiles, but no fully-connected layer was found in "
                f"{model.name}; name a layer with profile_layer= of models.from_flax(...) or models.from_nnx(...), or "
                "choose another strategy"
            )
