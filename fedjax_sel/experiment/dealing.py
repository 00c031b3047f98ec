"""The data of an experiment: read, shared with the server, dealt out to clients, and who can be reached when."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import data
from fedjax_sel.config import Config
from fedjax_sel.core import plugins, texts
from fedjax_sel.data import availability
from fedjax_sel.data import partition as partitions
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError
from fedjax_sel.experiment.checking import SERVER_SHARE
from fedjax_sel.experiment.registries import DATASETS, PARTITIONS
from fedjax_sel.experiment.values import VALUE, ByHand, Deal, Experiment, experiment_of


class Given(NamedTuple):
    """The data of a configuration: examples, who holds which, and who can be reached when."""

    dataset: Dataset
    partitions: tuple[Partition, ...]  # one a replicate
    reachable: np.ndarray | None = None  # bool [T or more, N] from a trace


def gather(experiment_or_config: Experiment | Config, server_share: float) -> Given:
    """Read an experiment's data and deal them out.

    Args:
        experiment_or_config: the experiment.
        server_share: of the training set, which the server keeps.

    Raises:
        UserError: the trace or the data cannot be read, or cannot be dealt so.
    """
    experiment = experiment_of(experiment_or_config)
    reachable = trace(experiment)
    dataset = load_data(experiment, server_share)
    return Given(dataset, tuple(deal(experiment, dataset, seed) for seed in experiment.config.run.seeds), reachable)


def load_data(experiment_or_config: Experiment | Config, share: float) -> Dataset:
    """Load the data set, of which the server keeps a share for itself.

    Args:
        experiment_or_config: holds it or names it.
        share: of the training set.

    Raises:
        UserError: there is no such data set, or the share is less than one example.
    """
    experiment = experiment_of(experiment_or_config)
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
        return DATASETS.make(name, **arguments)
    if arguments:
        raise UserError(f"--dataset-args: {name!r} takes none; they are for --dataset mypackage.module:factory")
    return data.load(name, config.data.data_dir)


def trace(experiment: Experiment) -> np.ndarray | None:
    """Return who can be reached in each round, bool [T or more, N], where a file says so.

    Raises:
        UserError: the file is not such a trace.
    """
    config = experiment.config
    if experiment.reachable is not None:
        table, wanted = experiment.reachable, (config.run.rounds, config.partition.num_clients)
        if table.shape[0] < wanted[0] or table.shape[1] != wanted[1]:
            raise UserError(f"available: a table of shape {table.shape} for {wanted[0]} rounds of {wanted[1]} clients")
    elif config.selection.available_share is not None:
        return None
    else:
        table = availability.load(Path(config.selection.available), config.partition.num_clients, config.run.rounds)
    if not table[: config.run.rounds].any():
        raise UserError(
            f"available: no client can be reached in any of the {config.run.rounds} rounds; give 1 where one can be"
        )
    return table


def deal(experiment_or_config: Experiment | Config, dataset: Dataset, seed: int) -> Partition:
    """Deal one replicate's partition.

    Raises:
        UserError: it cannot be made, or leaves a client without data.
    """
    experiment = experiment_of(experiment_or_config)
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
    """Return the function of a plug-in that deals the data; None where a scheme does."""
    name, arguments = config.partition.partition, dict(config.partition.partition_args)
    if not plugins.is_plugin(name):
        if arguments:
            raise UserError(f"--partition-args: {name!r} takes none; they are for --partition mypackage.module:factory")
        return None
    made = PARTITIONS.make(name, **arguments)
    if not callable(made):
        raise UserError(
            f"--partition {name}: it returned a value of type {type(made).__name__}; return a function of data set, "
            "number of clients and seed"
        )
    return made


def _refuse_positions_of_all(own: Partition | Deal, config: Config, dataset: Dataset) -> None:
    """Refuse positions in a training set of which the strategy has the server keep a part that nobody spoke of."""
    counted = own.num_examples if isinstance(own, Partition) else None  # lists do not say in how many they count
    fixed = isinstance(own, Partition | ByHand) and counted != dataset.num_train_examples
    if fixed and config.data.server_validation is None and dataset.num_server_examples:
        raise UserError(
            f"partition: {config.selection.algo.removeprefix(VALUE)} has the server keep {100 * SERVER_SHARE:g} % of "
            "the training examples, and positions count in those that are left; give "
            f"server_validation={SERVER_SHARE} and positions that count so, or a function of the data set"
        )


def _dealt(deal: Deal, config: Config, dataset: Dataset, seed: int) -> Any:
    try:
        return deal(dataset, config.partition.num_clients, seed)
    except UserError:
        raise
    except RAISED_BY_PLUGINS as error:
        name = config.partition.partition.removeprefix(VALUE)
        raise UserError(
            f"--partition {name}: dealing with seed {seed} raised {texts.reason(error)}; mend that"
        ) from error


def _own_partition(own: Partition | Deal, config: Config, dataset: Dataset, seed: int) -> Partition:
    _refuse_positions_of_all(own, config, dataset)
    made: Any = own if isinstance(own, Partition) else _dealt(own, config, dataset, seed)
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
    if not made.sizes.min():
        raise UserError(
            f"partition: client {int(np.argmin(made.sizes))} has no example; give every client one, or make fewer "
            "clients"
        )
    return made
