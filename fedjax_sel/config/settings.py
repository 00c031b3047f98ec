"""The fields of a configuration, one dataclass a concern: default, help text, and what each is of no effect without."""

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

VALUE = "value:"
"""How the text of a field begins where Python gave a value, which no text can say."""


def is_value(text: str) -> bool:
    """Return whether the text of a field stands for a value."""
    return text.startswith(VALUE)


class OnlyWith(NamedTuple):
    """When a field has an effect at all."""

    words: str  # the flags that it needs
    holds: Callable[[Any], bool]  # of a Config


def _setting(default: Any, help: str, only_with: OnlyWith | None = None) -> Any:
    """Make a field with its help text, and what it is of no effect without."""
    return dataclasses.field(default=default, metadata={"help": help, "only_with": only_with})


def _partition(*schemes: str) -> OnlyWith:
    return OnlyWith(f"--partition {' or '.join(schemes)}", lambda config: config.partition.partition in schemes)


_ON_DISK = OnlyWith(
    "a --dataset other than digits, synthetic and your own",
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
_OURS = OnlyWith("a --model of this package", lambda config: ":" not in config.model.model)
_BATCHES = OnlyWith("--no-full-batch", lambda config: not config.training.full_batch)
_MILESTONES = OnlyWith("--learning-rate-milestones", lambda config: bool(config.training.learning_rate_milestones))
_CLIENT_STATE = OnlyWith(
    "--momentum above 0, or another --client-optimizer than sgd",
    lambda config: config.training.momentum > 0 or config.training.client_optimizer != "sgd",
)
_CHECKPOINTS = OnlyWith("--keep above 0", lambda config: config.run.keep > 0)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which images, and which of a client's are kept for its losses."""

    dataset: str = _setting(
        "digits",
        "data set: digits, synthetic, mnist, fashion_mnist, cifar10, cifar100, leaf:FOLDER, any prepared TFDS set, or "
        "mypackage.module:factory",
    )
    dataset_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --dataset mypackage.module:factory")
    data_dir: str | None = _setting(
        None, "folder of prepared data (else TFDS_DATA_DIR, the cache, or a download)", _ON_DISK
    )
    holdout: float = _setting(
        0.0, "share of each client's data kept from training, for its losses (FedCor's code: 0.2)"
    )
    loss_on: Literal["train", "holdout", "all"] = _setting(
        "train", "which of its data a client's reported loss is on", _HELD_OUT
    )
    server_validation: float | None = _setting(
        None, "share of the training set that the server keeps for itself (default: 0.05 if the strategy needs it)"
    )


@dataclasses.dataclass(frozen=True)
class PartitionConfig:
    """Who holds what."""

    partition: Literal["shards", "dirichlet_qp", "skewness", "dirichlet", "iid", "natural"] = _setting(
        "shards", "how examples are dealt to clients; or mypackage.module:factory"
    )
    partition_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --partition mypackage.module:factory")
    num_clients: int = _setting(50, "N, clients in the federation")
    shards_per_client: int = _setting(1, "label-sorted pieces a client (1SPC, 2SPC)", _partition("shards"))
    alpha: float = _setting(
        0.2,
        "dirichlet_qp: Dir(alpha * label frequencies); dirichlet: Dir(alpha) per class",
        _partition("dirichlet_qp", "dirichlet"),
    )
    skewness: Literal["1", "0.8", "0.5", "H"] = _setting(
        "1", "share of a client's main label; H: two labels", _partition("skewness")
    )
    skewness_main: Literal["balanced", "random"] = _setting(
        "balanced", "how main labels are given out", _partition("skewness")
    )
    min_client_size: int = _setting(5, "the fewest examples a client may get", _UNEVEN)
    dirichlet_form: Literal["hsu", "yurochkin"] = _setting(
        "hsu",
        "classes for each client, equal sizes (hsu), or clients for each class (yurochkin)",
        _partition("dirichlet"),
    )


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    model: Literal["mlp", "cnn", "cnn_small", "logistic", "lenet", "resnet8", "resnet18", "char_lstm"] = _setting(
        "mlp", "network; or mypackage.module:factory"
    )
    task: str = _setting(
        "classification",
        "what is trained: classification, multilabel, regression, next_token, or mypackage.module:factory",
    )
    model_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --model mypackage.module:factory")
    task_args: tuple[tuple[str, Any], ...] = _setting((), "parameters of --task mypackage.module:factory")
    model_dropout: float = _setting(0.0, "probability that a hidden unit is dropped in training", _OURS)
    initializer: Literal["pytorch", "kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal"] = _setting(
        "pytorch", "initial weights", _OURS
    )
    precision: Literal["float32", "tf32", "bfloat16"] = _setting(
        "float32", "what the model is multiplied in (selection always in float32); tf32: GPUs and TPUs alone", _OURS
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """What a client of the cohort does with the model, and the server with the results."""

    local_steps: int | None = _setting(None, "SGD steps a client takes a round (this or --local-epochs)")
    local_epochs: int | str | None = _setting(
        5, "passes of a client over its data a round (this or --local-steps); 1:5 draws each client's, each round"
    )
    full_batch: bool = _setting(False, "every step takes all data of the client (FL-DP3S Eq. 3-5)")
    batch_size: int = _setting(10, "examples a step; a smaller client uses all it has", _BATCHES)
    learning_rate: float = _setting(0.05, "of the clients")
    learning_rate_milestones: tuple[int, ...] = _setting((), "rounds from which the learning rate is decayed once more")
    learning_rate_decay: float = _setting(0.5, "factor at each milestone", _MILESTONES)
    momentum: float = _setting(0.0, "of the clients' SGD")
    momentum_buffer: Literal["reset", "persistent"] = _setting(
        "reset",
        "a client's momentum, or its optimizer's state, starts anew every round, or goes on from when it last trained "
        "(GPFL Eq. 1)",
        _CLIENT_STATE,
    )
    weight_decay: float = _setting(0.0, "added to the gradient, biases included")
    aggregation: Literal["uniform", "samples", "global-samples", "unbiased"] = _setting(
        "uniform",
        "weights of the cohort's models: 1/K; n_k / sum n of the cohort; n_k / sum n of all, the rest for the old "
        "model; or n_k / sum n of all over how often k is expected to be selected and heard of",
    )
    optimizer: str = _setting(
        "fedavg",
        "federated optimizer: fedavg, fedprox, fednova, scaffold, fedavgm, fedadagrad, fedadam, fedyogi (see --list)",
    )
    optimizer_args: tuple[tuple[str, Any], ...] = _setting((), "its parameters, e.g. mu=0.01")
    client_optimizer: str = _setting("sgd", "of the clients: sgd, or any of Optax by name, e.g. adam")
    client_optimizer_args: tuple[tuple[str, Any], ...] = _setting((), "its parameters, e.g. b1=0.8")
    server_optimizer: str | None = _setting(None, "instead of the federated optimizer's own: any of Optax by name")
    server_optimizer_args: tuple[tuple[str, Any], ...] = _setting((), "its parameters, e.g. momentum=0.9")
    server_learning_rate: float | None = _setting(
        None, "of the server's step on the averaged update (default: 1, the average itself; adaptive optimizers 0.01)"
    )

    @property
    def epochs(self) -> tuple[int, int] | None:
        """The fewest and the most passes over a client's data in a round; None where local work is counted in steps."""
        if self.local_epochs is None:
            return None
        low, _, high = str(self.local_epochs).partition(":")
        return int(low), int(high or low)


@dataclasses.dataclass(frozen=True)
class SelectionConfig:
    """Which clients train."""

    algo: str = _setting("fl_dp3s", "selection strategy (--list shows them)")
    algo_args: tuple[tuple[str, Any], ...] = _setting((), "its parameters, key=value")
    num_selected: int = _setting(10, "K, clients trained a round")
    available: str = _setting(
        "1",
        "who can be reached: a share of the clients, drawn anew each round, or a file of 0 and 1, clients x rounds; "
        "FedCor suffers from it (results/absence)",
    )
    report_failure_rate: float = _setting(0.0, "share of the selected clients whose training never reaches the server")

    @property
    def available_share(self) -> float | None:
        """The share of the clients that can be reached in each round; None where a file says who."""
        try:
            return float(self.available)
        except ValueError:
            return None


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """How long, how often, and where to."""

    rounds: int = _setting(100, "rounds of training")
    seeds: tuple[int, ...] = _setting((0,), "replicates, all at once: a count (5 means 0 1 2 3 4), or several seeds")
    data_seed: int | None = _setting(None, "one partition for all replicates (else each its own)")
    model_seed: int | None = _setting(None, "one initial model for all replicates")
    selection_seed: int | None = _setting(None, "one stream of selection for all replicates")
    training_seed: int | None = _setting(None, "one stream of shuffles and dropout for all replicates")
    target_accuracy: float | None = _setting(None, "test accuracy to count rounds to, e.g. 0.62")
    eval_every: int = _setting(1, "rounds between evaluations on the test set (the last round always is)")
    train_metrics_every: int = _setting(0, "rounds between evaluations on all clients' training data; 0: never")
    chunk: int = _setting(10, "rounds a program runs before the host looks")
    cohort_batch: int | None = _setting(
        None, "clients a device trains at once; 0: all, as one vmap; default: as many as its cache holds"
    )
    host_images: bool | None = _setting(
        None, "keep training images in host memory and send each batch (default: if devices cannot hold them)"
    )
    host_client_state: bool | None = _setting(
        None,
        "keep what is kept of each client (SCAFFOLD's variates, momentum that goes on) in host memory and send the "
        "cohort's (default: if devices cannot hold it)",
    )
    seeds_at_once: int | None = _setting(
        None, "seeds that are on the devices together, others take turns (default: as many as memory holds)"
    )
    mesh: str | None = _setting(
        None, "devices as seeds=A,clients=B: A groups of seeds, whose clients B devices share (default: chosen)"
    )
    checkpoint_every: int | None = _setting(
        None, "save the state after so many rounds, if that comes first", _CHECKPOINTS
    )
    checkpoint_seconds: float = _setting(30.0, "save the state after so many seconds; always at the end", _CHECKPOINTS)
    keep: int = _setting(2, "checkpoints that stay in the run folder; 0: save none")
    resume: Literal["auto", "never", "must"] = _setting(
        "auto", "an unfinished run in the folder: go on if there is one, set it aside and start again, or insist on one"
    )
    deterministic: bool = _setting(
        False, "on a GPU: repeat runs to the bit, with slower operations where it takes them"
    )
    distributed: bool = _setting(False, "share the work with other machines, each started with the same command")
    on_nonfinite: Literal["stop", "skip"] = _setting(
        "stop", "a client's update with NaN or infinity: stop, or leave it out"
    )
    out: str | None = _setting(None, "run folder (default runs/...)")


CONCERNS = {
    "data": DataConfig,
    "partition": PartitionConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "selection": SelectionConfig,
    "run": RunConfig,
}

VALUES = ("dataset", "partition", "model", "task", "algo", "optimizer", "available")
"""Fields that name a part of an experiment, in whose place `Experiment.of` takes a value."""
OPEN = ("model", "partition")  # fields that take `mypackage.module:factory` beside the names that are listed

PAIRS = tuple(  # fields of key=value
    field.name for kind in CONCERNS.values() for field in dataclasses.fields(kind) if field.name.endswith("_args")
)

# May differ between a run and the one that goes on with it. Until some update is not finite, `on_nonfinite` changes
# nothing; rounds that left one out are refused where a run is to stop at it (runs/verdict.py).
NOT_OF_THE_TRAJECTORY = {
    "checkpoint_every", "checkpoint_seconds", "data_dir", "deterministic", "distributed", "host_client_state",
    "host_images", "keep", "mesh", "on_nonfinite",
    "out", "resume", "rounds", "seeds_at_once", "target_accuracy",
}  # fmt: skip


def concerns() -> dict[str, type]:
    """Return the parts of a configuration: name -> dataclass."""
    return dict(CONCERNS)


def concern_of(name: str) -> str:
    """Return the part of a configuration that holds a flat name."""
    return next(key for key, kind in CONCERNS.items() if name in {field.name for field in dataclasses.fields(kind)})


def fields() -> dict[str, dataclasses.Field]:
    """Return every field by flat name."""
    return {field.name: field for kind in CONCERNS.values() for field in dataclasses.fields(kind)}


def only_with(name: str) -> OnlyWith | None:
    """Return what a field is of no effect without, by flat name; None where it always has one."""
    return fields()[name].metadata["only_with"]


def flat_types() -> dict[str, Any]:
    """Return the type of every field by flat name."""
    return {name: hint for kind in CONCERNS.values() for name, hint in typing.get_type_hints(kind).items()}
