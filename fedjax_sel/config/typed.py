"""The fields for type checkers. Generated from `config/__init__.py` by `tools/typed_settings.py`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Settings(TypedDict, total=False):
    """Keyword arguments of fields that only take plain settings."""

    dataset_args: Mapping[str, Any] | Sequence[Any]
    data_dir: str | None
    holdout: float
    loss_on: Literal["train", "holdout", "all"]
    client_test: float
    tuning_share: float
    server_validation: float | None
    partition_args: Mapping[str, Any] | Sequence[Any]
    num_clients: int
    unseen_clients: float
    shards_per_client: int
    alpha: float
    classes_per_client: int
    skewness: float | str
    skewness_main: Literal["balanced", "random"]
    client_sizes: str
    min_client_size: int
    small_clients: Literal["redraw", "top-up"]
    dirichlet_form: Literal["hsu", "yurochkin"]
    feature_skew: str
    label_noise: float
    noisy_clients: float
    model_args: Mapping[str, Any] | Sequence[Any]
    task_args: Mapping[str, Any] | Sequence[Any]
    model_dropout: float
    initializer: Literal["pytorch", "kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal"]
    precision: Literal["float32", "tf32", "bfloat16"]
    local_steps: int | None
    local_epochs: int | str | None
    full_batch: bool
    batch_size: int
    learning_rate: float
    learning_rate_milestones: Sequence[int]
    learning_rate_decay: float
    momentum: float
    momentum_buffer: Literal["reset", "persistent"]
    weight_decay: float
    aggregation: Literal["uniform", "samples", "global-samples", "unbiased"]
    optimizer_args: Mapping[str, Any] | Sequence[Any]
    client_optimizer: str
    client_optimizer_args: Mapping[str, Any] | Sequence[Any]
    server_optimizer: str | None
    server_optimizer_args: Mapping[str, Any] | Sequence[Any]
    server_learning_rate: float | None
    private_training: str | None
    algo_args: Mapping[str, Any] | Sequence[Any]
    num_selected: int
    available_args: Mapping[str, Any] | Sequence[Any]
    start_queries: Literal["all", "available"]
    report_failure_rate: float
    privacy: str | None
    privacy_unit: Literal["example", "client"]
    timing_args: Mapping[str, Any] | Sequence[Any]
    deadline: str | None
    over_select: float
    server_seconds: float
    late_reports: Literal["drop", "use"]
    concurrency: int | None
    staleness: Literal["constant", "polynomial", "hinge", "refl"]
    staleness_args: Mapping[str, Any] | Sequence[Any]
    max_staleness: int | None
    availability_seconds: float | None
    max_seconds: float | None
    rounds: int
    seeds: int | str | Sequence[int]
    data_seed: int | None
    model_seed: int | None
    selection_seed: int | None
    training_seed: int | None
    target_accuracy: float | None
    eval_every: int
    train_metrics_every: int
    eval_clients_every: int
    chunk: int
    cohort_batch: int | None
    seeds_at_once: int | None
    mesh: str | None
    checkpoint_every: int | None
    checkpoint_seconds: float
    keep: int
    resume: Literal["auto", "never", "must"]
    deterministic: bool
    on_nonfinite: Literal["stop", "skip"]
    out: str | None


class NamedSettings(Settings, total=False):
    """Keyword arguments of all fields."""

    dataset: str
    partition: str
    model: str
    task: str
    algo: str
    optimizer: str
    available: float | str
    timing: str
