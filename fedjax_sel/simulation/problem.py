"""From an experiment to what it asks for: data, partitions, model, task, strategy. Nothing is on a device yet."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel import data, models, plugins, reading, strategies, tasks
from fedjax_sel import hyperparameters as hyper
from fedjax_sel.config import Config, ModelConfig
from fedjax_sel.data import availability, trees
from fedjax_sel.data import partition as partitions
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Deal, Experiment, experiment_of
from fedjax_sel.models import Model, blueprint
from fedjax_sel.names import one_of
from fedjax_sel.simulation import contract, devices, information, optimization, optimizer_contract
from fedjax_sel.simulation.optimization import Optimizers
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task
from fedjax_sel.validation import validate


class Given(NamedTuple):
    """The data of a configuration: examples, who holds which, and who can be reached when."""

    dataset: Dataset
    partitions: tuple[Partition, ...]  # one a replicate
    reachable: np.ndarray | None = None  # bool [T or more, N] from a trace


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a configuration asks for, in host memory: data, partitions, model, strategy. Nothing is on a device yet."""

    config: Config
    dataset: Dataset
    partitions: tuple[Partition, ...]
    model: Model
    task: Task
    strategy: Strategy
    optimizers: Optimizers
    reachable: np.ndarray | None = None  # bool [T or more, N] from a trace

    @property
    def given(self) -> Given:
        """Return its data."""
        return Given(self.dataset, self.partitions, self.reachable)


def pose(given: Experiment | Config) -> Problem:
    """Checks an experiment, loads the data and deals them out.

    Raises:
        UserError: one sentence with the field, the value and the way out.
    """
    experiment = experiment_of(given)
    config = experiment.config
    strategy, optimizers, task = check(experiment)
    dataset, dealt, reachable = gather(experiment, server_validation(config, strategy))
    largest = max(int(part.sizes.max()) for part in dealt)
    usable = largest - partitions.holdout_size(largest, config.data.holdout)
    if not config.training.full_batch and config.training.batch_size > usable:
        raise UserError(
            f"--batch-size: {config.training.batch_size} is more than the {usable} training examples of the largest "
            f"client; choose at most that many, fewer --num-clients, or --full-batch"
        )
    model = _model(experiment, dataset)
    _check_that_they_fit(config, dataset, model, task, strategy)
    return Problem(config, dataset, dealt, model, task, strategy, optimizers, reachable)


def _model(experiment: Experiment, dataset: Dataset) -> Model:
    """The model, for the inputs of the data."""
    settings, inputs = experiment.config.model, _shapes(dataset.train_images)
    if experiment.model is not None:
        return experiment.model.build(inputs)
    arguments = dict(settings.model_args)
    if plugins.is_plugin(settings.model):
        made = blueprint.of(_from_plugin("--model", object, settings.model, arguments))
        if made is None:
            raise UserError(
                f"--model {settings.model}: it returned no module of flax.linen or NNX, Blueprint or Model; return one"
            )
        return made.build(inputs)
    if arguments:
        raise UserError(f"--model-args: {settings.model!r} takes none; they are for --model mypackage.module:factory")
    if settings.model in models.PLAIN:
        _refuse_what_plain_models_lack(settings)
        if not isinstance(inputs, jax.ShapeDtypeStruct):
            raise UserError(f"--model {settings.model}: {dataset.name} has several inputs; give a model of your own")
        return models.make_plain(settings.model, inputs, dataset.num_classes or _width(dataset))
    if not isinstance(inputs, jax.ShapeDtypeStruct) or len(inputs.shape) != 4:
        raise UserError(
            f"--model {settings.model}: it sees images, and an input of {dataset.name} has shape "
            f"{dataset.image_shape}; give a model of your own"
        )
    return models.make(
        settings.model, inputs.shape[1:], dataset.num_classes, settings.model_dropout, settings.initializer,
        settings.precision,
    )  # fmt: skip


def _refuse_what_plain_models_lack(settings: ModelConfig) -> None:
    usual = ModelConfig()
    for name in ("model_dropout", "initializer", "precision"):
        if getattr(settings, name) != getattr(usual, name):
            raise UserError(
                f"--{name.replace('_', '-')}: {settings.model!r} is written in plain Flax and has it not; leave it "
                "out, or give a module of your own"
            )


def _width(dataset: Dataset) -> int:
    """Numbers that a prediction of targets without classes has."""
    first = trees.leaves(dataset.train_labels, "targets")
    return next(int(np.prod(array.shape[1:])) for _, array in first)


def _shapes(arrays: Any) -> Any:
    """Shapes [2, ...] of examples as a model or a task sees them: pixels are normalised to float32."""

    def of(array: Any) -> jax.ShapeDtypeStruct:
        pixels = array.dtype == np.uint8
        return jax.ShapeDtypeStruct((2, *array.shape[1:]), np.float32 if pixels else array.dtype)

    return trees.transform(of, arrays)


def _check_that_they_fit(config: Config, dataset: Dataset, model: Model, task: Task, strategy: Strategy) -> None:
    """Refuses a model, a task and a strategy that do not go with the data or with each other, before a compilation."""
    name = f"model {model.name}"
    inputs, targets = _shapes(dataset.train_images), _shapes(dataset.train_labels)
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
                "that was found; name one with models.from_flax(module, profile_layer=...), or choose another strategy"
            )


def gather(given: Experiment | Config, server_share: float) -> Given:
    """Read an experiment's data and deal them out.

    Args:
        given: the experiment.
        server_share: of the training set, which the server keeps.

    Raises:
        UserError: the trace or the data cannot be read, or cannot be dealt so.
    """
    experiment = experiment_of(given)
    reachable = trace(experiment)
    dataset = load_data(experiment, server_share)
    return Given(dataset, tuple(deal(experiment, dataset, seed) for seed in experiment.config.run.seeds), reachable)


def load_data(given: Experiment | Config, share: float) -> Dataset:
    """Load the data set, of which the server keeps a share for itself.

    Args:
        given: holds it or names it.
        share: of the training set.

    Raises:
        UserError: there is no such data set, or the share is less than one example.
    """
    experiment = experiment_of(given)
    config = experiment.config
    whole = _whole_dataset(config) if experiment.dataset is None else experiment.dataset
    dataset = whole.give_server(share, config.run.data_seed or 0)
    if share > 0 and not dataset.num_server_examples:
        raise UserError(
            f"--server-validation: {share:g} of {whole.num_train_examples:,} training examples is none; give at least "
            f"{1 / whole.num_train_examples:.2g}"
        )
    return dataset


def _whole_dataset(config: Config) -> Dataset:
    name, arguments = config.data.dataset, dict(config.data.dataset_args)
    if name in config.plugins():
        return _from_plugin("--dataset", Dataset, name, arguments)
    if arguments:
        raise UserError(f"--dataset-args: {name!r} takes none; they are for --dataset mypackage.module:factory")
    return data.load(name, config.data.data_dir)


SERVER_SHARE = 0.05  # of the training set, where a strategy needs the server to hold some and nothing else is said


def server_validation(config: Config, strategy: Strategy) -> float:
    """The share of the training set that the server keeps."""
    if config.data.server_validation is not None:
        return config.data.server_validation
    return SERVER_SHARE if any(map(information.needs_validation, strategy.requests)) else 0.0


class Checked(NamedTuple):
    """What an experiment names that needs no data."""

    strategy: Strategy
    optimizers: Optimizers
    task: Task


def check(given: Experiment | Config) -> Checked:
    """Checks an experiment as far as that needs no data, and builds its strategy, optimizers and task.

    Raises:
        UserError: a value that cannot work, or a strategy that refuses its hyperparameters, asks for too much, or
            breaks the contract.
    """
    experiment = experiment_of(given)
    config = experiment.config
    validate(config)
    devices.check_that_jax_starts()
    if config.model.precision == "tf32" and jax.default_backend() == "cpu":
        raise UserError("--precision: CPUs have no 'tf32' multiplications; choose float32 or bfloat16")
    if config.run.mesh is not None:
        shape = reading.mesh_shape(config.run.mesh)
        together = config.run.seeds_at_once or len(config.run.seeds)
        devices.check_shape(shape, together, config.selection.num_selected, len(jax.devices()))
    strategy = experiment.strategy
    if strategy is None:
        strategy = strategies.make(config.selection.algo, **dict(config.selection.algo_args))
    task = _task(config) if experiment.task is None else experiment.task
    optimizers = optimization.of(config.training, experiment.optimizer)
    optimizer_contract.check(optimizers.federated)
    contract.requests(strategy)
    information.check(strategy, config.data.holdout, server_validation(config, strategy))
    shape = (config.partition.num_clients, config.selection.num_selected, config.run.rounds)
    everyone = config.selection.available_share == 1
    contract.check(strategy, *shape, everyone_available=everyone)
    if config.training.aggregation == "unbiased" and not contract.knows_inclusion(strategy, *shape, everyone):
        raise UserError(
            f"--aggregation: 'unbiased' needs to know how often each client is selected, which {strategy.name} with "
            "these parameters cannot say; choose another rule, or --algo random, fl_dp3s or clustered"
        )
    return Checked(strategy, optimizers, task)


def _task(config: Config) -> Task:
    name, arguments = config.model.task, dict(config.model.task_args)
    if not plugins.is_plugin(name):
        factory = tasks.TABLE[one_of("--task", name, tasks.TABLE)]
        return factory(**hyper.convert("--task-args", name, factory, arguments))
    return _from_plugin("--task", Task, name, arguments)


def _from_plugin(flag: str, kind: type, name: str, arguments: Mapping[str, Any]) -> Any:
    """What a plug-in's factory makes of its parameters."""
    wanted = plugins.Wanted(flag, kind)
    factory = plugins.load(name, wanted)
    return plugins.build(name, wanted, factory, hyper.convert(f"{flag}-args", name, factory, arguments))


def trace(experiment: Experiment) -> np.ndarray | None:
    """Who can be reached in each round, bool [T or more, N], where a file says so.

    Raises:
        UserError: the file is not such a trace.
    """
    config = experiment.config
    if experiment.reachable is not None:
        table, wanted = experiment.reachable, (config.run.rounds, config.partition.num_clients)
        if table.shape[0] < wanted[0] or table.shape[1] != wanted[1]:
            raise UserError(f"available: a table of shape {table.shape} for {wanted[0]} rounds of {wanted[1]} clients")
        return table
    if config.selection.available_share is not None:
        return None
    return availability.load(Path(config.selection.available), config.partition.num_clients, config.run.rounds)


def deal(given: Experiment | Config, dataset: Dataset, seed: int) -> Partition:
    """One replicate's partition.

    Raises:
        UserError: it cannot be made, or leaves a client without data.
    """
    experiment = experiment_of(given)
    config, settings = experiment.config, experiment.config.partition
    data_seed = seed if config.run.data_seed is None else config.run.data_seed
    own = _dealer(config) if experiment.partition is None else experiment.partition
    if own is not None:
        return _own_partition(own, config, dataset, data_seed)
    options: dict[str, dict[str, Any]] = {
        "shards": {"shards_per_client": settings.shards_per_client},
        "dirichlet_qp": {"alpha": settings.alpha, "min_size": settings.min_client_size},
        "skewness": {
            "skewness": "H" if settings.skewness == "H" else float(settings.skewness),
            "main": settings.skewness_main,
        },
        "dirichlet": {
            "alpha": settings.alpha,
            "form": settings.dirichlet_form,
            "min_size": settings.min_client_size,
        },
        "iid": {},
        "natural": {"client_ids": dataset.client_ids, "min_size": settings.min_client_size},
    }
    scheme = settings.partition
    try:
        part = partitions.make(scheme, dataset.train_labels, settings.num_clients, data_seed, **options[scheme])
    except UserError as error:
        flags = {
            "shards": "--num-clients, --shards-per-client",
            "skewness": "--num-clients, --skewness, --skewness-main",
            "dirichlet_qp": "--num-clients, --alpha, --min-client-size",
            "dirichlet": "--num-clients, --alpha, --dirichlet-form, --min-client-size",
            "natural": "--num-clients, --min-client-size, --dataset",
        }.get(scheme, "--num-clients")
        raise UserError(f"--partition {scheme}: {error} ({flags})") from error
    empty = np.flatnonzero(part.sizes == 0)
    if len(empty):
        raise UserError(
            f"--partition: {settings.partition!r} with {settings.num_clients} clients leaves client {empty[0]} without "
            f"data (seed {data_seed}); choose fewer --num-clients"
            f"{' or a larger --alpha' if config.has_effect('alpha') else ''}"
        )
    return part


def _dealer(config: Config) -> Deal | None:
    """The function of a plug-in that deals the data; None where a scheme does."""
    name, arguments = config.partition.partition, dict(config.partition.partition_args)
    if not plugins.is_plugin(name):
        if arguments:
            raise UserError(f"--partition-args: {name!r} takes none; they are for --partition mypackage.module:factory")
        return None
    made = _from_plugin("--partition", object, name, arguments)
    if not callable(made):
        raise UserError(
            f"--partition {name}: it returned a value of type {type(made).__name__}; return a function of data set, "
            "number of clients and seed"
        )
    return made


def _own_partition(own: Partition | Deal, config: Config, dataset: Dataset, seed: int) -> Partition:
    made: Any = own if isinstance(own, Partition) else own(dataset, config.partition.num_clients, seed)
    if isinstance(made, Sequence | np.ndarray):
        made = Partition.from_indices(list(made), dataset.num_train_examples)
    if not isinstance(made, Partition):
        raise UserError(
            f"partition: it dealt a value of type {type(made).__name__}; return a Partition, or for each client the "
            "positions of its examples"
        )
    if made.num_clients != config.partition.num_clients:
        raise UserError(
            f"partition: it has {made.num_clients} clients, and num_clients is {config.partition.num_clients}; make "
            "them the same"
        )
    if made.num_examples != dataset.num_train_examples:
        raise UserError(
            f"partition: it deals {made.num_examples:,} examples, and clients share {dataset.num_train_examples:,}; "
            "deal those"
        )
    return made
