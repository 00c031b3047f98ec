"""Whether model, task, strategy and data go together, before anything is compiled."""

import jax

from fedjax_sel import tasks
from fedjax_sel.config import Config
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.model_choice import shapes
from fedjax_sel.models import Model
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task


def check_that_they_fit(config: Config, dataset: Dataset, model: Model, task: Task, strategy: Strategy) -> None:
    """Refuse a model, a task and a strategy that do not go with the data or with each other.

    Raises:
        UserError: one sentence with the part, its value and the way out.
    """
    name = f"model {model.name}"
    inputs, targets = shapes(dataset.train_images), shapes(dataset.train_labels)
    try:
        weights = jax.eval_shape(model.init, jax.random.key(0))
        prediction = jax.eval_shape(
            lambda weights, inputs: model.apply(weights, inputs, None), weights, inputs
        ).prediction
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name}: it cannot take inputs of shape {dataset.image_shape} ({str(error).splitlines()[0]}); give "
            "another model or other data"
        ) from error
    if task.of_classes and not dataset.has_classes:
        raise UserError(
            f"--task {task.name}: targets of {dataset.name} are not one class an example; give another --task, one of "
            f"{', '.join(tasks.TABLE)}, or tasks.Task of your own"
        )
    complaint = task.complaint(prediction, targets, dataset.num_classes or None)
    if complaint is not None:
        raise UserError(f"--task {task.name}: it {complaint}; give another task, model or data set")
    losses = jax.eval_shape(task.losses, prediction, targets)
    if not isinstance(losses, jax.ShapeDtypeStruct) or losses.shape != (2,):
        shape = getattr(losses, "shape", type(losses).__name__)
        raise UserError(
            f"--task {task.name}: `losses` gives {shape} for two examples and not one number each; leave the mean over "
            "the batch out"
        )
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
