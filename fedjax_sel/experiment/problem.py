"""The problem of an experiment: data, partition, availability, model, task, strategy, and optimizers."""

import dataclasses
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import data, models, tasks
from fedjax_sel.config import Config, ModelConfig, PartitionConfig, only_with
from fedjax_sel.core import files, jax_settings, parsing, plugins
from fedjax_sel.data import client_skew, examples, schemes
from fedjax_sel.data import partition as partitions
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import ClientTests, Partition
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError
from fedjax_sel.experiment import checking
from fedjax_sel.experiment.availability import Mode
from fedjax_sel.experiment.checking import SERVER_SHARE, Optimizers, check, server_validation
from fedjax_sel.experiment.values import BUILTIN_MODEL_SETTINGS, VALUE, ByHand, Deal, Experiment, experiment_of
from fedjax_sel.models import Model
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.tasks import Task
from fedjax_sel.timing import Clients, Law


def load_availability(path: Path) -> np.ndarray:
    """Read an availability trace: all columns of the file as bool [columns, N], True where available.

    The file is a .npy file of Booleans or of 0 and 1, or a text file with values separated by commas or blanks; its
    rows are clients.
    """
    try:
        if path.suffix == ".npy":
            table = files.read_array(path)
        else:
            text = files.read_text(path).replace(",", " ")
            if not text.strip():
                raise ValueError("it is empty")
            table = np.loadtxt(io.StringIO(text), np.float32, comments=None, ndmin=2)
        if table.ndim != 2 or table.dtype.kind not in "biuf" or not ((table == 0) | (table == 1)).all():
            raise ValueError("its values are not rows of 0 and 1")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or parsing.first_line(error)
        why = why.partition("; use `usecols`")[0]  # NumPy's advice about its own arguments
        raise UserError(
            f"--available: cannot read {path} ({why}); give a share such as 0.5, or a file of 0 and 1 with one row per "
            "client"
        ) from error
    return np.ascontiguousarray(table.T.astype(bool))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """An experiment's data, in host memory: examples, partitions, availability trace, and the devices' law."""

    dataset: Dataset
    partitions: tuple[Partition, ...]  # one per seed
    availability_trace: np.ndarray | None = None  # bool [T or more, N]; None without a trace
    law: Law | None = None  # speed of the clients' devices; None without a clock
    client_tests: tuple[ClientTests, ...] | None = None  # one per seed; None without tests of clients

    def devices(self, seeds: Sequence[int]) -> np.ndarray | None:
        """Return what identifies the clients' devices: speeds that the law draws, and its jitter; None without a clock.

        They are drawn from all of a client's examples; a run leaves out the held-out ones.
        """
        if self.law is None:
            return None
        drawn = [np.array([self.law.jitter])]
        for seed, part in zip(seeds, self.partitions):
            counts = part.label_counts(self.dataset.train_labels, self.dataset.num_classes)
            drawn += self.law.draw(np.random.default_rng(seed), Clients(part.sizes, counts))
        return np.concatenate([np.asarray(part, np.float32) for part in drawn])


def gather(experiment: Experiment, server_share: float, law: Law | None) -> Given:
    """Load an experiment's data, with the server's share of the training set, and partition it among the clients."""
    availability_trace = trace(experiment)
    dataset = load_data(experiment, server_share)
    dataset, parts, tests = partitioned(experiment, dataset)
    return Given(dataset=dataset, partitions=parts, availability_trace=availability_trace, law=law, client_tests=tests)


def partitioned(
    experiment: Experiment, dataset: Dataset
) -> tuple[Dataset, tuple[Partition, ...], tuple[ClientTests, ...] | None]:
    """Partition a data set by each seed, and set the clients' tests aside; None without any.

    With feature skew or label noise, the data set gets a changed copy of its training examples per data seed.
    """
    config, run, settings = experiment.config, experiment.config.run, experiment.config.partition
    seeds = run.seeds if run.data_seed is None else (run.data_seed,)
    parts = originals = [_whole_partition(experiment, dataset, seed) for seed in seeds]
    if settings.feature_skew != "none" or settings.label_noise:
        dataset, parts = client_skew.transformed(dataset, parts, seeds, settings.feature_skew)
    unseen = settings.num_clients - config.num_training_clients
    pairs = [
        partitions.split_tests(part, dataset, config.data.client_test, unseen, seed, original.indices)
        for part, original, seed in zip(parts, originals, seeds)
    ]
    parts, tests = zip(*pairs)
    if settings.label_noise:
        dataset = client_skew.mislabeled(dataset, parts, seeds, settings.label_noise, settings.noisy_clients)
    copies = len(run.seeds) // len(seeds)
    return dataset, parts * copies, None if tests[0] is None else tests * copies


def load_data(experiment: Experiment, share: float) -> Dataset:
    """Load the data set, and set the server's share of the training set aside."""
    config = experiment.config
    name, whole = config.data.dataset, experiment.dataset
    if whole is None and name in config.plugins():
        whole = checking.DATASETS.make(name, **dict(config.data.dataset_args))
    elif whole is None:
        whole = data.load(name, config.data.data_dir)
    if config.data.tuning_share:
        whole = whole.for_tuning(config.data.tuning_share)
        if not whole.num_test_examples:
            raise UserError(
                f"--tuning-share: {config.data.tuning_share:g} is less than one example; give a larger share"
            )
    if config.data.server_validation is None and whole.num_server_examples:
        return whole  # the user's own share
    dataset = whole.give_server(share, config.run.data_seed or 0)
    if share > 0 and not dataset.num_server_examples:
        raise UserError(
            f"--server-validation: {share:g} of {whole.num_train_examples:,} training examples is less than one "
            f"example; give at least {1 / whole.num_train_examples:.2g}"
        )
    return dataset


def trace(experiment: Experiment) -> np.ndarray | None:
    """Return the availability trace, bool [T or more, N]; None if availability is random."""
    config = experiment.config
    if experiment.available is not None:
        table, source = experiment.available, "table"
    elif config.selection.available_share is not None or config.selection.available in checking.MODES.names():
        return None
    else:
        table, source = load_availability(Path(config.selection.available)), config.selection.available
    (covered, clients), rounds, n = table.shape, config.run.rounds, config.num_training_clients
    if config.row_seconds:
        rounds = covered  # it starts again after its last column
    if clients != n or covered < rounds:
        raise UserError(
            f"--available: {source} covers {clients} clients and {covered} rounds, but the run has {n} clients and "
            f"{rounds} rounds; change --num-clients, --rounds, or the {'table' if source == 'table' else 'file'}"
        )
    if not table[:rounds].any():
        raise UserError(
            f"available: no client is available in any of the {rounds} rounds; mark available clients with 1"
        )
    return table


_SETTINGS = {
    "min_size": "min_client_size", "sizes": "client_sizes", "form": "dirichlet_form", "main": "skewness_main",
}  # fmt: skip
"""Option of a partition scheme -> its setting of another name."""


def _whole_partition(experiment: Experiment, dataset: Dataset, data_seed: int) -> Partition:
    config, settings = experiment.config, experiment.config.partition
    own = _plugin_function(config) if experiment.partition is None else experiment.partition
    if own is not None:
        return _own_partition(own, config, dataset, data_seed)
    scheme, values = settings.partition, {**vars(settings), "client_ids": dataset.client_ids}
    options = {name: values[_SETTINGS.get(name, name)] for name in schemes.TABLE[scheme].__kwdefaults__ or {}}
    try:
        part = partitions.make(scheme, dataset.train_labels, settings.num_clients, data_seed, **options)
    except UserError as error:
        fields = [field.name for field in dataclasses.fields(PartitionConfig) if only_with(field.name) is not None]
        names = ["num_clients", *(name for name in fields if config.has_effect(name) and name != "noisy_clients")]
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UserError(f"--partition {scheme}: {error} ({flags})") from error
    return part


def _plugin_function(config: Config) -> Deal | None:
    """Return a plug-in's partition function; None if the configuration names a scheme."""
    name = config.partition.partition
    if not plugins.is_plugin(name):
        return None
    made = checking.PARTITIONS.make(name, **dict(config.partition.partition_args))
    if not callable(made):
        raise UserError(
            f"--partition {name}: the factory returned a value of type {type(made).__name__}; return a function of "
            "data set, number of clients and seed"
        )
    return made


def _own_partition(own: Partition | Deal, config: Config, dataset: Dataset, seed: int) -> Partition:
    # Fixed positions are wrong if the strategy implicitly reserves a part of the training set for the server.
    counted = own.num_examples if isinstance(own, Partition) else None  # lists do not state the size of their data set
    fixed = isinstance(own, Partition | ByHand) and counted != dataset.num_train_examples
    if fixed and config.data.server_validation is None and dataset.num_server_examples:
        raise UserError(
            f"partition: {config.selection.algo.removeprefix(VALUE)} reserves {100 * SERVER_SHARE:g} % of the training "
            f"examples for the server, and positions refer to the rest; give server_validation={SERVER_SHARE} and "
            "such positions, or a function of the data set"
        )
    if isinstance(own, ByHand) and config.data.tuning_share:
        raise UserError(
            "partition: tuning_share takes examples away, and positions refer to the rest; give a Partition of the "
            "rest, or a function of the data set"
        )
    name = config.partition.partition.removeprefix(VALUE)
    try:
        made: Any = own if isinstance(own, Partition) else own(dataset, config.partition.num_clients, seed)
    except UserError:
        raise
    except RAISED_BY_PLUGINS as error:
        raise UserError(
            f"--partition {name}: dealing with seed {seed} raised {parsing.reason(error)}; fix the function"
        ) from error
    if isinstance(made, Sequence | np.ndarray):
        made = Partition.from_indices(list(made), dataset.num_train_examples)
    if not isinstance(made, Partition):
        raise UserError(
            f"partition: the function returned a value of type {type(made).__name__}; return a Partition, or a list of "
            "example positions per client"
        )
    if made.num_clients != config.partition.num_clients:
        raise UserError(
            f"partition: it has {made.num_clients} clients, but num_clients is {config.partition.num_clients}; make "
            "them equal"
        )
    if made.num_examples != dataset.num_train_examples:
        raise UserError(
            f"partition: it is for {made.num_examples:,} examples, but the clients share "
            f"{dataset.num_train_examples:,}; partition those"
        )
    if not made.sizes.min():
        raise UserError(
            f"partition: client {int(np.argmin(made.sizes))} has no example; assign at least one to each client, or "
            "use fewer clients"
        )
    return made


def choose(experiment: Experiment, dataset: Dataset) -> Model:
    """Return the experiment's model, built for the inputs of the data."""
    settings, inputs = experiment.config.model, shapes(dataset.train_images)
    if experiment.model is not None:
        return _processed(experiment.model.name, dataset, partial(experiment.model.build, inputs))
    if plugins.is_plugin(settings.model):
        made = models.blueprint_of(checking.MODELS.make(settings.model, **dict(settings.model_args)))
        if made is None:
            raise UserError(
                f"--model {settings.model}: the factory must return a flax.linen or NNX module, a Blueprint or a Model"
            )
        return _processed(made.name, dataset, partial(made.build, inputs))
    if not isinstance(inputs, jax.ShapeDtypeStruct):
        raise UserError(f"--model {settings.model}: {dataset.name} has several inputs per example; give your own model")
    # Without classes, a prediction has the size of one example's targets.
    leaves = examples.leaves(dataset.train_labels, "targets")
    outputs = dataset.num_classes or next(int(np.prod(array.shape[1:])) for _, array in leaves)
    if settings.model in models.PLAIN:
        usual = ModelConfig()
        for name in BUILTIN_MODEL_SETTINGS:
            if getattr(settings, name) != getattr(usual, name):
                raise UserError(
                    f"--{name.replace('_', '-')}: {settings.model!r} is a plain Flax module without this setting; give "
                    f"{getattr(usual, name)}, or give your own module"
                )
        if settings.model in models.OF_CHARACTERS and np.issubdtype(inputs.dtype, np.integer):
            outputs = _num_characters(settings.model, dataset)
        return models.make_plain(settings.model, inputs, outputs, every_position=not dataset.has_classes)
    return models.make(
        settings.model,
        inputs.shape[1:],
        outputs,
        settings.model_dropout,
        settings.initializer,
        settings.precision,
        hidden=settings.hidden_units,
    )


def _processed(name: str, dataset: Dataset, function: Callable[[], Any]) -> Any:
    """Build or call a model on the inputs of the data."""
    what = f"model {name}: cannot process inputs of shape {dataset.image_shape}"
    return _attempt(function, what, "choose another model or data set")


def _attempt(function: Callable[[], Any], what: str, remedy: str) -> Any:
    """Call a user's function; raise a UserError for any exception in it."""
    try:
        return function()
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what} ({parsing.reason(error)}); {remedy}") from error


def _num_characters(model: str, dataset: Dataset) -> int:
    """Return the number of characters that a model reads: the classes; for sequences as targets, at least LEAF's 80."""
    parts = (dataset.train_images, dataset.test_images, dataset.server_images)
    ends = [int(end(part)) for part in parts if len(part) for end in (np.min, np.max)]
    number = dataset.num_classes or max(models.CharLSTM.num_classes, *(end + 1 for end in ends))
    if wrong := [end for end in ends if not 0 <= end < number]:
        raise UserError(
            f"--model {model}: inputs of {dataset.name} contain {wrong[0]}, but the model reads characters 0 to "
            f"{number - 1}{', the number of classes' if dataset.has_classes else ''}; give your own model"
        )
    return number


def shapes(arrays: Any) -> Any:
    """Return the shapes [2, ...] of two examples as a model or a task sees them: pixels become float32."""

    def shape_of(array: Any) -> jax.ShapeDtypeStruct:
        pixels = array.dtype == np.uint8
        return jax.ShapeDtypeStruct((2, *array.shape[1:]), np.float32 if pixels else array.dtype)

    return examples.transform(shape_of, arrays)


_SEARCHED_TARGETS = 100  # searched for a target that differs from the first
_COPIES = 3  # copies of an example in a batch; differs from the other batch's size 2 to detect a division by it
_ROUNDING = 1e-2  # relative; the order of summation depends on the batch size


def check_task(task: Task, prediction: Any, targets: Any, train_targets: Any) -> None:
    """Check by shapes of two examples, then by values, that losses and measures are one independent number each."""
    _check_one_each(task, "losses", task.losses, (jnp.float32,), prediction, targets)
    names = [measure.name for measure in task.measures]
    if not names or "loss" in names or len(set(names)) < len(names):
        raise UserError(
            f"--task {task.name}: invalid names of measures ({', '.join(names) or 'none'}); give at least one measure, "
            "with distinct names other than loss"
        )
    for name, measure in zip(_measures(task), task.measures):
        _check_one_each(task, name, measure.of, (jnp.float32, jnp.bool_, jnp.int32), prediction, targets)
    _check_independent(task, prediction, _different_pair(targets, train_targets))


def evaluate(task: Task, what: str, function: Callable[[], Any]) -> Any:
    """Call a part of a task."""
    failed = f"--task {task.name}: {what} failed on the model's output"
    return _attempt(function, failed, "fix it, or choose another task or model")


def _measures(task: Task) -> list[str]:
    return [f"measure {measure.name!r}" for measure in task.measures]


def _check_one_each(
    task: Task, what: str, part: Callable[..., Any], dtypes: tuple[Any, ...], prediction: Any, targets: Any
) -> None:
    found = evaluate(task, what, partial(jax.eval_shape, part, prediction, targets))
    if not isinstance(found, jax.ShapeDtypeStruct) or found.shape != (2,) or found.dtype not in dtypes:
        shape = f"{found.dtype} {found.shape}" if hasattr(found, "shape") else type(found).__name__
        raise UserError(
            f"--task {task.name}: {what} returns {shape} for two examples, not one float32 number each; do not "
            "average over the batch"
        )


def _check_independent(task: Task, prediction: Any, targets: Any) -> None:
    """Check that each example's values are independent of the rest of the batch.

    Shapes alone cannot show this: [B, 1] against [B] broadcasts to [B, B], whose mean over an axis is [B] again.
    """
    draws = np.random.default_rng(0)
    # Values in (0, 1) are valid as logits, rates and probabilities.
    predictions = jax.tree.map(lambda leaf: draws.uniform(0.1, 0.9, leaf.shape).astype(leaf.dtype), prediction)
    parts = (task.losses, *(measure.of for measure in task.measures))
    with jax.default_device(jax_settings.cpu()):
        values_of = partial(_in_pair_and_alone, parts, predictions, targets)
        found = evaluate(task, "losses or measures", lambda: jax.device_get(values_of()))
    for what, in_pair, alone in zip(("losses", *_measures(task)), *found):
        differ = ~np.isclose(in_pair, alone, rtol=_ROUNDING, atol=_ROUNDING**2, equal_nan=True)
        if differ.any():
            values = f"{in_pair[differ][0]:.4g} beside another example, {alone[differ][0]:.4g} beside copies of itself"
            raise UserError(
                f"--task {task.name}: {what} of an example depends on the rest of the batch ({values}); remove "
                "operations across the batch, such as broadcasting predictions [B, 1] against targets [B]"
            )


@partial(jax.jit, static_argnums=0)
def _in_pair_and_alone(parts: tuple[Callable[..., Any], ...], predictions: Any, targets: Any) -> tuple[Any, Any]:
    """Return each part's values of two examples in one batch, and of each in a batch of its copies, [2] each."""

    def values_of(predictions: Any, targets: Any) -> list[jax.Array]:
        return [part(predictions, targets).astype(jnp.float32) for part in parts]

    copies = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], _COPIES, axis=1), (predictions, targets))
    return values_of(predictions, targets), [values[:, 0] for values in jax.vmap(values_of)(*copies)]


def _different_pair(shapes: Any, targets: Any) -> Any:
    """Return two targets with the dtypes of `shapes`, different ones if a short search finds some."""
    number = examples.num_examples(targets)
    places = np.linspace(0, number - 1, min(number, _SEARCHED_TARGETS)).astype(int)
    some = examples.take(targets, places)
    others = [(array != array[:1]).reshape(len(array), -1).any(axis=1) for _, array in examples.leaves(some)]
    pair = examples.take(some, np.array([0, int(np.logical_or.reduce(others).argmax())]))
    return examples.transform(lambda array, like: array.astype(like.dtype), pair, shapes)


def check_compatibility(config: Config, dataset: Dataset, model: Model, task: Task, strategy: Strategy) -> None:
    """Check that model, task, strategy and data are compatible."""
    inputs, targets = shapes(dataset.train_images), shapes(dataset.train_labels)

    def predict() -> Any:
        weights = jax.eval_shape(model.init, jax_settings.key(0))
        return jax.eval_shape(lambda w, x: model.apply(w, x, None), weights, inputs).prediction

    prediction = _processed(model.name, dataset, predict)
    if task.of_classes and not dataset.has_classes:
        raise UserError(
            f"--task {task.name}: targets of {dataset.name} are not one class per example; give integer targets [n], "
            f"or choose another --task: {', '.join(tasks.TABLE)}, or your own tasks.Task"
        )
    complaint = evaluate(task, "complaint", lambda: task.complaint(prediction, targets, dataset.num_classes or None))
    of_server = [dataset.server_labels] if dataset.num_server_examples else []
    for labels in (dataset.train_labels, dataset.test_labels, *of_server):
        own = partial(task.complaint_of_values, prediction, labels)
        complaint = complaint or evaluate(task, "complaint_of_values", own)
    if complaint is not None:
        raise UserError(f"--task {task.name}: it {complaint}; choose another task, model or data set")
    check_task(task, prediction, targets, dataset.train_labels)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Given):
    """An experiment's parts, built and checked."""

    config: Config
    model: Model
    task: Task
    strategy: Strategy
    optimizers: Optimizers
    mode: Mode | None = None  # mode of availability; None for a fraction, a file or a table


def pose(experiment_or_config: Experiment | Config) -> Problem:
    """Check an experiment, load its data, partition it among the clients, and build the model.

    Raises:
        UserError: a setting is invalid, or the parts are incompatible.
    """
    experiment = experiment_of(experiment_or_config)
    config = experiment.config
    strategy, optimizers, task, law, mode = check(experiment)
    given = gather(experiment, server_validation(config, strategy), law)
    dataset = given.dataset
    largest = max(int(part.sizes.max()) for part in given.partitions)
    usable = largest - partitions.holdout_size(largest, config.data.holdout)
    if not config.training.full_batch and config.training.batch_size > usable:
        raise UserError(
            f"--batch-size: {config.training.batch_size} exceeds the {usable} training examples of the largest client; "
            f"choose at most {usable}, fewer --num-clients, or --full-batch"
        )
    model = choose(experiment, dataset)
    check_compatibility(config, dataset, model, task, strategy)
    if config.training.private_training is not None and model.num_carried:
        raise UserError(
            f"--private-training: {model.name} has untrained state such as batch statistics, which its noise does not "
            "protect; choose a model without it, e.g. with group normalization"
        )
    if mode is not None and mode.needs_classes and not dataset.has_classes:
        raise UserError(
            f"--available {mode.name}: it depends on labels, but {dataset.name} has no classes; choose another mode"
        )
    parts = {"model": model, "task": task, "strategy": strategy, "optimizers": optimizers, "mode": mode}
    return Problem(**vars(given), config=config, **parts)
