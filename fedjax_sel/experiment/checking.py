"""Checks of an experiment that need no data, and the construction of its strategy, optimizers and task."""

from typing import NamedTuple

import jax

from fedjax_sel import devices, strategies
from fedjax_sel.config import Config
from fedjax_sel.config.validation import validate
from fedjax_sel.core import parsing
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import optimization, optimizer_contract
from fedjax_sel.experiment.optimization import Optimizers
from fedjax_sel.experiment.registries import TASKS
from fedjax_sel.experiment.values import Experiment, experiment_of
from fedjax_sel.strategies import contract, data_needs
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task

SERVER_SHARE = 0.05  # default fraction of the training set for the server, if the strategy needs validation data


def server_validation(config: Config, strategy: Strategy) -> float:
    """Return the fraction of the training set that the server keeps."""
    if config.data.server_validation is not None:
        return config.data.server_validation
    return SERVER_SHARE if any(map(data_needs.needs_validation, strategy.requests)) else 0.0


class Checked(NamedTuple):
    """An experiment's parts that need no data."""

    strategy: Strategy
    optimizers: Optimizers
    task: Task


def check(experiment_or_config: Experiment | Config) -> Checked:
    """Check an experiment without reading data, and build its strategy, optimizers and task.

    Raises:
        UserError: a setting is invalid, or a strategy or an optimizer rejects its hyperparameters or breaks the
            contract.
    """
    experiment = experiment_of(experiment_or_config)
    config = experiment.config
    validate(config)
    devices.check_that_jax_starts()
    if config.model.precision == "tf32" and jax.default_backend() == "cpu":
        raise UserError("--precision: CPUs have no 'tf32' multiplications; choose float32 or bfloat16")
    if config.run.mesh is not None:
        shape = parsing.mesh_shape(config.run.mesh)
        together = config.run.seeds_at_once or len(config.run.seeds)
        devices.check_shape(shape, together, config.selection.num_selected, len(jax.devices()))
    strategy = experiment.strategy
    if strategy is None:
        strategy = strategies.make(config.selection.algo, **dict(config.selection.algo_args))
    task = TASKS.make(config.model.task, **dict(config.model.task_args)) if experiment.task is None else experiment.task
    optimizers = optimization.of(config.training, experiment.optimizer)
    optimizer_contract.check(optimizers.federated)
    contract.requests(strategy)
    data_needs.check(strategy, config.data.holdout, server_validation(config, strategy))
    shape = (config.partition.num_clients, config.selection.num_selected, config.run.rounds)
    everyone = config.selection.available_share == 1
    contract.check(strategy, *shape, everyone_available=everyone)
    if config.training.aggregation == "unbiased" and not contract.knows_inclusion(strategy, *shape, everyone):
        raise UserError(
            f"--aggregation: 'unbiased' needs the expected number of selections per client, which {strategy.name} does "
            "not provide with these parameters; choose another rule, or --algo random, fl_dp3s or clustered"
        )
    return Checked(strategy, optimizers, task)
