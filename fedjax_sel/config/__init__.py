"""Configurations: fields by concern, conversion of values, files, and rules between fields."""

import dataclasses
import functools
import hashlib
import json
import math
import numbers
import os
import re
import tomllib
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from fedjax_sel.core import parsing, plugins
from fedjax_sel.core.parsing import one_of, shown
from fedjax_sel.core.plugins import AtLeastOne, Decay, NonNegative, Positive, PositiveShare, Within
from fedjax_sel.errors import UserError

VALUE = "value:"
"""Prefix of a field's text if the field was set to a Python value, which has no text form."""


def is_value(text: str) -> bool:
    """Return whether a field's text is the placeholder of a Python value."""
    return text.startswith(VALUE)


MODES = ("markov", "daily", "label", "size", "speed")
"""Named modes of availability; `experiment/availability.py` defines them."""


class OnlyWith(NamedTuple):
    """The condition under which a field has an effect."""

    words: str  # the required flags, for messages
    holds: Callable[[Any], bool]  # the condition, a function of a Config


def _setting(default: Any, help: str, only_with: OnlyWith | None = None) -> Any:
    """Make a field with its help text and its condition."""
    return dataclasses.field(default=default, metadata={"help": help, "only_with": only_with})


def _partition(*schemes: str) -> OnlyWith:
    return OnlyWith(f"--partition {' or '.join(schemes)}", lambda config: config.partition.partition in schemes)


_ON_DISK = OnlyWith(
    "a --dataset other than digits, shakespeare, synthetic or a plug-in",
    lambda config: (
        config.data.dataset.partition(":")[0] not in ("digits", "shakespeare", "synthetic")
        and config.data.dataset not in config.plugins()
    ),
)
_HELD_OUT = OnlyWith("--holdout", lambda config: config.data.holdout > 0)


def _sizes_are_free(config: Any) -> bool:
    form = config.partition.partition, config.partition.dirichlet_form
    return form[0] in ("iid", "classes") or form == ("dirichlet", "hsu")


def _sizes_are_drawn(config: Any) -> bool:
    form = config.partition.partition, config.partition.dirichlet_form
    of_scheme = form[0] in ("classes", "extended_dirichlet") or form == ("dirichlet", "yurochkin")
    return of_scheme or (_sizes_are_free(config) and config.partition.client_sizes != "equal")


_FREE_SIZES = OnlyWith("--partition iid, classes, or dirichlet with --dirichlet-form hsu", _sizes_are_free)
_DRAWN = "classes, extended_dirichlet, dirichlet with --dirichlet-form yurochkin, or unequal --client-sizes"
_DRAWN_SIZES = OnlyWith(f"--partition {_DRAWN}", _sizes_are_drawn)
_UNEVEN = OnlyWith(
    f"--partition dirichlet_qp, natural, {_DRAWN}",
    lambda config: config.partition.partition in ("dirichlet_qp", "natural") or _sizes_are_drawn(config),
)
_MISLABELED = OnlyWith("--label-noise", lambda config: config.partition.label_noise > 0)
_BUILT_IN = OnlyWith("a built-in --model", lambda config: ":" not in config.model.model)
_BATCHES = OnlyWith("--no-full-batch", lambda config: not config.training.full_batch)
_MILESTONES = OnlyWith("--learning-rate-milestones", lambda config: bool(config.training.learning_rate_milestones))
_CLIENT_STATE = OnlyWith(
    "--momentum above 0 or a --client-optimizer other than sgd",
    lambda config: config.training.momentum > 0 or config.training.client_optimizer != "sgd",
)
_WITH_MODE = OnlyWith("a named mode of --available", lambda config: config.selection.available in MODES)
_SOME_AWAY = OnlyWith("--available other than 1", lambda config: config.selection.available_share != 1)
_TIMED = OnlyWith("a --timing other than none", lambda config: config.timing.timing != "none")
_LATE = OnlyWith(
    "--deadline, or --over-select above 1",
    lambda config: _TIMED.holds(config) and (config.timing.deadline is not None or config.timing.over_select > 1),
)
_STALE = OnlyWith(
    "--concurrency, or --late-reports use",
    lambda config: config.uses_late_reports or (_TIMED.holds(config) and config.timing.concurrency is not None),
)
_TIMED_ABSENCE = OnlyWith(
    "--timing and an --available other than 1", lambda config: _TIMED.holds(config) and _SOME_AWAY.holds(config)
)
_PRIVATE = OnlyWith("--privacy", lambda config: config.selection.privacy is not None)
_CLIENT_TESTS = OnlyWith(
    "--client-test, --unseen-clients or natural clients",
    lambda config: (
        config.data.client_test > 0
        or config.partition.unseen_clients > 0
        or config.partition.partition == "natural"
        or ":" in config.partition.partition  # a function or a value, which can be of natural clients
    ),
)
_CHECKPOINTS = OnlyWith("--keep above 0", lambda config: config.run.keep > 0)


Range = Callable[[Any], str | None]
"""Function that returns why a value is invalid, as the end of a message; None if it is valid. None is always valid."""


def _range(holds: Callable[[Any], Any], words: str) -> Range:
    return lambda value: None if holds(value) else words


def _fraction(available: str | numbers.Real) -> float | None:
    try:
        return float(available)
    except ValueError:
        return None


def _available(text: str) -> str | None:
    if (share := _fraction(text)) is not None:
        return None if 0 < share <= 1 else "is outside 0 (excluded) to 1 (included)"
    if text in MODES or is_value(text) or text.endswith((".csv", ".npy", ".txt")):
        return None
    advice = parsing.did_you_mean(text, MODES)
    return f"is neither a fraction such as 0.5, a .csv, .txt or .npy file, nor a mode; {advice}"


_INCREASING = _range(
    lambda rounds: all(1 <= one < 2**31 for one in rounds) and list(rounds) == sorted(set(rounds)),
    "is not a list of rounds from 1 to 2147483647 in increasing order, such as 150 300",
)
_CLIENT_SIZES = _range(
    lambda text: text == "equal" or parsing.kind_and_number(text, ("lognormal", "dirichlet")),
    "is not equal, lognormal:SIGMA or dirichlet:ALPHA with a number above 0, such as lognormal:1",
)
_FEATURE_SKEW = _range(
    lambda text: text in ("none", "turns") or parsing.kind_and_number(text, ("rotation", "noise", "contrast")),
    "is not none, turns, rotation:DEGREES, noise:SIGMA or contrast:FACTOR with a number above 0, such as noise:0.1",
)
_LIMIT = _range(parsing.deadline, "is neither seconds above 0 nor a quantile such as q0.8, from q0 to q1")

# Types of fields, with ranges. `convert` checks seeds and epochs.
Pairs = tuple[tuple[str, Any], ...]
Count = Annotated[int, Within(1, 2**31 - 1)]
CountOrZero = Seed = Annotated[int, Within(0, 2**31 - 1)]
Steps = Annotated[int, Within(1, 100_000)]
Folder = Annotated[str, _range(len, "is empty; name a folder, or remove the flag")]
ClientSizes = Annotated[str, _CLIENT_SIZES]
FeatureSkew = Annotated[str, _FEATURE_SKEW]
Milestones = Annotated[tuple[int, ...], _INCREASING]
Available = Annotated[str, _available]
Deadline = Annotated[str, _LIMIT]
Mesh = Annotated[str, _range(parsing.mesh_shape, "")]  # `mesh_shape` raises a UserError of its own
Budget = Annotated[str, _range(parsing.privacy, "")]  # so does `privacy`
TrainingBudget = Annotated[str, _range(parsing.private_training, "")]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Data set and held-out examples."""

    dataset: str = _setting(
        "digits",
        "data set: digits, shakespeare, synthetic, mnist, fashion_mnist, cifar10, cifar100, leaf:FOLDER, npz:FILE, any "
        "prepared TFDS data set, or mypackage.module:factory",
    )
    dataset_args: Pairs = _setting((), "parameters of --dataset mypackage.module:factory")
    data_dir: Folder | None = _setting(
        None, "folder of prepared data (default: TFDS_DATA_DIR, cache, or download)", _ON_DISK
    )
    holdout: Decay = _setting(0.0, "fraction of each client's examples held out for its losses (FedCor's code: 0.2)")
    loss_on: Literal["train", "holdout", "all"] = _setting("train", "client examples of reported losses", _HELD_OUT)
    client_test: Decay = _setting(0.0, "fraction of each client's examples that tests the models")
    tuning_share: Decay = _setting(
        0.0, "fraction of the training set that replaces the test set, to choose settings without test data"
    )
    server_validation: Decay | None = _setting(
        None, "fraction of the training set reserved for the server (default: 0.05 if the strategy needs it)"
    )


@dataclasses.dataclass(frozen=True)
class PartitionConfig:
    """Distribution of the examples over clients."""

    partition: Literal[
        "shards", "dirichlet_qp", "skewness", "dirichlet", "extended_dirichlet", "classes", "iid", "natural"
    ] = _setting("shards", "scheme that assigns examples to clients; or mypackage.module:factory")
    partition_args: Pairs = _setting((), "parameters of --partition mypackage.module:factory")
    num_clients: Count = _setting(50, "N, number of clients in the federation")
    unseen_clients: Decay = _setting(0.0, "fraction of the N clients that never trains and tests the models")
    shards_per_client: Count = _setting(1, "label-sorted shards per client (1SPC, 2SPC)", _partition("shards"))
    alpha: Positive = _setting(
        0.2,
        "Dirichlet concentration; dirichlet_qp: Dir(alpha * label frequencies), dirichlet: Dir(alpha) per class, "
        "extended_dirichlet: Dir(alpha) over the clients of a class",
        _partition("dirichlet_qp", "dirichlet", "extended_dirichlet"),
    )
    classes_per_client: Count = _setting(
        2, "different labels per client, each divided among its clients", _partition("classes", "extended_dirichlet")
    )
    skewness: Literal["1", "0.8", "0.5", "H"] = _setting(
        "1", "fraction of a client's examples with its main label; H: two labels per client", _partition("skewness")
    )
    skewness_main: Literal["balanced", "random"] = _setting(
        "balanced", "assignment of main labels to clients", _partition("skewness")
    )
    client_sizes: ClientSizes = _setting(
        "equal",
        "numbers of examples per client; equal; lognormal:SIGMA; dirichlet:ALPHA (shares ~ Dir(alpha) over clients)",
        _FREE_SIZES,
    )
    min_client_size: Count = _setting(5, "minimum number of examples per client", _UNEVEN)
    small_clients: Literal["redraw", "top-up"] = _setting(
        "redraw",
        "reaction to clients below the minimum; redraw: draw at most 10 times again, then top-up; top-up: move "
        "examples from the largest clients",
        _DRAWN_SIZES,
    )
    dirichlet_form: Literal["hsu", "yurochkin"] = _setting(
        "hsu",
        "hsu: class proportions are drawn per client, sizes equal; yurochkin: client proportions are drawn per class",
        _partition("dirichlet"),
    )
    feature_skew: FeatureSkew = _setting(
        "none",
        "transformation of each client's images; turns: by 0, 90, 180 or 270 degrees; rotation:DEGREES: by at most "
        "this angle; noise:SIGMA: standard deviation from 0 to SIGMA, of pixels 0 to 1; contrast:FACTOR: contrast from "
        "1 / (1 + FACTOR) to 1 + FACTOR",
    )
    label_noise: Decay = _setting(0.0, "fraction of a noisy client's labels that are wrong")
    noisy_clients: PositiveShare = _setting(1.0, "fraction of clients with wrong labels", _MISLABELED)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Model, task and arithmetic."""

    model: Literal["mlp", "cnn", "cnn_small", "logistic", "lenet", "resnet8", "resnet18", "char_lstm", "char_gru"] = (
        _setting("mlp", "neural network; or mypackage.module:factory")
    )
    task: str = _setting(
        "classification",
        "learning task: classification, multilabel, regression, next_token, or mypackage.module:factory",
    )
    model_args: Pairs = _setting(
        (), "parameters of --model mypackage.module:factory; of mlp: hidden=128 for one hidden layer"
    )
    task_args: Pairs = _setting((), "parameters of --task mypackage.module:factory")
    model_dropout: Decay = _setting(0.0, "dropout rate of hidden units during training", _BUILT_IN)
    initializer: Literal["pytorch", "kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal"] = _setting(
        "pytorch", "weight initialization", _BUILT_IN
    )
    precision: Literal["float32", "tf32", "bfloat16"] = _setting(
        "float32",
        "precision of the model's matrix products (selection uses float32); tf32: GPUs and TPUs only",
        _BUILT_IN,
    )

    @property
    def hidden_units(self) -> tuple[int, ...]:
        """Units of each hidden layer of `mlp`, from `model_args`; empty: the model's default."""
        if self.model != "mlp" or not self.model_args:
            return ()
        for name, _ in self.model_args:
            one_of("--model-args", name, ("hidden",))
        ((_, units),) = self.model_args
        if not re.fullmatch(r"[1-9]\d{0,5}(-[1-9]\d{0,5})*", str(units)):
            raise UserError(
                f"--model-args: hidden={shown(units)} is not a number of units; give 128, or 128-64 for two layers"
            )
        return tuple(map(int, str(units).split("-")))


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Local training on clients, and aggregation on the server."""

    local_steps: Steps | None = _setting(None, "SGD steps per client and round; alternative to --local-epochs")
    local_epochs: int | str | None = _setting(
        5,
        "local epochs per client and round; alternative to --local-steps; 1:5 draws a number from 1 to 5 for each "
        "client and round",
    )
    full_batch: bool = _setting(False, "use all of a client's examples in every step (FL-DP3S Eq. 3-5)")
    batch_size: Count = _setting(10, "examples per step; clients with fewer examples use all of them", _BATCHES)
    learning_rate: Positive = _setting(0.05, "learning rate of the clients")
    learning_rate_milestones: Milestones = _setting((), "rounds at which the learning rate decays")
    learning_rate_decay: Positive = _setting(0.5, "factor on the learning rate at each milestone", _MILESTONES)
    momentum: Decay = _setting(0.0, "momentum of the clients' SGD")
    momentum_buffer: Literal["reset", "persistent"] = _setting(
        "reset",
        "reset: the client optimizer's state is zeroed every round; persistent: it is kept until the client trains "
        "again (GPFL Eq. 1)",
        _CLIENT_STATE,
    )
    weight_decay: NonNegative = _setting(0.0, "L2 coefficient added to the gradient, biases included")
    aggregation: Literal["uniform", "samples", "global-samples", "unbiased"] = _setting(
        "uniform",
        "weights of the cohort's models; uniform: 1/K; samples: n_k / n of the cohort; global-samples: n_k / n of all "
        "clients, the remainder on the old model; unbiased: n_k / n of all clients, divided by the probability that k "
        "is selected and reports",
    )
    optimizer: str = _setting(
        "fedavg",
        "federated optimizer: fedavg, fedprox, fednova, scaffold, fedavgm, fedadagrad, fedadam, fedyogi",
    )
    optimizer_args: Pairs = _setting((), "parameters of --optimizer, e.g. mu=0.01")
    client_optimizer: str = _setting("sgd", "optimizer of the clients: sgd, or any Optax optimizer by name, e.g. adam")
    client_optimizer_args: Pairs = _setting((), "parameters of --client-optimizer, e.g. b1=0.8")
    server_optimizer: str | None = _setting(
        None, "optimizer of the server: any Optax optimizer by name (default: the federated optimizer's own)"
    )
    server_optimizer_args: Pairs = _setting((), "parameters of --server-optimizer, e.g. momentum=0.9")
    server_learning_rate: Positive | None = _setting(
        None, "learning rate of the server's step on the averaged update (default: 1; adaptive optimizers: 0.01)"
    )
    private_training: TrainingBudget | None = _setting(
        None,
        "differential privacy of the trained model (DP-FedAvg): epsilon=8,delta=1e-5,clip=1 is each client's budget "
        "for the whole run; rounds=R: a client trains in at most R rounds; docs/private_training.md",
    )

    @property
    def epochs(self) -> tuple[int, int] | None:
        """Minimum and maximum number of local epochs per round; None if local work is given in steps."""
        if self.local_epochs is None:
            return None
        low, _, high = str(self.local_epochs).partition(":")
        return int(low), int(high or low)


@dataclasses.dataclass(frozen=True)
class SelectionConfig:
    """Client selection and availability."""

    algo: str = _setting("fl_dp3s", "selection strategy; list them with fedjax-sel list strategies")
    algo_args: Pairs = _setting((), "parameters of --algo, key=value")
    num_selected: Count = _setting(10, "K, number of clients that train per round")
    available: Available = _setting(
        "1",
        "available clients: each client's probability in each round; a file of 0 and 1, clients x rounds; or "
        "a mode: markov, daily, label, size, speed (docs/availability.md); FedCor degrades below 1 (results/absence)",
    )
    available_args: Pairs = _setting((), "parameters of a mode of --available, e.g. share=0.7 rounds_off=5", _WITH_MODE)
    start_queries: Literal["all", "available"] = _setting(
        "all",
        "clients that answer the queries before round 1; all: each client answers when it joins the federation; "
        "available: those available in round 1, and the others never",
        _SOME_AWAY,
    )
    report_failure_rate: Decay = _setting(0.0, "probability that a selected client's report is lost")
    privacy: Budget | None = _setting(
        None,
        "differential privacy of what clients send for selection: epsilon=1,delta=1e-5 is each client's budget for the "
        "whole run; further values: docs/privacy.md",
    )
    privacy_unit: Literal["example", "client"] = _setting(
        "example", "what the guarantee of --privacy hides: one example of a client, or all of them", _PRIVATE
    )

    @property
    def available_share(self) -> float | None:
        """Fraction of clients available in each round; None if a file lists them or a mode draws them."""
        return _fraction(self.available)


@dataclasses.dataclass(frozen=True)
class TimingConfig:
    """Simulated time: speed of the clients' devices, deadlines, and over-selection."""

    timing: str = _setting(
        "none",
        "speed of each client's device: lognormal, tiers, correlated, or a .csv file; none: rounds have no duration",
    )
    timing_args: Pairs = _setting((), "parameters of --timing, e.g. sigma=0.5 jitter=0.2", _TIMED)
    deadline: Deadline | None = _setting(
        None,
        "time limit of a round's training; later reports are lost (see --late-reports): seconds, or a quantile such as "
        "q0.8 of all clients' durations without jitter",
        _TIMED,
    )
    over_select: AtLeastOne = _setting(1.0, "clients selected per round, as a multiple of K; the first K count", _TIMED)
    server_seconds: NonNegative = _setting(0.0, "seconds of the server's own work per round, e.g. selection", _TIMED)
    late_reports: Literal["drop", "use"] = _setting(
        "drop",
        "reports that arrive after their synchronous round; drop: they are lost; use: they are aggregated in the round "
        "in which they arrive, with the factor of --staleness, and their clients are unavailable until then",
        _LATE,
    )
    concurrency: Count | None = _setting(
        None,
        "C, clients that train at the same time in asynchronous rounds: the server steps after each K reports, and "
        "starts K idle clients; a multiple of K (default: synchronous rounds)",
        _TIMED,
    )
    staleness: Literal["constant", "polynomial", "hinge", "refl"] = _setting(
        "polynomial",
        "factor of a report's weight, by the server's steps s since its dispatch; constant: 1; polynomial: (s + 1)^-a; "
        "hinge: 1 up to s = b, then 1 / (a (s - b) + 1); refl: by s and by the deviation from the reports in time",
        _STALE,
    )
    staleness_args: Pairs = _setting((), "parameters of --staleness, e.g. a=0.5", _STALE)
    max_staleness: CountOrZero | None = _setting(None, "largest staleness of an aggregated report", _STALE)
    availability_seconds: Positive | None = _setting(
        None,
        "simulated seconds of each column of a file of --available, or of each step of a mode or share; a client that "
        "becomes unavailable while it trains loses its report (default: a column per round)",
        _TIMED_ABSENCE,
    )
    max_seconds: Positive | None = _setting(
        None,
        "simulated seconds after which a run ends, at the end of a --chunk, after an evaluation; at most --rounds",
        _TIMED,
    )


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Duration, seeds, devices and output."""

    rounds: Count = _setting(100, "number of training rounds")
    seeds: tuple[int, ...] = _setting((0,), "replicates, run together: a count (5 means 0 1 2 3 4) or a list of seeds")
    data_seed: Seed | None = _setting(None, "seed of a partition shared by all replicates (default: one per replicate)")
    model_seed: Seed | None = _setting(
        None, "seed of an initial model shared by all replicates (default: one per replicate)"
    )
    selection_seed: Seed | None = _setting(
        None, "seed of selection shared by all replicates (default: one per replicate)"
    )
    training_seed: Seed | None = _setting(
        None, "seed of shuffles and dropout shared by all replicates (default: one per replicate)"
    )
    target_accuracy: Positive | None = _setting(None, "test accuracy for the count of rounds to target, e.g. 0.62")
    eval_every: Count = _setting(1, "rounds between evaluations on the test set; the last round is always evaluated")
    train_metrics_every: CountOrZero = _setting(0, "rounds between evaluations on all clients' training data; 0: never")
    eval_clients_every: CountOrZero = _setting(
        0, "rounds between evaluations on the clients' own test data; 0: only after the last round", _CLIENT_TESTS
    )
    chunk: Count = _setting(10, "rounds per call of the compiled program; the host reads results in between")
    cohort_batch: CountOrZero | None = _setting(
        None, "clients trained at once per device; 0: all (default: what fits in cache)"
    )
    seeds_at_once: int | None = _setting(
        None, "seeds on the devices at once; others run afterwards (default: the largest number that fits in memory)"
    )
    mesh: Mesh | None = _setting(
        None,
        "device mesh seeds=A,clients=B: A groups of seeds, and B devices that share each group's clients (default: "
        "chosen automatically)",
    )
    checkpoint_every: Count | None = _setting(
        None, "rounds between checkpoints, in addition to --checkpoint-seconds", _CHECKPOINTS
    )
    checkpoint_seconds: Positive = _setting(
        30.0, "seconds between checkpoints; the end of a run is always saved", _CHECKPOINTS
    )
    keep: CountOrZero = _setting(2, "number of checkpoints kept in the run folder; 0: save none")
    resume: Literal["auto", "never", "must"] = _setting(
        "auto",
        "unfinished run in the folder; auto: resume it if present; never: set it aside and start again; must: resume "
        "it, or fail if it does not exist",
    )
    deterministic: bool = _setting(False, "make GPU runs repeatable to the bit, at the price of some slower operations")
    on_nonfinite: Literal["stop", "skip"] = _setting(
        "stop", "reaction to a client's update with NaN or infinity; stop: end the run; skip: drop the update"
    )
    out: Folder | None = _setting(None, "run folder (default: a new folder in runs/)")


VALUES = ("dataset", "partition", "model", "task", "algo", "optimizer", "available", "timing")
"""Fields that name a part of an experiment; `Experiment.of` also accepts a Python value for each."""
OPEN = ("model", "partition")  # fields of a Literal type that also accept `mypackage.module:factory`


# Fields that may change when a run is resumed. `on_nonfinite` has no effect until an update is not finite; a run with
# `stop` rejects earlier rounds that skipped an update (runs/reading.py).
NOT_OF_THE_TRAJECTORY = {
    "checkpoint_every", "checkpoint_seconds", "data_dir", "deterministic", "keep", "max_seconds", "mesh",
    "on_nonfinite", "out", "resume", "rounds", "seeds_at_once", "target_accuracy",
}  # fmt: skip


def only_with(name: str) -> OnlyWith | None:
    """Return the condition under which a field has an effect; None if it always has one."""
    return FIELDS[name].metadata["only_with"]


@functools.cache
def flat_types(include_extras: bool = False) -> dict[str, Any]:
    """Return the type of every field by flat name, without or with the ranges in annotations."""
    hints = (typing.get_type_hints(kind, include_extras=include_extras) for kind in CONCERNS.values())
    return {name: hint for found in hints for name, hint in found.items()}


def ranges() -> dict[str, list[Range]]:
    """Return the ranges of every field by flat name."""
    parts = {name: (hint, *typing.get_args(hint)) for name, hint in flat_types(include_extras=True).items()}
    return {name: [own for part in some for own in getattr(part, "__metadata__", ())] for name, some in parts.items()}


def convert(name: str, value: Any) -> Any:
    """Convert user input, a Python or JSON value or a command-line string, to the type of a field, by flat name."""
    flag = "--" + name.replace("_", "-")
    if name == "seeds":
        return parsing.seeds(value)
    if name in PAIRS:
        return parsing.pairs(flag, value)
    if name == "local_epochs":
        return parsing.epochs(value)
    if name == "available" and isinstance(value, str | numbers.Real):
        share = _fraction(value)
        return str(value) if share is None else repr(share).removesuffix(".0")
    if name in ("out", "data_dir") and value is not None:
        if not isinstance(value, str | os.PathLike):
            raise UserError(f"{flag}: {shown(value)} is not a path; give a str or a pathlib.Path")
        value = os.path.expanduser(value)  # shells do not expand --out=~/run
    kind = flat_types()[name]
    if name in VALUES and not (value is None or isinstance(value, str | numbers.Real)):
        raise UserError(
            f"{flag}: a value of type {type(value).__name__} is not a name; pass it to fedjax_sel.Experiment.of("
            f"{name}=...)"
        )
    if name in OPEN and isinstance(value, str) and ":" in value:
        return value  # a plug-in, or the placeholder of a Python value
    if name == "skewness" and isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:g}"
    if typing.get_origin(kind) is tuple:
        items = parsing.as_list(value)
        if items == ["none"]:
            return ()
        return tuple(parsing.scalar(flag, item, typing.get_args(kind)[0]) for item in items)
    return plugins.convert(flag, value, kind)


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a whole experiment. The default is the preset `quickstart`.

    Fields can be read by flat name: `config.algo` is `config.selection.algo`. `config.model` and `config.partition` are
    concerns; their fields of the same name are `config.model.model` and `config.partition.partition`.
    """

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    partition: PartitionConfig = dataclasses.field(default_factory=PartitionConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    timing: TimingConfig = dataclasses.field(default_factory=TimingConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)

    def __getattr__(self, name: str) -> Any:
        """Return a field by its flat name."""
        if name not in FIELDS:
            raise AttributeError(f"a configuration has no field {name!r}; choose from {', '.join(FIELDS)}")
        return getattr(getattr(self, _CONCERN_OF[name]), name)

    def replace(self, /, **flat_names: Any) -> "Config":
        """Return a copy with some fields changed.

        Values are converted to the field's type. Setting `local_steps` unsets `local_epochs`, and vice versa.

        Args:
            **flat_names: new values by flat name, e.g. rounds=20, algo="random", algo_args={"profile": "fc1-relu"}.

        Raises:
            UserError: If a name is unknown or a value has the wrong type.
        """
        kinds = flat_types()
        changes: dict[str, dict[str, Any]] = {}
        for name, value in flat_names.items():
            one_of("configuration", name, kinds)
            changes.setdefault(_CONCERN_OF[name], {})[name] = convert(name, value)
        training = changes.get("training", {})
        for chosen, displaced in (("local_steps", "local_epochs"), ("local_epochs", "local_steps")):
            if training.get(chosen) is not None and displaced not in training:
                training[displaced] = None
        parts = {key: dataclasses.replace(getattr(self, key), **values) for key, values in changes.items()}
        return dataclasses.replace(self, **parts)

    def flat(self) -> dict[str, Any]:
        """Return all values by flat name."""
        return {name: getattr(getattr(self, concern), name) for name, concern in _CONCERN_OF.items()}

    def to_json(self) -> dict[str, Any]:
        """Return nested plain values, the content of `config.json`."""
        nested = dataclasses.asdict(self)
        for concern in nested.values():
            concern.update({name: dict(value) for name, value in concern.items() if name in PAIRS})
        return nested

    @classmethod
    def from_json(cls, nested: Mapping[str, Mapping[str, Any]]) -> "Config":
        """Make a configuration from nested plain values, the inverse of `to_json`."""
        return cls().replace(**{name: value for part in nested.values() for name, value in part.items()})

    @property
    def cohort_size(self) -> int:
        """Number of clients that train per round: K, or more with over-selection."""
        factor = self.timing.over_select if self.has_effect("over_select") else 1.0
        return math.ceil(round(self.selection.num_selected * factor, 6))

    @property
    def size(self) -> tuple[int, int, int]:
        """N, the clients of a cohort, and T, as strategies see them."""
        return self.num_training_clients, self.cohort_size, self.run.rounds

    @property
    def row_seconds(self) -> float:
        """Simulated seconds of a row of availability; 0: a row per round."""
        return (self.has_effect("availability_seconds") and self.timing.availability_seconds) or 0.0

    @property
    def seconds_limit(self) -> float | None:
        """Simulated seconds after which a run ends; None: after its rounds."""
        return self.timing.max_seconds if self.has_effect("max_seconds") else None

    @property
    def uses_late_reports(self) -> bool:
        """Whether synchronous rounds use late reports."""
        return self.has_effect("late_reports") and self.timing.late_reports == "use"

    @property
    def hidden_unit(self) -> str | None:
        """Unit that the noise of the run hides, an example or a client; None without noise."""
        if self.selection.privacy is not None:
            return self.selection.privacy_unit
        return None if self.training.private_training is None else "client"

    @property
    def everyone_available(self) -> bool:
        """Whether all clients are available in all rounds; a client whose report is in flight is not."""
        text = self.training.private_training
        limited = text is not None and parsing.private_training(text).rounds is not None
        in_flight = self.uses_late_reports or self.timing.concurrency is not None
        return self.selection.available_share == 1 and not limited and not in_flight

    @property
    def has_accuracy(self) -> bool:
        """Whether the first measure of the task is an accuracy, from 0 to 1."""
        return self.model.task in ("classification", "multilabel", "next_token")

    @property
    def num_training_clients(self) -> int:
        """The number of clients that can train: N without the unseen clients, of which there is at least one."""
        share, total = self.partition.unseen_clients, self.partition.num_clients
        return total - (max(1, int(share * total + 1e-9)) if share else 0)

    @property
    def last_every(self) -> int:
        """The period of the rounds that can be the last one: all rounds, or a chunk if seconds end the run."""
        return self.run.rounds if self.seconds_limit is None else self.run.chunk

    def plugins(self) -> tuple[str, ...]:
        """Return all plug-ins `mypackage.module:factory` that the configuration names."""
        parts = [(name, *name.partition(":")[::2]) for field, name in self.flat().items() if field in VALUES]
        return tuple(name for name, start, end in parts if end.isidentifier() and start not in _NOT_MODULES)

    def has_effect(self, name: str) -> bool:
        """Return whether a field has an effect, given the other fields' values."""
        needed = only_with(name)
        return needed is None or needed.holds(self)

    def effective(self) -> "Config":
        """Return a copy with every ineffective field at its default, so that equal experiments compare equal."""
        idle: dict[str, Any] = {name: field.default for name, field in FIELDS.items() if not self.has_effect(name)}
        return self.replace(**idle)

    def meant(self) -> dict[str, Any]:
        """Return the effective values by flat name, in a canonical form for comparison."""
        flat = self.effective().flat()
        for name in PAIRS:  # 0.5 in Python equals "0.5" on a command line
            flat[name] = [
                (key, value if isinstance(value, str) else json.dumps(value, default=str)) for key, value in flat[name]
            ]
        return flat

    def free_to_change(self) -> set[str]:
        """Return the fields that may change when a run is resumed; the noise of privacy depends on the rounds."""
        return NOT_OF_THE_TRAJECTORY - ({"rounds"} if self.hidden_unit is not None else set())

    def fingerprint(self) -> str:
        """Return a 12-digit hexadecimal hash of all values that affect the run's trajectory."""
        values = {name: value for name, value in self.meant().items() if name not in self.free_to_change()}
        if self.timing.timing == "none":  # a configuration without a clock keeps the hash of earlier versions
            values = {name: value for name, value in values.items() if _CONCERN_OF[name] != "timing"}
        if self.selection.available not in MODES:  # so does one without a mode of availability
            del values["available_args"]
        for name in _LATER:  # so does one with the defaults of settings that came later
            if values.get(name) in (FIELDS[name].default, []):
                values.pop(name, None)
        return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


CONCERNS: dict[str, Any] = {field.name: field.default_factory for field in dataclasses.fields(Config)}
FIELDS = {field.name: field for kind in CONCERNS.values() for field in dataclasses.fields(kind)}
_CONCERN_OF = {field.name: concern for concern, kind in CONCERNS.items() for field in dataclasses.fields(kind)}
PAIRS = tuple(name for name in FIELDS if name.endswith("_args"))  # fields of key=value pairs
_LATER = (
    "start_queries", "client_test", "unseen_clients", "eval_clients_every", "classes_per_client", "client_sizes",
    "small_clients", "feature_skew", "label_noise", "noisy_clients", "tuning_share", "privacy", "privacy_unit",
    "concurrency", "staleness", "staleness_args", "max_staleness", "availability_seconds", "late_reports",
    "private_training",
)  # fmt: skip
_NOT_MODULES = ("synthetic", "leaf", "npz", "value")  # prefixes before a colon that are no modules


def read_config_file(path: Path, base: Config) -> Config:
    """Return `base` updated from a .json or .toml file; raise UserError if its content is invalid."""
    from fedjax_sel.core import files  # imports NumPy, which --help does not need

    try:
        content: Any = tomllib.loads(files.read_text(path)) if path.suffix == ".toml" else files.read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--config: cannot read {path} ({error}); give a .json or .toml file") from error
    if not isinstance(content, dict):
        raise UserError(f"--config: {path} contains {shown(content)} instead of settings; give names and values")
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat.update(value if name in CONCERNS and isinstance(value, dict) else {name: value})
    try:
        return base.replace(**flat)
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from error


def validate(config: Config) -> None:
    """Reject invalid values before any data are read; a UserError names the flag, the value and a remedy."""
    config = config.replace(**config.flat())  # rejects values of the wrong type
    values = config.flat()

    def need(name: str, allowed: bool, advice: str) -> None:
        if not allowed:
            raise UserError(f"--{name.replace('_', '-')}: {shown(values[name])} {advice}")

    for name, own in ranges().items():
        for reason_of in () if values[name] is None else own:
            need(name, (reason := reason_of(values[name])) is None, reason or "")
    for name in ("dataset", "partition", "model"):
        own = values[name] in config.plugins() or is_value(values[name]) or (name, values[name]) == ("model", "mlp")
        allowed = (
            "--model mlp or mypackage.module:factory" if name == "model" else f"a --{name} mypackage.module:factory"
        )
        need(f"{name}_args", own or not values[f"{name}_args"], f"needs {allowed}")
    if values["target_accuracy"] is not None and config.has_accuracy:
        need("target_accuracy", values["target_accuracy"] <= 1, "is not a fraction between 0 and 1, such as 0.62")
    _ = config.model.hidden_units  # raises a UserError of its own
    n, cohort, rounds = config.num_training_clients, config.cohort_size, values["rounds"]
    need("num_selected", values["num_selected"] <= n, f"exceeds the {n} clients that train; choose at most {n}")
    need("over_select", cohort <= n, f"of {values['num_selected']} selects {cohort}, but there are {n} clients")
    share = config.selection.available_share
    reached = share is None or share * n * rounds >= 1
    need("available", reached, f"of {n} clients is on average fewer than one in {rounds} rounds; give more")
    timed = values["available"] != "speed" or values["timing"] != "none"
    need("available", timed, "needs the speed of the clients' devices; add --timing lognormal, tiers or a file")
    steps, epochs = values["local_steps"], values["local_epochs"]
    if (steps is None) == (epochs is None):
        raise UserError(f"--local-steps {steps} and --local-epochs {epochs}: give exactly one of them")
    _check_concurrency(config)
    _check_private_training(config)
    if values["aggregation"] == "unbiased" and (_LATE.holds(config) or config.row_seconds):
        raise UserError(
            "--aggregation: 'unbiased' needs the probability that a report arrives, which is unknown with --deadline, "
            "--over-select or --availability-seconds; remove these flags or choose another rule"
        )
    together, count = values["seeds_at_once"], len(values["seeds"])
    if together is not None and (together < 1 or count % together):
        near = max(size for size in range(1, count + 1) if count % size == 0 and size <= max(together, 1))
        raise UserError(
            f"--seeds-at-once: {together} does not divide the {count} seeds into equal groups; "
            f"give {near}, or remove the flag"
        )
    if values["loss_on"] == "holdout" and values["holdout"] == 0:
        raise UserError("--loss-on: 'holdout' needs held-out data; add --holdout 0.2, or choose --loss-on train")


def _check_private_training(config: Config) -> None:
    """Reject settings that --private-training cannot keep private."""
    text, k, n = config.training.private_training, config.selection.num_selected, config.num_training_clients
    if text is None:
        return
    settings, rounds = parsing.private_training(text), config.run.rounds
    if config.training.aggregation != "uniform":
        raise UserError(
            f"--private-training: every update has the weight 1/K; give --aggregation uniform instead of "
            f"{config.training.aggregation}"
        )
    if settings.rounds is not None and settings.rounds * n < k * rounds:
        raise UserError(
            f"--private-training: {n} clients of at most rounds={settings.rounds} trainings each are too few for "
            f"{rounds} rounds of {k} clients; give rounds={-(-k * rounds // n)} or more"
        )
    if config.uses_late_reports:
        raise UserError("--private-training: the noise is for K reports of a round; give --late-reports drop")
    if config.selection.privacy is not None and parsing.privacy(config.selection.privacy).delta != settings.delta:
        raise UserError("--private-training: delta differs from that of --privacy; give both the same delta")


def _check_concurrency(config: Config) -> None:
    """Reject asynchronous rounds without a clock, or together with settings of synchronous rounds."""
    chosen, k, n = config.timing, config.selection.num_selected, config.num_training_clients
    if chosen.concurrency is None:
        return
    reason = ""
    if chosen.timing == "none":
        reason = "asynchronous rounds need the simulated clock; add --timing tiers, lognormal or a file"
    elif chosen.concurrency > n:
        reason = f"exceeds the {n} clients; choose at most {n // k * k}"
    elif chosen.concurrency % k:
        near = max(chosen.concurrency // k, 1) * k
        reason = f"is not a multiple of the K = {k} reports of a step (--num-selected); choose {near} or {near + k}"
    elif chosen.over_select > 1:
        reason = "asynchronous rounds wait for no late report; remove --over-select"
    elif chosen.late_reports == "use":
        reason = "no report is late in asynchronous rounds; remove --late-reports"
    elif config.training.aggregation == "unbiased":
        reason = "fast clients report more often, so --aggregation unbiased is not possible; choose another rule"
    if reason:
        raise UserError(f"--concurrency: {chosen.concurrency}: {reason}")
