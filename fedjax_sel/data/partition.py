"""Partitions: the assignment of a data set's training examples to clients, hold-outs, and clients' own tests."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core.parsing import one_of, scalar, shown
from fedjax_sel.core.plugins import convert_parameters
from fedjax_sel.data import examples as trees
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.examples import Tree
from fedjax_sel.data.schemes import TABLE, WITHOUT_LABELS
from fedjax_sel.errors import UserError

SCHEMES: tuple[str, ...] = tuple(TABLE)
"""Names of the schemes that ``make`` accepts."""

# One random stream per purpose, so that a hold-out does not change the assignment.
_DEAL, _ORDER, _HOLDOUT = range(3)
_UNSEEN, _TEST = 10, 11


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The examples of each client.

    Attributes:
        indices: one int64 array per client, the positions of its examples in the training set. Schemes shuffle them.
        remainder: int64, positions that no client holds, ascending.
        scheme: name of the scheme.
        num_examples: size of the training set.
    """

    indices: list[np.ndarray]
    remainder: np.ndarray
    scheme: str
    num_examples: int

    @classmethod
    def from_indices(cls, indices: Sequence[Any], num_examples: int) -> Partition:
        """Make a partition from lists of positions.

        Clients may share examples, and examples may remain unassigned.

        Args:
            indices: per client, the positions of its examples in the training set; their order is kept.
            num_examples: size n of the training set, without the server's examples.

        Raises:
            UserError: there is no client, a client has no examples or one example twice, or a position is out of range.
        """
        num_examples = _whole_number("num_examples", num_examples, 1)
        if not isinstance(indices, Sequence | np.ndarray) or isinstance(indices, str) or not len(indices):
            raise UserError(f"indices: {shown(indices)} is no list of clients; give one list of positions per client")
        positions = [_positions(client, own, num_examples) for client, own in enumerate(indices)]
        return cls(positions, np.setdiff1d(np.arange(num_examples), np.concatenate(positions)), "indices", num_examples)

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.indices)

    @property
    def sizes(self) -> np.ndarray:
        """Number of examples per client, int64 ``[N]``."""
        return np.array([len(own) for own in self.indices], np.int64)

    def digest(self) -> str:
        """Return the SHA-256 of the contents, including the order within each client; equal on all machines."""
        digest = hashlib.sha256(b"fedjax_sel partition 1\n")
        for array in (np.array([self.num_examples, self.num_clients]), self.sizes, *self.indices, self.remainder):
            digest.update(np.ascontiguousarray(array, "<i8").tobytes())
        return digest.hexdigest()

    def label_counts(self, labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Count the examples of each label per client, int64 ``[N, C]``; C = 0 for targets that are not classes."""
        if not num_classes:
            return np.zeros((self.num_clients, 0), np.int64)
        owners = np.repeat(np.arange(self.num_clients), self.sizes)
        own = np.asarray(labels)[np.concatenate(self.indices)].astype(np.int64)
        counts = np.bincount(owners * num_classes + own, minlength=self.num_clients * num_classes)
        return counts.reshape(self.num_clients, num_classes)


class Heterogeneity(NamedTuple):
    """Means over clients of distances between a client's label shares and the population's, and of their diversity."""

    total_variation: float  # half the sum over labels of absolute differences; 0 to 1
    earth_mover: float  # the sum itself, as in GEMD; 0 to 2
    hellinger: float  # 0 to 1
    jensen_shannon: float  # square root of the divergence in bits; 0 to 1
    effective_classes: float  # exp(entropy); 1 to C


def heterogeneity(label_counts: np.ndarray, population: np.ndarray) -> Heterogeneity:
    """Measure how much the clients' labels differ.

    Args:
        label_counts: examples per client and label, int ``[N, C]``, at least one per client.
        population: examples per label, int ``[C]``.
    """
    from scipy import stats  # imported here, because this package must import quickly
    from scipy.spatial import distance

    shares = label_counts / label_counts.sum(axis=1, keepdims=True)
    reference = population / population.sum()
    earth_mover = np.abs(shares - reference).sum(axis=1)
    hellinger = np.linalg.norm(np.sqrt(shares) - np.sqrt(reference), axis=1) / np.sqrt(2.0)
    jensen_shannon = distance.jensenshannon(shares.T, reference[:, None], base=2)
    effective = np.exp(stats.entropy(shares, axis=1))
    per_client = (earth_mover / 2, earth_mover, hellinger, jensen_shannon, effective)
    return Heterogeneity(*(float(values.mean()) for values in per_client))


def make(scheme: str, labels: Tree, num_clients: int, seed: int, **options: Any) -> Partition:
    """Assign the examples of a training set to clients.

    Args:
        scheme: one of ``SCHEMES``; the scheme's function documents it and its paper.
        labels: int ``[n]``, the training labels; for ``iid`` and ``natural`` any targets.
        num_clients: number of clients N.
        seed: non-negative seed; the same seed gives the same partition on all machines.
        **options: keyword arguments of the scheme's function; None keeps the default.

    Raises:
        UserError: the scheme or an option is unknown, a value is out of range, or the data do not fit the scheme.
    """
    function = TABLE[one_of("partition scheme", scheme, SCHEMES)]
    labels = _labels(scheme, labels)
    num_clients = _whole_number("num_clients", num_clients, 1)
    if num_clients > len(labels):
        raise UserError(f"{num_clients} clients cannot share {len(labels)} training examples: lower num_clients")
    chosen = {option: value for option, value in options.items() if value is not None}
    deal = functools.partial(function, generator(seed, _DEAL), labels, num_clients)
    assignment = deal(**convert_parameters("options", f"scheme {scheme!r}", deal, chosen))
    # One shuffle of all examples and a stable sort by owner shuffle each client's part without a loop.
    order = generator(seed, _ORDER).permutation(len(assignment.examples))
    order = order[np.argsort(assignment.owners[order], kind="stable")]
    assigned = assignment.examples[order].astype(np.int64)
    sizes = np.bincount(assignment.owners, minlength=num_clients)
    parts = np.split(assigned, np.cumsum(sizes)[:-1])
    return Partition(parts, np.setdiff1d(np.arange(len(labels)), assigned), scheme, len(labels))


def _labels(scheme: str, targets: Tree) -> np.ndarray:
    """Return the labels for a scheme, int [n]; zeros for a scheme that ignores labels."""
    if scheme in WITHOUT_LABELS:
        return np.zeros(trees.num_examples(targets), np.int32)
    labels = np.asarray(targets) if trees.is_array(targets) else None
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        found = "several arrays" if labels is None else f"{labels.dtype} of shape {labels.shape}"
        raise UserError(
            f"labels must be a list of integers for scheme {scheme!r}, not {found}: choose "
            f"{' or '.join(WITHOUT_LABELS)}, or make a partition with Partition.from_indices"
        )
    return labels


def _positions(client: int, indices: Any, num_examples: int) -> np.ndarray:
    own = np.asarray(indices)
    if not own.size:
        raise UserError(f"indices: client {client} has no examples; give it at least one, or leave it out")
    if own.ndim != 1 or own.dtype.kind not in "iu":
        raise UserError(f"indices: client {client} has {own.dtype} of shape {own.shape}; give whole numbers, [m]")
    outside = own[(own < 0) | (own >= num_examples)]
    if len(outside):
        raise UserError(f"indices: {outside[0]} of client {client} is not in 0 to {num_examples - 1}, the training set")
    if len(np.unique(own)) < len(own):
        raise UserError(f"indices: client {client} has a position twice; give each position once")
    return own.astype(np.int64)


def holdout_size(size: int, fraction: float) -> int:
    """Return the number of held-out examples: floor(fraction * size), with at least one example left for training."""
    # The small term undoes binary rounding: 0.29 * 100 is 28.999999999999996.
    return min(int(fraction * size + 1e-9), max(size - 1, 0))


def split_holdout(partition: Partition, fraction: float, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Hold out a share in [0, 1) of each client's examples (FedCor's code: 20 %).

    Returns per client (train, holdout), int64 positions in random order; `holdout_size` gives the size of the hold-out.
    """
    rng = generator(seed, _HOLDOUT)
    parts = []
    for own in partition.indices:
        num_held_out = holdout_size(len(own), fraction)
        order = rng.permutation(own)
        parts.append((order[num_held_out:], order[:num_held_out]))
    return parts


class ClientTests(NamedTuple):
    """Each client's test examples: first the N training clients, then the clients that never train."""

    positions: list[np.ndarray]  # int64 per client, possibly empty
    in_training_set: bool  # whether they are positions in the training set; False: in the test set
    natural: np.ndarray | None = None  # natural client of each, numbered as in `Dataset.client_ids`


def split_tests(
    partition: Partition,
    dataset: Dataset,
    share: float,
    num_unseen: int,
    seed: int,
    originals: Sequence[np.ndarray] | None = None,
) -> tuple[Partition, ClientTests | None]:
    """Set the clients' test examples and the unseen clients aside.

    With `share`, each client tests on this share of its examples; an unseen client tests on all of its examples.
    Without it, natural clients, unseen ones too, test on their own examples of the test set, if the data set names
    their owners. No client trains on an example that another one tests on; `originals` names the examples, one array
    per client, if the partition is of copies.

    Returns:
        The partition of the training clients' training examples, and the tests; None without tests.

    Raises:
        UserError: no client has a test example, or other clients test on all examples of a training client.
    """
    own_tests, natural = None, None
    unseen = np.sort(generator(seed, _UNSEEN).permutation(partition.num_clients)[:num_unseen])
    seen = np.setdiff1d(np.arange(partition.num_clients), unseen)
    if partition.scheme == "natural" and dataset.client_ids is not None:
        natural = np.array([dataset.client_ids[partition.indices[client][0]] for client in (*seen, *unseen)])
    if share == 0 and dataset.test_clients is not None and natural is not None:
        own_tests = [np.flatnonzero(dataset.test_clients == client) for client in natural]
    elif share == 0 and not num_unseen:
        return partition, None
    rng = generator(seed, _TEST)
    own, names = partition.indices, partition.indices if originals is None else originals
    chosen = [rng.permutation(len(own[client]))[: holdout_size(len(own[client]), share)] for client in seen]
    chosen += [np.arange(len(own[client])) for client in unseen]
    held_out = [own[client][places] for client, places in zip((*seen, *unseen), chosen)]
    if share and not any(map(len, held_out)):
        raise UserError(f"--client-test: {share:g} of each client's examples is less than one; give a larger share")
    tested = np.concatenate([names[client][places] for client, places in zip((*seen, *unseen), chosen)])
    training = [own[client][~np.isin(names[client], tested)] for client in seen]
    for client, left in zip(seen, training):
        if not len(left):
            raise UserError(
                f"client {client} has no training example, because clients share examples, and others test on its own; "
                "lower --client-test or --unseen-clients, or give clients more examples"
            )
    positions = held_out if own_tests is None else own_tests
    remainder = np.setdiff1d(np.arange(partition.num_examples), np.concatenate(training))
    kept = Partition(training, remainder, partition.scheme, partition.num_examples)
    return kept, ClientTests(positions, own_tests is None, natural)


def _whole_number(name: str, value: Any, least: int) -> int:
    number = scalar(name, value, int)
    if number < least:
        raise UserError(f"{name}: {number} is below {least}; give a whole number of at least {least}")
    return number


def generator(seed: int, purpose: int) -> np.random.Generator:
    """Return the random generator of a partition's seed for a purpose."""
    seed = _whole_number("the seed of a partition", seed, 0)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,)))
