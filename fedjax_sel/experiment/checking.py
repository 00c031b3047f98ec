"""Checks of an experiment's parts, alone and together, before data are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_sel import devices, strategies, tasks
from fedjax_sel.config import Config
from fedjax_sel.config.validation import validate
from fedjax_sel.core import parsing
from fedjax_sel.core.hyperparameters import Registry
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import optimization
from fedjax_sel.experiment.optimization import Optimizers
from fedjax_sel.experiment.values import Experiment, experiment_of
from fedjax_sel.strategies import base, contract
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.contract import BrokenContractError
from fedjax_sel.tasks import Task
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Finished, Memory, Report

TASKS: Registry[Task] = Registry("--task", Task, tasks.TABLE)
DATASETS: Registry[Dataset] = Registry("--dataset", Dataset)  # plug-ins only; `data.load` reads named data sets
MODELS: Registry[object] = Registry(
    "--model", object
)  # plug-ins only; `models.make` builds named models, which need the shape of the inputs
PARTITIONS: Registry[object] = Registry(
    "--partition", object
)  # plug-ins only; `data.partition.make` makes named schemes


_HOOKS = ("gradient", "report", "combine", "server", "init_own", "init_shared")
_COUNTS = ("vectors_down", "vectors_up", "floats_up")


def check_optimizer(optimizer: FederatedOptimizer) -> None:
    """Trace all hooks on the shapes of a small model, without running them.

    Raises:
        UserError: a rule of the contract is broken, or a hook raised a UserError.
    """
    with _named(optimizer):
        if not isinstance(optimizer.name, str) or not optimizer.name:
            raise BrokenContractError("`name` must be a non-empty string")
        for name in _HOOKS:
            if not callable(getattr(optimizer, name)):
                kind = type(getattr(optimizer, name)).__name__
                raise BrokenContractError(f"`{name}` is of type {kind}; give a function, or omit it")
        for name in _COUNTS:
            count = getattr(optimizer, name)
            if not isinstance(count, int) or count < 0:
                raise BrokenContractError(f"`{name}` is {count!r}; give an integer of at least 0")
        rate = optimizer.server_learning_rate
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise BrokenContractError(f"`server_learning_rate` is {rate!r}; give a positive number")
        _trace_all(optimizer)


def _trace_all(optimizer: FederatedOptimizer) -> None:
    scalar: Any = jax.ShapeDtypeStruct((), jnp.float32)
    model: Any = contract.MODEL
    inits = {"init_own": optimizer.init_own, "init_shared": optimizer.init_shared}
    memory = Memory(*(_trace(name, init, model) for name, init in inits.items()))
    _check_model_shapes("gradient", _trace("gradient", optimizer.gradient, model, model, model, memory), model)
    of_scalar = Memory(*(_trace(f"{name} of a scalar", init, scalar) for name, init in inits.items()))
    _trace("gradient of scalars", optimizer.gradient, scalar, scalar, scalar, of_scalar)
    report = _trace("report", optimizer.report, Finished(model, scalar, scalar), memory)
    if not isinstance(report, Report):
        raise BrokenContractError(f"`report` returned a {type(report).__name__}; return Report(averaged, ...)")
    _check_memory("own", report.own, "init_own", memory.own)
    _check_memory("contributed", report.contributed, "init_shared", memory.shared)
    _check_dtype("averaged", report.averaged, jnp.number)
    _check_dtype("contributed", report.contributed, jnp.floating)  # 1/N of it is
    _check_model_shapes("combine", _trace("combine", optimizer.combine, report.averaged), model)
    with contract.explained("server"):
        server = optimizer.server(optimizer.server_learning_rate)
    if not isinstance(server, optax.GradientTransformation):
        raise BrokenContractError(
            f"`server` returned a {type(server).__name__}; return an optax.GradientTransformation"
        )
    _trace("server", lambda gradient: server.update(gradient, server.init(gradient), gradient)[0], model)
    for path, leaf in jax.tree.leaves_with_path(_trace("server's init", server.init, model)):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise BrokenContractError(
                f"the state of `server` holds a random key ({jax.tree_util.keystr(path)}), whose draws would be equal "
                "in all seeds; use a server optimizer without random draws"
            )


def _trace(name: str, function: Callable[..., Any], *shapes: Any) -> Any:
    return contract.trace(name, (function, shapes))


def _check_memory(name: str, answer: Any, init: str, at_first: Any) -> None:
    """Check that a part of a report has the structure, shapes and dtypes of the memory that it updates."""
    if jax.tree.structure(answer) != jax.tree.structure(at_first):
        raise BrokenContractError(
            f"`report` returned {name} with another structure than `{init}`; return the same structure"
        )
    for (path, before), after in zip(jax.tree.leaves_with_path(at_first), jax.tree.leaves(answer)):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise BrokenContractError(
                f"`report` returned {name}{jax.tree_util.keystr(path)} as {after.dtype} {list(after.shape)}, but "
                f"`{init}` returned {before.dtype} {list(before.shape)}; keep dtype and shape"
            )


def _check_dtype(name: str, answer: Any, kind: Any) -> None:
    for path, leaf in jax.tree.leaves_with_path(answer):
        if not jnp.issubdtype(leaf.dtype, kind):
            raise BrokenContractError(
                f"`report` returned {name}{jax.tree_util.keystr(path)} as {leaf.dtype}, but the server takes weighted "
                "sums; return it as float32"
            )


def _check_model_shapes(name: str, answer: Any, model: Any) -> None:
    if jax.tree.map(_shape, answer) != jax.tree.map(_shape, model):
        raise BrokenContractError(f"`{name}` must return a pytree of the model's shapes")


def _shape(leaf: Any) -> tuple[int, ...]:
    return leaf.shape


@contextmanager
def _named(optimizer: FederatedOptimizer) -> Iterator[None]:
    """Add the optimizer's name to a contract error."""
    try:
        yield
    except BrokenContractError as error:
        raise BrokenContractError(f"optimizer {optimizer.name!r}: {error}") from error


SERVER_SHARE = 0.05  # default fraction of the training set for the server, if the strategy needs validation data


def server_validation(config: Config, strategy: Strategy) -> float:
    """Return the fraction of the training set that the server keeps."""
    if config.data.server_validation is not None:
        return config.data.server_validation
    return SERVER_SHARE if any(map(base.needs_validation, strategy.requests)) else 0.0


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
    check_optimizer(optimizers.federated)
    contract.requests(strategy)
    base.check(strategy, config.data.holdout, server_validation(config, strategy))
    shape = (config.partition.num_clients, config.selection.num_selected, config.run.rounds)
    everyone = config.selection.available_share == 1
    contract.check(strategy, *shape, everyone_available=everyone)
    if config.training.aggregation == "unbiased" and not contract.knows_inclusion(strategy, *shape, everyone):
        raise UserError(
            f"--aggregation: 'unbiased' needs the expected number of selections per client, which {strategy.name} does "
            "not provide with these parameters; choose another rule, or --algo random, fl_dp3s or clustered"
        )
    return Checked(strategy, optimizers, task)
