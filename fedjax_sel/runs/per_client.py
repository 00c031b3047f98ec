"""Performance per client of a finished run, with its model rebuilt."""

import dataclasses
from typing import Any

import jax
import numpy as np

from fedjax_sel import devices
from fedjax_sel.config import Config, DataConfig, ModelConfig, PartitionConfig
from fedjax_sel.core import jax_settings, plugins
from fedjax_sel.core.parsing import shown
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import VALUE, Experiment, experiment_of, is_value
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models import Model
from fedjax_sel.runs import checkpoint
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import evaluation, layout
from fedjax_sel.simulation.evaluation import evaluator
from fedjax_sel.simulation.run import SPECS


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
    if (found := checkpoint.unlike(shapes, result.weights)) is not None:
        raise checkpoint.another_model(result.config, found)
    return dataclasses.replace(result, model=model, weights=checkpoint.like(shapes, result.weights))


# The settings that determine the clients' data and the measures; training settings do not matter here.
_MATTER = tuple(
    field.name
    for kind in (DataConfig, PartitionConfig, ModelConfig)
    for field in dataclasses.fields(kind)
    if field.name not in ("data_dir", "server_validation")
)


def per_client(result: Result, experiment_or_config: Experiment | Config | None = None) -> dict[str, np.ndarray]:
    """Return the task's measures and `loss` of the final models on each client's training data, [seeds, N] each.

    Args:
        result: the run's result, with its weights.
        experiment_or_config: the experiment of the result, with any seeds; None if the result's configuration is
            complete.

    Raises:
        UserError: the result has no weights, its data cannot be read, or it belongs to another experiment.
    """
    if result.weights is None:
        raise UserError(
            "per_client: this result has no weights; fedjax_sel.load(folder) loads them for a run that has ended, "
            'and with weights="latest" from the newest checkpoint'
        )
    problem = pose(result.config if experiment_or_config is None else _of_result(result, experiment_or_config))
    host, plan, _ = layout.lay_out(problem, len(result.seeds))
    shared = {name: getattr(host, name) for name in Federation._fields if name not in fed.PER_REPLICATE}
    own = {name: getattr(host, name) for name in fed.PER_REPLICATE}
    federation = Federation(
        **devices.place(plan.mesh, shared, devices.WHOLE), **devices.place(plan.mesh, own, devices.PER_SEED)
    )

    def measure(federation: Federation, weights):
        return evaluation.of_clients(evaluator(plan, federation.labels), federation, weights)

    program = jax.jit(devices.over_seeds(plan.mesh, measure, (SPECS, devices.PER_SEED), devices.PER_SEED))
    shapes = jax.eval_shape(problem.model.init, jax_settings.key(0))
    weights = checkpoint.like(shapes, result.weights)
    found = devices.fetch(program(federation, devices.place(plan.mesh, weights, devices.PER_SEED)))
    return {**found.measures, "loss": found.loss}


def _of_result(result: Result, experiment_or_config: Experiment | Config) -> Experiment:
    """Return the experiment with the seeds of a result and its share of server data.

    Raises:
        UserError: the experiment has other clients, or another model or task.
    """
    experiment, ran = experiment_of(experiment_or_config), result.config
    # Without a recorded share of server data, the strategy determines it.
    names = _MATTER if ran.data.server_validation is not None else (*_MATTER, "algo", "algo_args")
    recorded, given = ran.meant(), experiment.config.meant()
    for name in names:
        if recorded[name] != given[name] and not _both_values(recorded[name], given[name]):
            raise UserError(
                f"per_client: {name} is {shown(given[name])} in the experiment and {shown(recorded[name])} in the "
                "result; give the experiment of this result"
            )
    return experiment.replace(
        seeds=result.seeds,
        seeds_at_once=None,
        data_seed=ran.run.data_seed,
        server_validation=ran.data.server_validation,
    )


def _both_values(one: Any, other: Any) -> bool:
    """Return whether both stand for Python objects, at least one of which has no name to compare."""
    return VALUE in (one, other) and all(isinstance(text, str) and is_value(text) for text in (one, other))
