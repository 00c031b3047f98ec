"""The fields of a configuration, one dataclass per concern: default, help text, and condition of each field."""

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fedjax_sel.core.parsing import MOST_SEEDS

VALUE = "value:"
"""Prefix of a field's text if the field was set to a Python value, which has no text form."""


def is_value(text: str) -> bool:
    """Return whether a field's text is the placeholder of a Python value."""
    return text.startswith(VALUE)


class OnlyWith(NamedTuple):
    """The condition under which a field has an effect."""

    words: str  # the required flags, for messages
    holds: Callable[[Any], bool]  # the condition, a function of a Config


class Range(NamedTuple):
    """The valid values of a field, apart from None."""

    holds: Callable[[Any], bool]
    words: str  # end of the message for other values


def _setting(default: Any, help: str, *ranges: Range, only_with: OnlyWith | None = None) -> Any:
    """Make a field with its help text, its ranges and its condition."""
    return dataclasses.field(default=default, metadata={"help": help, "ranges": ranges, "only_with": only_with})


def _bounds(epochs: int | str) -> tuple[int, int]:
    """Return the minimum and the maximum of a value of `local_epochs`."""
    low, _, high = str(epochs).partition(":")
    return int(low), int(high or low)


def _fraction(available: str) -> float | None:
    """Return a value of `available` as a fraction; None if it names a file or a Python value."""
    try:
        return float(available)
    except ValueError:
        return None


_COUNT = Range(lambda value: value >= 1, "is below 1; give a positive integer")
_POSITIVE = Range(lambda value: 0 < value < float("inf"), "is not a positive number")
_FRACTION = Range(lambda value: 0 <= value < 1, "is outside 0 (included) to 1 (excluded)")
_BELOW_1 = Range(lambda value: value <= 1 - 2.0**-24, "is 1 in float32, which runs use; give a smaller value")
_STEPS = Range(lambda steps: 1 <= steps <= 100_000, "is not a whole number from 1 to 100000")
_EPOCHS = Range(
    lambda epochs: _bounds(epochs)[0] >= 1 and _bounds(epochs)[1] <= 10_000,
    "is not a whole number from 1 to 10000, or a range of them such as 1:5",
)
_ROUNDS_IN_ORDER = Range(
    lambda rounds: all(1 <= one < 2**31 for one in rounds) and list(rounds) == sorted(set(rounds)),
    "is not a list of rounds from 1 to 2147483647 in increasing order, such as 150 300",
)
_AVAILABLE = (
    Range(lambda text: (share := _fraction(text)) is None or 0 < share <= 1, "is outside 0 (excluded) to 1 (included)"),
    Range(
        lambda text: _fraction(text) is not None or is_value(text) or text.endswith((".csv", ".npy", ".txt")),
        "is neither a fraction such as 0.5 nor a .csv, .txt or .npy file",
    ),
)
_SEED = Range(lambda seed: seed >= 0, "is outside 0 to 2147483647")  # `validate` rejects all integers above 32 bits
_SEEDS = (
    Range(lambda seeds: len(seeds) <= MOST_SEEDS, f"exceed the maximum of {MOST_SEEDS} seeds; give fewer"),
    Range(lambda seeds: len(seeds) > 0, "is empty; give a count such as 5"),
    Range(lambda seeds: all(0 <= seed < 2**31 for seed in seeds), "has a seed outside 0 to 2147483647"),
)
_NAMED = Range(lambda path: path != "", "is empty; name a folder, or remove the flag")
_EXPANDED = Range(
    lambda path: not path.startswith("~"), "starts with ~, which the shell did not expand; write the full path"
)


def _not_negative(advice: str) -> Range:
    return Range(lambda value: value >= 0, f"is negative; {advice}")


def _partition(*schemes: str) -> OnlyWith:
    return OnlyWith(f"--partition {' or '.join(schemes)}", lambda config: config.partition.partition in schemes)


_ON_DISK = OnlyWith(
    "a --dataset other than digits, synthetic or a plug-in",
    lambda config: (
        config.data.dataset.partition(":")[0] not in ("digits", "synthetic")
        and config.data.dataset not in config.plugins()
    ),
)
_HELD_OUT = OnlyWith("--holdout", lambda config: config.data.holdout > 0)
_UNEVEN = OnlyWith(
    "--partition dirichlet_qp, natural, or dirichlet with --dirichlet-form yurochkin",
    lambda config: (
        config.partition.partition in ("dirichlet_qp", "natural")
        or (config.partition.partition == "dirichlet" and config.partition.dirichlet_form == "yurochkin")
    ),
)
_BUILT_IN = OnlyWith("a built-in --model", lambda config: ":" not in config.model.model)
_BATCHES = OnlyWith("--no-full-batch", lambda config: not config.training.full_batch)
_MILESTONES = OnlyWith("--learning-rate-milestones", lambda config: bool(config.training.learning_rate_milestones))
_CLIENT_STATE = OnlyWith(
    "--momentum above 0 or a --client-optimizer other than sgd",
    lambda config: config.training.momentum > 0 or config.training.client_optimizer != "sgd",
)
_CHECKPOINTS = OnlyWith("--keep above 0", lambda config: config.run.keep > 0)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Data set and held-out examples."""

    dataset: str = _setting(
        "digits",
        "data set: digits, synthetic, mnist, fashion_mnist, cifar10, cifar100, leaf:FOLDER, any prepared TFDS data "
        "set, or mypackage.module:factory",
    )
    dataset_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --dataset mypackage.module:factory")
    data_dir: str | None = _setting(
        None, "folder with prepared data (default: TFDS_DATA_DIR, the cache, or a download)", _NAMED, only_with=_ON_DISK
    )
    holdout: float = _setting(
        0.0,
        "fraction of each client's examples held out from training, for its losses (FedCor's code uses 0.2)",
        _FRACTION,
        _BELOW_1,
    )
    loss_on: Literal["train", "holdout", "all"] = _setting(
        "train", "client examples on which reported losses are computed", only_with=_HELD_OUT
    )
    server_validation: float | None = _setting(
        None, "fraction of the training set reserved for the server (default: 0.05 if the strategy needs it)", _FRACTION
    )


@dataclasses.dataclass(frozen=True)
class PartitionConfig:
    """Distribution of the examples over clients."""

    partition: Literal["shards", "dirichlet_qp", "skewness", "dirichlet", "iid", "natural"] = _setting(
        "shards", "scheme that assigns examples to clients; or mypackage.module:factory"
    )
    partition_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --partition mypackage.module:factory")
    num_clients: int = _setting(50, "N, number of clients in the federation", _COUNT)
    shards_per_client: int = _setting(
        1, "label-sorted shards per client (1SPC, 2SPC)", _COUNT, only_with=_partition("shards")
    )
    alpha: float = _setting(
        0.2,
        "Dirichlet concentration; dirichlet_qp: Dir(alpha * label frequencies), dirichlet: Dir(alpha) per class",
        _POSITIVE,
        only_with=_partition("dirichlet_qp", "dirichlet"),
    )
    skewness: Literal["1", "0.8", "0.5", "H"] = _setting(
        "1",
        "fraction of a client's examples with its main label; H: two labels per client",
        only_with=_partition("skewness"),
    )
    skewness_main: Literal["balanced", "random"] = _setting(
        "balanced", "assignment of main labels to clients", only_with=_partition("skewness")
    )
    min_client_size: int = _setting(5, "minimum number of examples per client", _COUNT, only_with=_UNEVEN)
    dirichlet_form: Literal["hsu", "yurochkin"] = _setting(
        "hsu",
        "hsu: class proportions are drawn per client, sizes equal; yurochkin: client proportions are drawn per class",
        only_with=_partition("dirichlet"),
    )


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Model, task and arithmetic."""

    model: Literal["mlp", "cnn", "cnn_small", "logistic", "lenet", "resnet8", "resnet18", "char_lstm"] = _setting(
        "mlp", "neural network; or mypackage.module:factory"
    )
    task: str = _setting(
        "classification",
        "learning task: classification, multilabel, regression, next_token, or mypackage.module:factory",
    )
    model_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --model mypackage.module:factory")
    task_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --task mypackage.module:factory")
    model_dropout: float = _setting(
        0.0, "dropout rate of hidden units during training", _FRACTION, _BELOW_1, only_with=_BUILT_IN
    )
    initializer: Literal["pytorch", "kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal"] = _setting(
        "pytorch", "weight initialization", only_with=_BUILT_IN
    )
    precision: Literal["float32", "tf32", "bfloat16"] = _setting(
        "float32",
        "precision of the model's matrix products (selection uses float32); tf32: GPUs and TPUs only",
        only_with=_BUILT_IN,
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Local training on clients, and aggregation on the server."""

    local_steps: int | None = _setting(None, "SGD steps per client and round; alternative to --local-epochs", _STEPS)
    local_epochs: int | str | None = _setting(
        5,
        "local epochs per client and round; alternative to --local-steps; 1:5 draws a number from 1 to 5 for each "
        "client and round",
        _EPOCHS,
    )
    full_batch: bool = _setting(False, "use all of a client's examples in every step (FL-DP3S Eq. 3-5)")
    batch_size: int = _setting(
        10, "examples per step; clients with fewer examples use all of them", _COUNT, only_with=_BATCHES
    )
    learning_rate: float = _setting(0.05, "learning rate of the clients", _POSITIVE)
    learning_rate_milestones: tuple[int, ...] = _setting(
        (), "rounds at which the learning rate decays", _ROUNDS_IN_ORDER
    )
    learning_rate_decay: float = _setting(
        0.5, "factor on the learning rate at each milestone", _POSITIVE, only_with=_MILESTONES
    )
    momentum: float = _setting(0.0, "momentum of the clients' SGD", _FRACTION, _BELOW_1)
    momentum_buffer: Literal["reset", "persistent"] = _setting(
        "reset",
        "reset: the client optimizer's state is zeroed every round; persistent: it is kept until the client trains "
        "again (GPFL Eq. 1)",
        only_with=_CLIENT_STATE,
    )
    weight_decay: float = _setting(
        0.0,
        "L2 coefficient added to the gradient, biases included",
        Range(lambda value: 0 <= value < float("inf"), "is negative or infinite; give 0 or more"),
    )
    aggregation: Literal["uniform", "samples", "global-samples", "unbiased"] = _setting(
        "uniform",
        "weights of the cohort's models; uniform: 1/K; samples: n_k / n of the cohort; global-samples: n_k / n of all "
        "clients, the remainder on the old model; unbiased: n_k / n of all clients, divided by the probability that k "
        "is selected and reports",
    )
    optimizer: str = _setting(
        "fedavg",
        "federated optimizer: fedavg, fedprox, fednova, scaffold, fedavgm, fedadagrad, fedadam, fedyogi (see --list)",
    )
    optimizer_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --optimizer, e.g. mu=0.01")
    client_optimizer: str = _setting("sgd", "optimizer of the clients: sgd, or any Optax optimizer by name, e.g. adam")
    client_optimizer_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --client-optimizer, e.g. b1=0.8")
    server_optimizer: str | None = _setting(
        None, "optimizer of the server: any Optax optimizer by name (default: the federated optimizer's own)"
    )
    server_optimizer_args: tuple[tuple[str, Any], ...] = _setting(
        (), "parameters of --server-optimizer, e.g. momentum=0.9"
    )
    server_learning_rate: float | None = _setting(
        None,
        "learning rate of the server's step on the averaged update (default: 1; adaptive optimizers: 0.01)",
        _POSITIVE,
    )

    @property
    def epochs(self) -> tuple[int, int] | None:
        """Minimum and maximum number of local epochs per round; None if local work is given in steps."""
        return None if self.local_epochs is None else _bounds(self.local_epochs)


@dataclasses.dataclass(frozen=True)
class SelectionConfig:
    """Client selection and availability."""

    algo: str = _setting("fl_dp3s", "selection strategy; list them with fedjax-sel list strategies")
    algo_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --algo, key=value")
    num_selected: int = _setting(10, "K, number of clients that train per round", _COUNT)
    available: str = _setting(
        "1",
        "available clients: a fraction of all clients, redrawn each round, or a file of 0 and 1, clients x rounds; "
        "FedCor degrades below 1 (results/absence)",
        *_AVAILABLE,
    )
    report_failure_rate: float = _setting(0.0, "fraction of selected clients whose report is lost", _FRACTION, _BELOW_1)

    @property
    def available_share(self) -> float | None:
        """Fraction of clients available in each round; None if a file lists them."""
        return _fraction(self.available)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Duration, seeds, devices and output."""

    rounds: int = _setting(100, "number of training rounds", _COUNT)
    seeds: tuple[int, ...] = _setting(
        (0,), "replicates, run together: a count (5 means 0 1 2 3 4) or a list of seeds", *_SEEDS
    )
    data_seed: int | None = _setting(
        None, "seed of a partition shared by all replicates (default: one per replicate)", _SEED
    )
    model_seed: int | None = _setting(
        None, "seed of an initial model shared by all replicates (default: one per replicate)", _SEED
    )
    selection_seed: int | None = _setting(
        None, "seed of selection draws shared by all replicates (default: one per replicate)", _SEED
    )
    training_seed: int | None = _setting(
        None, "seed of shuffles and dropout shared by all replicates (default: one per replicate)", _SEED
    )
    target_accuracy: float | None = _setting(
        None,
        "test accuracy for the count of rounds to target, e.g. 0.62",
        Range(lambda value: value > 0, "is not positive"),
    )
    eval_every: int = _setting(
        1, "rounds between evaluations on the test set; the last round is always evaluated", _COUNT
    )
    train_metrics_every: int = _setting(
        0, "rounds between evaluations on all clients' training data; 0: never", _not_negative("give 0 for never")
    )
    chunk: int = _setting(10, "rounds per call of the compiled program; the host reads results in between", _COUNT)
    cohort_batch: int | None = _setting(
        None,
        "clients trained at once per device; 0: all, in one vmap (default: the largest number that fits in cache)",
        _not_negative("give 0 for all clients at once"),
    )
    host_images: bool | None = _setting(
        None, "keep training images in host memory and transfer each batch (default: if device memory is too small)"
    )
    host_client_state: bool | None = _setting(
        None,
        "keep per-client state (SCAFFOLD's control variates, persistent momentum) in host memory and transfer the "
        "cohort's (default: if device memory is too small)",
    )
    seeds_at_once: int | None = _setting(
        None,
        "seeds on the devices at once; other seeds run afterwards (default: the largest number that fits in memory)",
    )
    mesh: str | None = _setting(
        None,
        "device mesh seeds=A,clients=B: A groups of seeds, and B devices that share each group's clients (default: "
        "chosen automatically)",
    )
    checkpoint_every: int | None = _setting(
        None,
        "rounds between checkpoints, in addition to --checkpoint-seconds",
        Range(lambda rounds: rounds >= 1, "is below 1; remove it to save by time only"),
        only_with=_CHECKPOINTS,
    )
    checkpoint_seconds: float = _setting(
        30.0,
        "seconds between checkpoints; the end of a run is always saved",
        Range(lambda seconds: seconds > 0, "is not a positive number"),
        only_with=_CHECKPOINTS,
    )
    keep: int = _setting(
        2, "number of checkpoints kept in the run folder; 0: save none", _not_negative("give 0 to save no checkpoints")
    )
    resume: Literal["auto", "never", "must"] = _setting(
        "auto",
        "unfinished run in the folder; auto: resume it if present; never: set it aside and start again; must: resume "
        "it, or fail if it does not exist",
    )
    deterministic: bool = _setting(False, "make GPU runs repeatable to the bit, at the price of some slower operations")
    distributed: bool = _setting(False, "share the work with other machines, each started with the same command")
    on_nonfinite: Literal["stop", "skip"] = _setting(
        "stop", "reaction to a client's update with NaN or infinity; stop: end the run; skip: drop the update"
    )
    out: str | None = _setting(None, "run folder (default: a new folder in runs/)", _NAMED, _EXPANDED)


CONCERNS = {
    "data": DataConfig,
    "partition": PartitionConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "selection": SelectionConfig,
    "run": RunConfig,
}

VALUES = ("dataset", "partition", "model", "task", "algo", "optimizer", "available")
"""Fields that name a part of an experiment; `Experiment.of` also accepts a Python value for each."""
OPEN = ("model", "partition")  # fields of a Literal type that also accept `mypackage.module:factory`

PAIRS = tuple(  # fields of key=value pairs
    field.name for kind in CONCERNS.values() for field in dataclasses.fields(kind) if field.name.endswith("_args")
)

# Fields that may change when a run is resumed. `on_nonfinite` has no effect until an update is not finite; a run with
# `stop` rejects earlier rounds that skipped an update (runs/records.py).
NOT_OF_THE_TRAJECTORY = {
    "checkpoint_every", "checkpoint_seconds", "data_dir", "deterministic", "distributed", "host_client_state",
    "host_images", "keep", "mesh", "on_nonfinite",
    "out", "resume", "rounds", "seeds_at_once", "target_accuracy",
}  # fmt: skip


def concerns() -> dict[str, type]:
    """Return the concerns of a configuration: name -> dataclass."""
    return dict(CONCERNS)


def concern_of(name: str) -> str:
    """Return the concern of a flat name."""
    return next(key for key, kind in CONCERNS.items() if name in {field.name for field in dataclasses.fields(kind)})


def fields() -> dict[str, dataclasses.Field]:
    """Return every field by flat name."""
    return {field.name: field for kind in CONCERNS.values() for field in dataclasses.fields(kind)}


def only_with(name: str) -> OnlyWith | None:
    """Return the condition under which a field has an effect; None if it always has one."""
    return fields()[name].metadata["only_with"]


def flat_types() -> dict[str, Any]:
    """Return the type of every field by flat name."""
    return {name: hint for kind in CONCERNS.values() for name, hint in typing.get_type_hints(kind).items()}
