"""A partitioned data set on the devices: examples, and each client's segments."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel.data import examples as trees
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.examples import Tree
from fedjax_sel.data.partition import ClientTests, Partition, split_holdout
from fedjax_sel.timing import Timing


def take(images: Tree, rows: jax.Array) -> Any:
    """Return inputs ``[n, ...]`` at given positions, int32 ``[...]``, such as uint8 [..., H, W, channels]."""

    def of_one(array: jax.Array) -> jax.Array:
        # Gather rows of one long axis: XLA's CPU gather is three times slower on small trailing axes.
        return array.reshape(array.shape[0], -1)[rows].reshape(*rows.shape, *array.shape[1:])

    return jax.tree.map(of_one, images)


class Federation(NamedTuple):
    """Inputs, targets and their clients. `order[s, starts[s, k] :]` lists client k's examples, held-out ones last."""

    images: Tree  # uint8 [n, H, W, channels]
    labels: Tree  # int32 [n]
    test_images: Tree  # uint8 [m, H, W, channels]
    test_labels: Tree  # int32 [m]
    server_images: Tree  # uint8 [v, H, W, channels], the server's examples; v = 0 if it holds none
    server_labels: Tree  # int32 [v]
    scale: Any  # float32 [channels], normalized = pixel * scale + shift; None for inputs that are not images
    shift: Any  # float32 [channels], or None
    order: jax.Array  # int32 [S, W], W >= n since clients may share examples; unassigned examples come last
    starts: jax.Array  # int32 [S, N]
    train_sizes: jax.Array  # int32 [S, N]
    holdout_sizes: jax.Array  # int32 [S, N]
    owner: jax.Array  # int32 [S, W], the client that trains on each entry of `order`; N if no client does
    label_counts: jax.Array  # int32 [S, N, C], training and held-out examples
    availability_trace: jax.Array | None = None  # bool [T or more, N]; None without a trace
    availability_table: jax.Array | None = None  # bool [S, T, N], drawn by a mode of --available; None without one
    timing: Timing | None = None  # speed of each client's device, leaves float32 [S, N]; None without a clock
    deadline: jax.Array | None = None  # seconds after which a report is late, float32 [S]; None: no deadline
    client_tests: "ClientTestTable | None" = None  # the clients' own test examples; None without any

    @property
    def sizes(self) -> jax.Array:
        """Numbers of training and held-out examples per client, int32 [S, N]."""
        return self.train_sizes + self.holdout_sizes


PER_REPLICATE = (
    "order", "starts", "train_sizes", "holdout_sizes", "owner", "label_counts", "availability_table", "timing",
    "deadline", "client_tests",
)  # fmt: skip
"""The fields of a Federation with the leading axis [S]; replicates share the others."""


def seeds_tables(federation: Federation, seeds: slice) -> dict[str, Any]:
    """Return the fields of some seeds, by name, with leaves [seeds, ...]."""
    return {name: jax.tree.map(lambda leaf: leaf[seeds], getattr(federation, name)) for name in PER_REPLICATE}


class ClientTestTable(NamedTuple):
    """The clients' test examples; U clients that never train follow the N training clients."""

    order: Any  # positions in the training or the test set, int32 [S, W]
    owner: Any  # the client of each entry of `order`, int32 [S, W]; N + U for padding
    sizes: Any  # test examples per client, int32 [S, N + U]


class Segment(NamedTuple):
    """A range of one client's examples: `size` entries of `order[replicate]`, beginning at `start`."""

    replicate: jax.Array
    start: jax.Array
    size: jax.Array


def build(
    dataset: Dataset,
    partitions: Sequence[Partition],
    holdout: float,
    seeds: Sequence[int],
    availability_trace: np.ndarray | None = None,
    client_tests: Sequence[ClientTests] | None = None,
) -> Federation:
    """Build a federation of NumPy arrays, which `jax.device_put` puts on devices.

    Each replicate has a partition, all of them with equal numbers of clients, and a seed, which draws the held-out
    examples, the share `holdout` per client. The trace is bool [T, N].
    """
    tables = [_tables(dataset, partition, holdout, seed) for partition, seed in zip(partitions, seeds, strict=True)]
    width = max(len(table["order"]) for table in tables)
    for table in tables:
        unused = width - len(table["order"])
        table["order"] = np.pad(table["order"], (0, unused))
        table["owner"] = np.pad(table["owner"], (0, unused), constant_values=partitions[0].num_clients)
    fields: dict[str, Any] = {name: np.stack([table[name] for table in tables]) for name in tables[0]}
    fields["availability_trace"] = availability_trace
    fields["client_tests"] = None if client_tests is None else _tests(client_tests)
    scale, shift = affine(dataset)
    return Federation(
        dataset.train_images, dataset.train_labels,
        dataset.test_images, dataset.test_labels, dataset.server_images, dataset.server_labels,
        scale, shift, **fields,
    )  # fmt: skip


def _tests(client_tests: Sequence[ClientTests]) -> ClientTestTable:
    sizes = np.array([[len(own) for own in tests.positions] for tests in client_tests], np.int32)
    num_clients, width = sizes.shape[1], max(1, int(sizes.sum(axis=1).max()))

    def padded(values: np.ndarray, padding: int) -> np.ndarray:
        return np.pad(values, (0, width - len(values)), constant_values=padding).astype(np.int32)

    order = np.stack([padded(np.concatenate(tests.positions), 0) for tests in client_tests])
    owner = np.stack([padded(np.repeat(np.arange(num_clients), own), num_clients) for own in sizes])
    return ClientTestTable(order, owner, sizes)


def affine(dataset: Dataset) -> tuple[Any, Any]:
    """Return the scale and the shift of pixels, with None for inputs that are not images."""
    if dataset.std is None:
        return None, None
    inputs = dataset.train_images
    scale = trees.transform(
        lambda _, std: None if std is None else 1.0 / (255.0 * np.float32(std)), inputs, dataset.std
    )
    shift = trees.transform(
        lambda _, mean, std: None if std is None else -np.float32(mean) / np.float32(std),
        inputs, dataset.mean, dataset.std,
    )  # fmt: skip
    return scale, shift


def _tables(dataset: Dataset, partition: Partition, holdout: float, seed: int) -> dict[str, np.ndarray]:
    parts = split_holdout(partition, holdout, seed)
    num_clients = len(parts)
    train_sizes = np.array([len(train) for train, _ in parts], np.int32)
    holdout_sizes = np.array([len(held) for _, held in parts], np.int32)
    sizes = train_sizes + holdout_sizes
    order = np.concatenate([*(examples for part in parts for examples in part), partition.remainder])
    # Each client's block holds its ID once per training example, then N once per held-out example.
    numbers = np.stack([np.arange(num_clients), np.full(num_clients, num_clients)], axis=1).reshape(-1)
    owner = np.repeat(numbers, np.stack([train_sizes, holdout_sizes], axis=1).reshape(-1))
    return {
        "order": order.astype(np.int32),
        "starts": (np.cumsum(sizes) - sizes).astype(np.int32),
        "train_sizes": train_sizes,
        "holdout_sizes": holdout_sizes,
        "owner": np.pad(owner, (0, len(partition.remainder)), constant_values=num_clients).astype(np.int32),
        "label_counts": partition.label_counts(dataset.train_labels, dataset.num_classes).astype(np.int32),
    }


def train_part(federation: Federation, replicate: jax.Array, client: jax.Array) -> Segment:
    """Return the examples that a client trains on."""
    return Segment(replicate, federation.starts[replicate, client], federation.train_sizes[replicate, client])


def all_parts(federation: Federation, replicate: jax.Array, client: jax.Array) -> Segment:
    """Return all examples of a client."""
    return Segment(replicate, federation.starts[replicate, client], federation.sizes[replicate, client])


def loss_part(federation: Federation, replicate: jax.Array, client: jax.Array, loss_on: str) -> Segment:
    """Return the examples of ``train``, ``holdout`` (falls back to ``train`` if empty), or ``all``."""
    if loss_on == "all":
        return all_parts(federation, replicate, client)
    train = train_part(federation, replicate, client)
    if loss_on == "train":
        return train
    held = federation.holdout_sizes[replicate, client]
    start = jnp.where(held > 0, train.start + train.size, train.start)
    return Segment(replicate, start, jnp.where(held > 0, held, train.size))


def gather(federation: Federation, segment: Segment, positions: jax.Array) -> tuple[Any, Any]:
    """Return inputs, such as float32 [B, H, W, channels], and targets at positions of a segment; normalize images.

    `positions` is int32 [B]; positions beyond the end repeat the last example.
    """
    inside = jnp.minimum(positions, segment.size - 1)
    rows = federation.order[segment.replicate, segment.start + inside]
    targets = jax.tree.map(lambda array: array[rows], federation.labels)
    return normalize(federation, take(federation.images, rows)), targets


def block(federation: Federation, inputs: Any, start: jax.Array, size: int) -> Any:
    """Return `size` consecutive inputs with images normalized, [size, ...]."""
    cut = jax.tree.map(lambda array: lax.dynamic_slice_in_dim(array, start, size), inputs)
    return normalize(federation, cut)


def normalize(federation: Federation, images: Any) -> Any:
    """Normalize uint8 pixels to float32 by the data set's mean and standard deviation; keep all other inputs."""
    return scaled(images, federation.scale, federation.shift)


def scaled(images: Any, scale: Any, shift: Any) -> Any:
    """Scale and shift images, by the values of `affine`; keep all other inputs."""
    if scale is None:
        return images
    return jax.tree.map(
        lambda array, scale, shift: array if scale is None else array.astype(jnp.float32) * scale + shift,
        images, scale, shift,
    )  # fmt: skip
