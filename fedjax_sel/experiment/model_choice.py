"""From a model's name, plug-in or value to the model, for the inputs of the data."""

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
from fedjax_sel.experiment.values import OF_OUR_MODELS, Experiment
from fedjax_sel.models import Model, blueprint


def choose(experiment: Experiment, dataset: Dataset) -> Model:
    """Return the experiment's model, for the inputs of the data.

    Raises:
        UserError: its name, parameters or inputs do not go together.
    """
    settings, inputs = experiment.config.model, shapes(dataset.train_images)
    if experiment.model is not None:
        return _built(experiment.model, inputs, dataset)
    arguments = dict(settings.model_args)
    if plugins.is_plugin(settings.model):
        made = blueprint.of(MODELS.make(settings.model, **arguments))
        if made is None:
            raise UserError(
                f"--model {settings.model}: it returned no module of flax.linen or NNX, Blueprint or Model; return one"
            )
        return _built(made, inputs, dataset)
    if arguments:
        raise UserError(f"--model-args: {settings.model!r} takes none; they are for --model mypackage.module:factory")
    if not isinstance(inputs, jax.ShapeDtypeStruct):
        raise UserError(f"--model {settings.model}: {dataset.name} has several inputs; give a model of your own")
    outputs = dataset.num_classes or _width(dataset)
    if settings.model in models.PLAIN:
        _refuse_what_plain_models_lack(settings)
        if settings.model == "char_lstm":
            _refuse_unknown_characters(dataset)
        return models.make_plain(settings.model, inputs, outputs)
    return models.make(
        settings.model, inputs.shape[1:], outputs, settings.model_dropout, settings.initializer, settings.precision
    )


def _built(made: blueprint.Blueprint, inputs: Any, dataset: Dataset) -> Model:
    """Return somebody's model for the inputs of the data; what it raises, in a sentence."""
    try:
        return made.build(inputs)
    except UserError:
        raise
    except Exception as error:
        raise cannot_take(made.name, dataset, error) from error


def cannot_take(name: str, dataset: Dataset, error: Exception) -> UserError:
    """Return the error that says that a model is not made for the inputs of the data."""
    return UserError(
        f"model {name}: it cannot take inputs of shape {dataset.image_shape} ({texts.reason(error)}); "
        "give another model or other data"
    )


def _refuse_unknown_characters(dataset: Dataset) -> None:
    known = dataset.num_classes or _width(dataset)
    for inputs in (dataset.train_images, dataset.test_images):
        if isinstance(inputs, np.ndarray) and np.issubdtype(inputs.dtype, np.integer):
            largest = int(inputs.max(initial=0))
            if largest >= known:
                raise UserError(
                    f"--model char_lstm: it reads the characters that it tells, 0 to {known - 1}, and inputs of "
                    f"{dataset.name} hold a {largest}; give a model of your own"
                )


def _refuse_what_plain_models_lack(settings: ModelConfig) -> None:
    usual = ModelConfig()
    for name in OF_OUR_MODELS:
        if getattr(settings, name) != getattr(usual, name):
            raise UserError(
                f"--{name.replace('_', '-')}: {settings.model!r} is written in plain Flax and has it not; set it to "
                f"{getattr(usual, name)}, or give a module of your own"
            )


def _width(dataset: Dataset) -> int:
    """Return how many numbers a prediction of targets without classes has."""
    first = trees.leaves(dataset.train_labels, "targets")
    return next(int(np.prod(array.shape[1:])) for _, array in first)


def shapes(arrays: Any) -> Any:
    """Return the shapes [2, ...] of examples as a model or a task sees them: pixels are normalised to float32."""

    def shape_of(array: Any) -> jax.ShapeDtypeStruct:
        pixels = array.dtype == np.uint8
        return jax.ShapeDtypeStruct((2, *array.shape[1:]), np.float32 if pixels else array.dtype)

    return trees.transform(shape_of, arrays)
