"""The model of a run that was read from its folder, which has only weights."""

import dataclasses

import jax

from fedjax_sel.config import Config
from fedjax_sel.core import jax_settings, plugins
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models import Model
from fedjax_sel.runs import weights
from fedjax_sel.runs.records import Result


def with_model(result: Result, experiment_or_config: Experiment | Config) -> Result:
    """Return a result with its model and with weights in the model's pytree.

    Args:
        result: a result that was read from a folder.
        experiment_or_config: the experiment of the result; if its data cannot be read, the result is returned as is.

    Raises:
        UserError: the weights belong to a different model with the same name.
    """
    if result.weights is None or result.model is not None:
        return result
    try:
        with plugins.contained(result.config.plugins()):
            model = pose(experiment_or_config).model
    except UserError:
        return result
    return with_this_model(result, model)


def with_this_model(result: Result, model: Model) -> Result:
    """Return a result with this model and with weights in the model's pytree; a result without weights as is.

    Args:
        result: a result that was read from a folder.
        model: the model of the result's experiment.

    Raises:
        UserError: the weights belong to a different model with the same name.
    """
    if result.weights is None:
        return result
    shapes = jax.eval_shape(model.init, jax_settings.key(0))
    if (found := weights.unlike(shapes, result.weights)) is not None:
        raise weights.another_model(result.config, found)
    return dataclasses.replace(result, model=model, weights=weights.like(shapes, result.weights))
