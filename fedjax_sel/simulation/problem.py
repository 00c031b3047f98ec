"""From a configuration to what it asks for: data, partitions, model, strategy. Nothing is on a device yet."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel import data, models, reading, strategies
from fedjax_sel.config import Config
from fedjax_sel.data import availability
from fedjax_sel.data import partition as partitions
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.errors import UserError
from fedjax_sel.models import Model
from fedjax_sel.simulation import contract, devices, information, optimization, optimizer_contract
from fedjax_sel.strategies.base import Strategy
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
    strategy: Strategy
    reachable: np.ndarray | None = None  # bool [T or more, N] from a trace

    @property
    def given(self) -> Given:
        """Return its data."""
        return Given(self.dataset, self.partitions, self.reachable)


def pose(config: Config) -> Problem:
    """Checks the configuration, loads the data and deals them out.

    Raises:
        UserError: one sentence with the field, the value and the way out.
    """
    strategy = check(config)
    dataset, dealt, reachable = gather(config, server_validation(config, strategy))
    largest = max(int(part.sizes.max()) for part in dealt)
    usable = largest - partitions.holdout_size(largest, config.data.holdout)
    if not config.training.full_batch and config.training.batch_size > usable:
        raise UserError(
            f"--batch-size: {config.training.batch_size} is more than the {usable} training examples of the largest "
            f"client; choose at most that many, fewer --num-clients, or --full-batch"
        )
    model = models.make(
        config.model.model,
        dataset.train_images.shape[1:],
        dataset.num_classes,
        config.model.model_dropout,
        config.model.initializer,
        config.model.precision,
    )
    return Problem(config, dataset, dealt, model, strategy, reachable)


def gather(config: Config, server_share: float) -> Given:
    """Read a configuration's data and deal them out.

    Args:
        config: of the run.
        server_share: of the training set, which the server keeps.

    Raises:
        UserError: the trace or the data cannot be read, or cannot be dealt so.
    """
    reachable = trace(config)
    dataset = load_data(config, server_share)
    return Given(dataset, tuple(deal(config, dataset, seed) for seed in config.run.seeds), reachable)


def load_data(config: Config, share: float) -> Dataset:
    """Load the data set, of which the server keeps a share for itself.

    Args:
        config: names it.
        share: of the training set.

    Raises:
        UserError: there is no such data set, or the share is less than one example.
    """
    whole = data.load(config.data.dataset, config.data.data_dir)
    dataset = whole.give_server(share, config.run.data_seed or 0)
    if share > 0 and not len(dataset.server_labels):
        raise UserError(
            f"--server-validation: {share:g} of {len(whole.train_labels):,} training examples is none; give at least "
            f"{1 / len(whole.train_labels):.2g}"
        )
    return dataset


SERVER_SHARE = 0.05  # of the training set, where a strategy needs the server to hold some and nothing else is said


def server_validation(config: Config, strategy: Strategy) -> float:
    """The share of the training set that the server keeps."""
    if config.data.server_validation is not None:
        return config.data.server_validation
    return SERVER_SHARE if any(map(information.needs_validation, strategy.requests)) else 0.0


def check(config: Config) -> Strategy:
    """Checks a configuration as far as that needs no data, and builds its strategy.

    Raises:
        UserError: a value that cannot work, or a strategy that refuses its hyperparameters, asks for too much, or
            breaks the contract.
    """
    validate(config)
    devices.check_that_jax_starts()
    if config.model.precision == "tf32" and jax.default_backend() == "cpu":
        raise UserError("--precision: CPUs have no 'tf32' multiplications; choose float32 or bfloat16")
    if config.run.mesh is not None:
        shape = reading.mesh_shape(config.run.mesh)
        together = config.run.seeds_at_once or len(config.run.seeds)
        devices.check_shape(shape, together, config.selection.num_selected, len(jax.devices()))
    strategy = strategies.make(config.selection.algo, **dict(config.selection.algo_args))
    optimizer_contract.check(optimization.of(config.training).federated)
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
    return strategy


def trace(config: Config) -> np.ndarray | None:
    """Who can be reached in each round, bool [T or more, N], where a file says so.

    Raises:
        UserError: the file is not such a trace.
    """
    if config.selection.available_share is not None:
        return None
    return availability.load(Path(config.selection.available), config.partition.num_clients, config.run.rounds)


def deal(config: Config, dataset: Dataset, seed: int) -> Partition:
    """One replicate's partition.

    Raises:
        UserError: it cannot be made, or leaves a client without data.
    """
    settings = config.partition
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
    data_seed = seed if config.run.data_seed is None else config.run.data_seed
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
