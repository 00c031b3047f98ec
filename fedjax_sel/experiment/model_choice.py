"""Model construction from a name, a plug-in or a value, for the inputs of the data."""

from typing import Any

import jax
import numpy as np

from fedjax_sel import models
from fedjax_sel.config import ModelConfig
from fedjax_sel.core import plugins, texts
from fedjax_sel.data import trees
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.registries import MODELS
from fedjax_sel.experiment.values import BUILTIN_MODEL_SETTINGS, Experiment
from fedjax_sel.models import Model, blueprint


def choose(experiment: Experiment, dataset: Dataset) -> Model:
    """Return the experiment's model, built for the inputs of the data.

    Raises:
        UserError: the name, the parameters or the inputs are invalid for the model.
    """
    settings, inputs = experiment.config.model, shapes(dataset.train_images)
    if experiment.model is not None:
        return _built(experiment.model, inputs, dataset)
    arguments = dict(settings.model_args)
    if plugins.is_plugin(settings.model):
        made = blueprint.of(MODELS.make(settings.model, **arguments))
        if made is None:
            raise UserError(
                f"--model {settings.model}: the factory must return a flax.linen or NNX module, a Blueprint or a Model"
            )
        return _built(made, inputs, dataset)
    if arguments:
        raise UserError(f"--model-args: {settings.model!r} takes none; use them with --model mypackage.module:factory")
    if not isinstance(inputs, jax.ShapeDtypeStruct):
        raise UserError(f"--model {settings.model}: {dataset.name} has several inputs per example; give your own model")
    outputs = dataset.num_classes or _width(dataset)
    if settings.model in models.PLAIN:
        _check_plain_model_settings(settings)
        if settings.model == "char_lstm":
            _check_characters(dataset)
        return models.make_plain(settings.model, inputs, outputs)
    return models.make(
        settings.model, inputs.shape[1:], outputs, settings.model_dropout, settings.initializer, settings.precision
    )


def _built(made: blueprint.Blueprint, inputs: Any, dataset: Dataset) -> Model:
    """Build a user's model for the inputs of the data; raise a UserError for any exception in it."""
    try:
        return made.build(inputs)
    except UserError:
        raise
    except Exception as error:
        raise cannot_take(made.name, dataset, error) from error


def cannot_take(name: str, dataset: Dataset, error: Exception) -> UserError:
    """Return the error for a model that cannot process the inputs of the data."""
    return UserError(
        f"model {name}: cannot process inputs of shape {dataset.image_shape} ({texts.reason(error)}); "
        "choose another model or data set"
    )


def _check_characters(dataset: Dataset) -> None:
    num_characters = dataset.num_classes or _width(dataset)
    for inputs in (dataset.train_images, dataset.test_images):
        if isinstance(inputs, np.ndarray) and np.issubdtype(inputs.dtype, np.integer):
            largest = int(inputs.max(initial=0))
            if largest >= num_characters:
                raise UserError(
                    f"--model char_lstm: inputs of {dataset.name} contain {largest}, but the model reads characters 0 "
                    f"to {num_characters - 1}, the number of classes; give your own model"
                )


def _check_plain_model_settings(settings: ModelConfig) -> None:
    usual = ModelConfig()
    for name in BUILTIN_MODEL_SETTINGS:
        if getattr(settings, name) != getattr(usual, name):
            raise UserError(
                f"--{name.replace('_', '-')}: {settings.model!r} is a plain Flax module without this setting; give "
                f"{getattr(usual, name)}, or give your own module"
            )


def _width(dataset: Dataset) -> int:
    """Return the size of a prediction for targets without classes: the size of one example's targets."""
    first = trees.leaves(dataset.train_labels, "targets")
    return next(int(np.prod(array.shape[1:])) for _, array in first)


def shapes(arrays: Any) -> Any:
    """Return the shapes [2, ...] of two examples as a model or a task sees them: pixels become float32."""

    def shape_of(array: Any) -> jax.ShapeDtypeStruct:
        pixels = array.dtype == np.uint8
        return jax.ShapeDtypeStruct((2, *array.shape[1:]), np.float32 if pixels else array.dtype)

    return trees.transform(shape_of, arrays)
