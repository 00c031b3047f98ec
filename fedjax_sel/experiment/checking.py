"""Checks of an experiment's parts before data are read, and its optimizers by name."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_sel import devices, strategies, tasks, timing
from fedjax_sel.config import Config, TrainingConfig, validate
from fedjax_sel.core import parsing, plugins
from fedjax_sel.core.parsing import one_of, shown
from fedjax_sel.core.plugins import Registry, Within
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import availability
from fedjax_sel.experiment.availability import Mode
from fedjax_sel.experiment.values import Experiment
from fedjax_sel.strategies import checks, facts, privacy
from fedjax_sel.strategies.checks import BrokenContractError
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.tasks import Task
from fedjax_sel.timing import Law
from fedjax_sel.training import client, optimizers, server
from fedjax_sel.training.optimizers import FederatedOptimizer, Finished, Memory, Report
from fedjax_sel.training.server import StalenessWeight

# lbfgs needs the loss of a step; noisy_sgd draws noise from its own key; sm3 has no state for a scalar
_NOT_HERE = ("lbfgs", "noisy_sgd", "sm3")
_RANGES = {  # of parameters that Optax does not check
    **dict.fromkeys(("b1", "b2", "b3", "decay", "momentum", "rho"), Within(0, below=1)),
    **dict.fromkeys(("eps", "eps_root", "weight_decay"), Within(0)),
}


def optax_names() -> tuple[str, ...]:
    """Return the names of the Optax functions that take a learning rate and return a gradient transformation."""
    return tuple(sorted(name for name in vars(optax) if _is_optimizer(name)))


def _is_optimizer(name: str) -> bool:
    candidate = getattr(optax, name)
    if name.startswith(("_", "scale_by_")) or name in _NOT_HERE or not inspect.isfunction(candidate):
        return False
    signature = inspect.signature(candidate)
    return "learning_rate" in signature.parameters and "GradientTransformation" in str(signature.return_annotation)


def make_optax(
    flag: str, name: str, arguments: Mapping[str, Any], learning_rate: float
) -> optax.GradientTransformation:
    """Build the Optax optimizer `name`, and test it on a small pytree; messages name the command-line flag `flag`."""
    factory: Callable[..., Any] = getattr(optax, one_of(flag, name, optax_names()))
    if "learning_rate" in arguments:
        raise UserError(f"{flag}-args of {name}: learning_rate has its own flag; remove it here")
    values = plugins.convert_parameters(f"{flag}-args", name, factory, {**arguments, "learning_rate": learning_rate})
    for key, value in values.items():
        if isinstance(value, int | float) and key in _RANGES:
            _RANGES[key].check(f"{flag}-args {key}={value} of {name}", value)
    try:
        made = factory(**values)
        params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones((3,)), "scale": jnp.ones(())}
        step, _ = made.update(params, made.init(params), params)
        if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(step)):
            raise ValueError("its step from a gradient of ones is not finite")
    except Exception as error:
        raise UserError(
            f"{flag} {name}: this optimizer cannot be used here ({parsing.reason(error)}); "
            f"correct {flag}-args, or choose another optimizer such as sgd or adam"
        ) from error
    return made


SGD = "sgd"
NOT_PROPORTIONAL = ("fromage", "rprop")
"""Optax optimizers whose step is not proportional to the learning rate."""
NOT_PROPORTIONAL_WITH = {"adafactor": "weight_decay_rate", "optimistic_adam": "optimism"}


class Optimizers(NamedTuple):
    """The optimizers of a run."""

    federated: FederatedOptimizer
    client: optax.GradientTransformation  # at learning rate 1; the round's learning rate scales its step
    server: optax.GradientTransformation  # its gradient is minus the mean update


def build_optimizers(training: TrainingConfig, federated: FederatedOptimizer | None = None) -> Optimizers:
    """Build the configured optimizers; `federated` is a federated optimizer given as a value."""
    if federated is None:
        federated = optimizers.make(training.optimizer, **dict(training.optimizer_args))
    return Optimizers(federated, _client(training), _server(training, federated))


def _client(training: TrainingConfig) -> optax.GradientTransformation:
    name, arguments = training.client_optimizer, dict(training.client_optimizer_args)
    if name == SGD:
        if arguments:
            listed = " ".join(f"{key}={value}" for key, value in arguments.items())
            advice = "sgd takes no arguments here; use --momentum and --weight-decay"
            raise UserError(f"--client-optimizer-args {listed}: {advice}")
        return client.sgd(training.momentum, training.weight_decay)
    for flag, value in (("momentum", training.momentum), ("weight-decay", training.weight_decay)):
        if value:
            raise UserError(
                f"--client-optimizer {name}: --{flag} {value:g} applies to sgd only; add --{flag} 0, and set the "
                f"parameters of {name} with --client-optimizer-args"
            )
    if name in NOT_PROPORTIONAL or NOT_PROPORTIONAL_WITH.get(name, "") in arguments:
        raise UserError(
            f"--client-optimizer {name}: its step is not proportional to the learning rate, which changes per round "
            "here; choose another optimizer, such as adam"
        )
    optimizer = make_optax("--client-optimizer", name, arguments, learning_rate=1.0)
    return optax.chain(optimizer, optax.scale(-1.0))  # clients subtract the direction, as they do a gradient


def _server(training: TrainingConfig, federated: FederatedOptimizer) -> optax.GradientTransformation:
    name, arguments = training.server_optimizer, dict(training.server_optimizer_args)
    rate = training.server_learning_rate
    if name is None:
        if arguments:
            raise UserError(
                "--server-optimizer-args: no --server-optimizer is given; add one, or remove these arguments"
            )
        return federated.server(federated.server_learning_rate if rate is None else rate)
    if federated.server is not optax.sgd:
        raise UserError(
            f"--server-optimizer {name}: {federated.name} has its own server optimizer; use only one of the two, for "
            "example with --optimizer fedavg"
        )
    if rate is None and name != SGD:
        raise UserError(f"--server-optimizer {name}: its learning rate is missing; add --server-learning-rate 0.01")
    return make_optax("--server-optimizer", name, arguments, 1.0 if rate is None else rate)


MODES: Registry[Mode] = Registry("--available", Mode, availability.TABLE)
LAWS: Registry[Law] = Registry("--timing", Law, timing.TABLE)
STALENESS: Registry[StalenessWeight] = Registry("--staleness", StalenessWeight, server.STALENESS)
TASKS: Registry[Task] = Registry("--task", Task, tasks.TABLE)
DATASETS: Registry[Dataset] = Registry("--dataset", Dataset)  # plug-ins only; `data.load` reads named data sets
MODELS: Registry[object] = Registry("--model", object)  # plug-ins only; `models.make` builds named models
PARTITIONS: Registry[object] = Registry("--partition", object)  # plug-ins only; `data.partition.make` makes the others


def check_optimizer(optimizer: FederatedOptimizer) -> None:
    """Trace all hooks on the shapes of a small model, without running them."""
    scalar: Any = jax.ShapeDtypeStruct((), jnp.float32)
    model: Any = checks.MODEL
    inits = {"init_own": optimizer.init_own, "init_shared": optimizer.init_shared}
    with checks.named("optimizer", optimizer.name):
        memory = Memory(*(_trace(name, init, model) for name, init in inits.items()))
        _check_model_shapes("gradient", _trace("gradient", optimizer.gradient, model, model, model, memory), model)
        of_scalar = Memory(*(_trace(f"{name} of a scalar", init, scalar) for name, init in inits.items()))
        _trace("gradient of scalars", optimizer.gradient, scalar, scalar, scalar, of_scalar)
        report = _trace("report", optimizer.report, Finished(model, scalar, scalar), memory)
        if not isinstance(report, Report):
            raise BrokenContractError(f"`report` returned a {type(report).__name__}; return Report(averaged, ...)")
        _check_memory("own", report.own, "init_own", memory.own)
        _check_memory("contributed", report.contributed, "init_shared", memory.shared)
        _check_model_shapes("combine", _trace("combine", optimizer.combine, report.averaged), model)
        with checks.explained("server"):
            server = optimizer.server(optimizer.server_learning_rate)
        if not isinstance(server, optax.GradientTransformation):
            raise BrokenContractError(
                f"`server` returned a {type(server).__name__}; return an optax.GradientTransformation"
            )
        _trace("server", lambda gradient: server.update(gradient, server.init(gradient), gradient)[0], model)


def _trace(name: str, function: Callable[..., Any], *shapes: Any) -> Any:
    return checks.trace(name, (function, shapes))


def _check_memory(name: str, answer: Any, init: str, at_first: Any) -> None:
    """Check that a part of a report has the structure, shapes and dtypes of the memory that it updates."""
    found, wanted = (jax.tree.map(lambda leaf: f"{leaf.dtype} {list(leaf.shape)}", tree) for tree in (answer, at_first))
    if found != wanted:
        raise BrokenContractError(
            f"`report` returned {name} as {shown(found)}, but `{init}` returned {shown(wanted)}; keep the structure, "
            "shapes and dtypes"
        )


def _check_model_shapes(name: str, answer: Any, model: Any) -> None:
    found, wanted = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (answer, model))
    if found != wanted:
        raise BrokenContractError(f"`{name}` must return a pytree of the model's shapes")


SERVER_SHARE = 0.05  # default fraction of the training set for the server, if the strategy needs validation data


def server_validation(config: Config, strategy: Strategy) -> float:
    """Return the fraction of the training set that the server keeps."""
    if config.data.server_validation is not None:
        return config.data.server_validation
    return SERVER_SHARE if strategy.needs_validation else 0.0


@functools.cache
def server_sees(algo: str, parameters: tuple[tuple[str, Any], ...], size: tuple[int, int, int]) -> str:
    """Return the class of what the server sees of single clients in a run of N clients, K per round and T rounds.

    It is unknown for a plug-in, which no report loads.
    """
    if algo not in strategies.TABLE:
        return "unknown"
    return privacy.CLASSES[privacy.level(privacy.disclosed(strategies.make(algo, **dict(parameters)), size))]


def _law(experiment: Experiment) -> Law | None:
    """Return the law of the clients' devices, or None without a clock."""
    settings = experiment.config.timing
    if experiment.timing is not None:
        return timing.from_values(experiment.timing)
    if settings.timing == "none":
        return None
    arguments = dict(settings.timing_args)
    if settings.timing.endswith(".csv"):
        return LAWS.make("file", **{**arguments, "path": settings.timing})
    return LAWS.make(settings.timing, **arguments)


def _check_stale_reports(config: Config, strategy: Strategy, optimizer: FederatedOptimizer) -> None:
    """Reject strategies and optimizers that need all reports of one round."""
    late = config.uses_late_reports
    flag, instead = ("--late-reports", "--late-reports drop") if late else ("--concurrency", "synchronous rounds")
    if strategy.max_selected is not None and not late:
        raise UserError(
            f"--concurrency: {strategy.name} decides how many clients it selects, but an asynchronous round starts as "
            "many as have reported; choose another --algo, or synchronous rounds"
        )
    if not _reports_updates(optimizer):
        raise UserError(
            f"{flag}: {optimizer.name} combines reports that start from the same model; choose --optimizer "
            f"fedavg, fedprox, fedavgm, fedadagrad, fedadam or fedyogi, or {instead}"
        )
    weight = STALENESS.make(config.timing.staleness, **dict(config.timing.staleness_args))
    if weight.beta and not late:
        raise UserError(
            "--staleness: 'refl' compares late reports with those in time, which asynchronous rounds do not have; "
            "choose constant, polynomial or hinge"
        )


def _reports_updates(optimizer: FederatedOptimizer) -> bool:
    """Return whether clients keep no memory, and send their updates, whose mean the server reads, and nothing else."""
    plain = FederatedOptimizer("plain")
    reports = optimizer.report is plain.report and optimizer.combine is plain.combine
    own = jax.tree.leaves(jax.eval_shape(optimizer.init_own, checks.MODEL))
    return reports and not optimizer.vectors_down and not own


def _check_private_training(strategy: Strategy, has_weights: bool, optimizer: FederatedOptimizer) -> None:
    """Reject strategies and optimizers that need more than the sum of K clipped updates."""
    if strategy.max_selected is not None or has_weights:
        raise UserError(
            f"--private-training: {strategy.name} chooses the size of its cohort or the weights of the updates, but "
            "the noise is for K updates of weight 1/K; choose another --algo"
        )
    if any(facts.num_probes(request) for request in strategy.requests):
        raise UserError(
            f"--private-training: {strategy.name} trains probe cohorts without noise; choose another --algo"
        )
    if not _reports_updates(optimizer):
        raise UserError(
            f"--private-training: clients of {optimizer.name} send more than their updates; choose --optimizer fedavg, "
            "fedprox, fedavgm, fedadagrad, fedadam or fedyogi"
        )


class Checked(NamedTuple):
    """An experiment's parts that need no data."""

    strategy: Strategy
    optimizers: Optimizers
    task: Task
    law: Law | None  # speed of the clients' devices; None without a clock
    mode: Mode | None  # mode of availability; None for a fraction, a file or a table


def check(experiment: Experiment) -> Checked:
    """Check an experiment without reading data, and build its strategy, optimizers and task."""
    config = experiment.config
    validate(config)
    devices.check_that_jax_starts()
    if config.model.precision == "tf32" and jax.default_backend() == "cpu":
        raise UserError("--precision: CPUs have no 'tf32' multiplications; choose float32 or bfloat16")
    strategy = experiment.strategy
    if strategy is None:
        strategy = strategies.make(config.selection.algo, **dict(config.selection.algo_args))
    task = TASKS.make(config.model.task, **dict(config.model.task_args)) if experiment.task is None else experiment.task
    chosen = config.selection
    mode = MODES.make(chosen.available, **dict(chosen.available_args)) if chosen.available in MODES.names() else None
    optimizers = build_optimizers(config.training, experiment.optimizer)
    check_optimizer(optimizers.federated)
    checks.requests(strategy, config.data.holdout > 0, config.data.server_validation != 0)
    if chosen.privacy is not None:
        privacy.check(strategy, chosen.privacy_unit, config.size)
    law = _law(experiment)
    if law is None and strategy.needs_clock:
        raise UserError(f"--algo {strategy.name}: it buys clients' durations; add --timing tiers, lognormal or a file")
    if config.has_effect("staleness"):
        _check_stale_reports(config, strategy, optimizers.federated)
    everyone = config.everyone_available
    checks.check(strategy, config.size, everyone_available=everyone, has_clock=law is not None)
    if config.training.private_training is not None:
        privacy.check_package("--private-training")
        hooks = checks.traced(strategy, config.size, everyone_available=everyone, has_clock=law is not None)
        _check_private_training(strategy, hooks["update"][1][2].weights is not None, optimizers.federated)
    if strategy.max_selected is not None and config.cohort_size > config.selection.num_selected:
        raise UserError(
            f"--over-select: {strategy.name} decides how many clients it selects, so the number of reports to wait for "
            "is unknown; leave it out, or limit the round with --deadline"
        )
    if config.run.mesh is not None:
        mesh, together = parsing.mesh_shape(config.run.mesh), config.run.seeds_at_once or len(config.run.seeds)
        places = strategy.num_places(config.num_training_clients, config.cohort_size)
        devices.check_shape(mesh, together, places, len(jax.devices()))
    size, has_clock = config.size, law is not None
    if config.training.aggregation == "unbiased" and not checks.knows_inclusion(strategy, size, everyone, has_clock):
        raise UserError(
            f"--aggregation: 'unbiased' needs the expected number of selections per client, which {strategy.name} does "
            "not provide with these parameters; choose another rule, or --algo random, fl_dp3s or clustered"
        )
    return Checked(strategy, optimizers, task, law, mode)
