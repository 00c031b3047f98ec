"""The data of an experiment: data set, partition, and availability, loaded from names or values."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import data
from fedjax_sel.config import Config
from fedjax_sel.core import files, parsing, plugins
from fedjax_sel.data import partition as partitions
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError
from fedjax_sel.experiment.checking import DATASETS, PARTITIONS, SERVER_SHARE
from fedjax_sel.experiment.values import VALUE, ByHand, Deal, Experiment, experiment_of

MOST_BYTES = 2**28  # largest .npy file; text files are limited to a quarter of it


def load(path: Path, num_clients: int, num_rounds: int) -> np.ndarray:
    """Read an availability trace.

    Args:
        path: a .npy file of Booleans or of 0 and 1, or a text file with values separated by commas or blanks.
        num_clients: N.
        num_rounds: T.

    Returns:
        Availability, bool [columns, N], True where the client is available. All columns of the file, at least T.

    Raises:
        UserError: the file cannot be read, holds other values, or is too small.
    """
    try:
        table = _of_array(path) if path.suffix == ".npy" else _of_text(files.read_text(path, MOST_BYTES // 4))
    except (OSError, ValueError) as error:
        raise UserError(
            f"--available: cannot read {path} ({getattr(error, 'strerror', None) or error}); give a share such as 0.5, "
            "or a file of 0 and 1 with one row per client"
        ) from error
    if table.shape[0] != num_clients or table.shape[1] < num_rounds:
        raise UserError(
            f"--available: {path} covers {table.shape[0]} clients and {table.shape[1]} rounds, but the run has "
            f"{num_clients} clients and {num_rounds} rounds; change --num-clients, --rounds, or the file"
        )
    return np.ascontiguousarray(table.T)


def _of_array(path: Path) -> np.ndarray:
    """Read a trace, bool [clients, columns], from a .npy file."""
    table = files.read_array(path, MOST_BYTES)
    if table.ndim != 2 or table.dtype.kind not in "biuf" or not ((table == 0) | (table == 1)).all():
        raise ValueError("its values are not rows of 0 and 1")
    return table.astype(bool)


def _of_text(text: str) -> np.ndarray:
    """Read a trace, bool [clients, columns], from lines of numbers."""
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if cells := line.replace(",", " ").split():
            rows.append(_row(number, cells))
            if len(rows[-1]) != len(rows[0]):
                raise ValueError(f"line {number} has {len(rows[-1])} numbers, but the first line has {len(rows[0])}")
    if not rows:
        raise ValueError("it is empty")
    return np.stack(rows)


def _row(number: int, cells: list[str]) -> np.ndarray:
    values = {cell: _value(number, cell) for cell in set(cells)}
    return np.fromiter(map(values.__getitem__, cells), bool, len(cells))


def _value(number: int, cell: str) -> bool:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if value not in (0.0, 1.0):
        raise ValueError(f"{cell[:20]!r} in line {number} is neither 0 nor 1")
    return bool(value)


class Given(NamedTuple):
    """An experiment's data: examples, partitions, and availability trace."""

    dataset: Dataset
    partitions: tuple[Partition, ...]  # one per seed
    reachable: np.ndarray | None = None  # availability trace, bool [T or more, N]


def gather(experiment_or_config: Experiment | Config, server_share: float) -> Given:
    """Load an experiment's data and partition it among the clients.

    Args:
        experiment_or_config: the experiment.
        server_share: fraction of the training set that the server keeps.

    Raises:
        UserError: the trace or the data cannot be read, or the data cannot be partitioned as requested.
    """
    experiment = experiment_of(experiment_or_config)
    reachable = trace(experiment)
    dataset = load_data(experiment, server_share)
    return Given(dataset, tuple(deal(experiment, dataset, seed) for seed in experiment.config.run.seeds), reachable)


def load_data(experiment_or_config: Experiment | Config, share: float) -> Dataset:
    """Load the data set, and set the server's share of the training set aside.

    Args:
        experiment_or_config: experiment that holds or names the data set.
        share: fraction of the training set that the server keeps.

    Raises:
        UserError: the data set does not exist, or the share is less than one example.
    """
    experiment = experiment_of(experiment_or_config)
    config = experiment.config
    whole = _whole_dataset(config) if experiment.dataset is None else experiment.dataset
    dataset = whole.give_server(share, config.run.data_seed or 0)
    if share > 0 and not dataset.num_server_examples:
        raise UserError(
            f"--server-validation: {share:g} of {whole.num_train_examples:,} training examples is less than one "
            f"example; give at least {1 / whole.num_train_examples:.2g}"
        )
    return dataset


def _whole_dataset(config: Config) -> Dataset:
    name, arguments = config.data.dataset, dict(config.data.dataset_args)
    if name in config.plugins():
        return DATASETS.make(name, **arguments)
    if arguments:
        raise UserError(f"--dataset-args: {name!r} takes none; use them with --dataset mypackage.module:factory")
    return data.load(name, config.data.data_dir)


def trace(experiment: Experiment) -> np.ndarray | None:
    """Return the availability trace, bool [T or more, N]; None if availability is random.

    Raises:
        UserError: the trace is invalid or too short.
    """
    config = experiment.config
    if experiment.reachable is not None:
        table, wanted = experiment.reachable, (config.run.rounds, config.partition.num_clients)
        if table.shape[0] < wanted[0] or table.shape[1] != wanted[1]:
            raise UserError(
                f"available: the table has shape {table.shape}, but the run has {wanted[0]} rounds and {wanted[1]} "
                "clients; give one row per round and one column per client"
            )
    elif config.selection.available_share is not None:
        return None
    else:
        table = load(Path(config.selection.available), config.partition.num_clients, config.run.rounds)
    if not table[: config.run.rounds].any():
        raise UserError(
            f"available: no client is available in any of the {config.run.rounds} rounds; mark available clients with 1"
        )
    return table


def deal(experiment_or_config: Experiment | Config, dataset: Dataset, seed: int) -> Partition:
    """Make the partition of one seed.

    Raises:
        UserError: the partition is impossible, or leaves a client without data.
    """
    experiment = experiment_of(experiment_or_config)
    config, settings = experiment.config, experiment.config.partition
    data_seed = seed if config.run.data_seed is None else config.run.data_seed
    own = _plugin_function(config) if experiment.partition is None else experiment.partition
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


def _plugin_function(config: Config) -> Deal | None:
    """Return a plug-in's partition function; None if the configuration names a scheme."""
    name, arguments = config.partition.partition, dict(config.partition.partition_args)
    if not plugins.is_plugin(name):
        if arguments:
            raise UserError(
                f"--partition-args: {name!r} takes none; use them with --partition mypackage.module:factory"
            )
        return None
    made = PARTITIONS.make(name, **arguments)
    if not callable(made):
        raise UserError(
            f"--partition {name}: the factory returned a value of type {type(made).__name__}; return a function of "
            "data set, number of clients and seed"
        )
    return made


def _check_position_base(own: Partition | Deal, config: Config, dataset: Dataset) -> None:
    """Reject fixed example positions if the strategy implicitly reserves a part of the training set for the server."""
    counted = own.num_examples if isinstance(own, Partition) else None  # lists do not state the size of their data set
    fixed = isinstance(own, Partition | ByHand) and counted != dataset.num_train_examples
    if fixed and config.data.server_validation is None and dataset.num_server_examples:
        raise UserError(
            f"partition: {config.selection.algo.removeprefix(VALUE)} reserves {100 * SERVER_SHARE:g} % of the training "
            f"examples for the server, and positions refer to the rest; give server_validation={SERVER_SHARE} and "
            "such positions, or a function of the data set"
        )


def _call(deal: Deal, config: Config, dataset: Dataset, seed: int) -> Any:
    try:
        return deal(dataset, config.partition.num_clients, seed)
    except UserError:
        raise
    except RAISED_BY_PLUGINS as error:
        name = config.partition.partition.removeprefix(VALUE)
        raise UserError(
            f"--partition {name}: dealing with seed {seed} raised {parsing.reason(error)}; fix the function"
        ) from error


def _own_partition(own: Partition | Deal, config: Config, dataset: Dataset, seed: int) -> Partition:
    _check_position_base(own, config, dataset)
    made: Any = own if isinstance(own, Partition) else _call(own, config, dataset, seed)
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
