"""Who holds what: deals the training examples of a data set to clients."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fedjax_sel.core.names import did_you_mean, shown
from fedjax_sel.data import dirichlet, schemes, skewness, trees
from fedjax_sel.data.schemes import Assignment
from fedjax_sel.data.trees import Tree
from fedjax_sel.errors import UserError

_SCHEMES: dict[str, Callable[..., Assignment]] = {
    "shards": schemes.shards,
    "dirichlet_qp": dirichlet.dirichlet_qp,
    "skewness": skewness.skewness,
    "dirichlet": dirichlet.dirichlet,
    "iid": schemes.iid,
    "natural": schemes.natural,
}

SCHEMES: tuple[str, ...] = tuple(_SCHEMES)
"""Names that ``make`` accepts."""

WITHOUT_LABELS: tuple[str, ...] = ("iid", "natural")
"""Those that do not look at labels, and so deal any targets."""

HANDMADE = "indices"
"""What a partition from lists of indices calls its scheme."""

# One stream of random numbers a purpose, so that asking for a hold-out changes nothing else.
_DEAL, _ORDER, _HOLDOUT = range(3)


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The examples of each client.

    Attributes:
        indices: one int64 array a client: positions of its examples in the training set; in random order where a scheme
            dealt them.
        remainder: int64, positions that no client holds, ascending.
        scheme: the name it was made by.
        num_examples: size of the training set.
    """

    indices: list[np.ndarray]
    remainder: np.ndarray
    scheme: str
    num_examples: int

    @classmethod
    def from_indices(cls, indices: Sequence[Any], num_examples: int) -> Partition:
        """Make a partition by hand.

        Clients may share examples, and examples may stay with nobody. Which of a client's examples are held out, and in
        which order it trains on the others, is drawn all the same.

        Args:
            indices: for each client the positions of its examples in the training set, in an order that is kept.
            num_examples: size n of the training set: of the clients' part, where the server keeps some.

        Returns:
            The partition.

        Raises:
            UserError: no client, a client without examples or with one twice, or a position out of range.
        """
        num_examples = schemes.whole_number("num_examples", num_examples, 1)
        if not isinstance(indices, Sequence | np.ndarray) or isinstance(indices, str) or not len(indices):
            raise UserError(f"indices: {shown(indices)} is no list of clients; give one list of positions a client")
        positions = [_positions(client, own, num_examples) for client, own in enumerate(indices)]
        unassigned = np.ones(num_examples, bool)
        unassigned[np.concatenate(positions)] = False
        return cls(positions, np.flatnonzero(unassigned).astype(np.int64), HANDMADE, num_examples)

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.indices)

    @property
    def sizes(self) -> np.ndarray:
        """Examples a client, int64 ``[N]``."""
        return np.array([len(own) for own in self.indices], np.int64)

    def digest(self) -> str:
        """Return the SHA-256 of the contents, the order inside each client included.

        Returns:
            64 hexadecimal digits, equal on every machine for equal partitions.
        """
        digest = hashlib.sha256(b"fedjax_sel partition 1\n")
        for array in (np.array([self.num_examples, self.num_clients]), self.sizes, *self.indices, self.remainder):
            digest.update(np.ascontiguousarray(array, "<i8").tobytes())
        return digest.hexdigest()

    def label_counts(self, labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Count the examples of each label that each client holds.

        Args:
            labels: int ``[n]``, the training labels.
            num_classes: number of labels; 0 where targets are no classes.

        Returns:
            int64 ``[N, C]``.
        """
        if not num_classes:
            return np.zeros((self.num_clients, 0), np.int64)
        owners = np.repeat(np.arange(self.num_clients), self.sizes)
        own = np.asarray(labels)[np.concatenate(self.indices)].astype(np.int64)
        counts = np.bincount(owners * num_classes + own, minlength=self.num_clients * num_classes)
        return counts.reshape(self.num_clients, num_classes)


def make(scheme: str, labels: Tree, num_clients: int, seed: int, **options: Any) -> Partition:
    """Deal the examples of a training set to clients.

    Args:
        scheme: one of ``SCHEMES``; each is described at its function.
        labels: int ``[n]``, the training labels; for ``iid`` and ``natural`` any targets.
        num_clients: number of clients N.
        seed: non-negative; the same seed gives the same partition on every machine.
        **options: the scheme's own (see ``options``); an option of None keeps its default.

    Returns:
        The partition.

    Raises:
        UserError: no such scheme or option, a value out of range, or data that cannot be dealt so.

    Source: each scheme's own function names its paper.
    """
    check_options(scheme, options)
    labels = _labels(scheme, labels)
    num_clients = schemes.whole_number("num_clients", num_clients, 1)
    if num_clients > len(labels):
        raise UserError(f"{num_clients} clients cannot share {len(labels)} training examples: lower num_clients")
    chosen = {option: value for option, value in options.items() if value is not None}
    assignment = _SCHEMES[scheme](_generator(seed, _DEAL), labels, num_clients, **chosen)
    return _grouped(assignment, num_clients, seed, scheme, len(labels))


def _labels(scheme: str, targets: Tree) -> np.ndarray:
    """Return what a scheme deals by: int [n]; zeros for one that does not look at them."""
    if scheme in WITHOUT_LABELS:
        arrays = [np.asarray(array) for _, array in trees.leaves(targets)]
        if not arrays or not arrays[0].ndim or not len(arrays[0]):
            raise UserError("targets must have at least one example, along the first axis of every array")
        return np.zeros(len(arrays[0]), np.int32)
    labels = np.asarray(targets) if trees.is_array(targets) else None
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        found = "several arrays" if labels is None else f"{labels.dtype} of shape {labels.shape}"
        raise UserError(
            f"labels must be a non-empty list of integers for scheme {scheme!r}, not {found}: give classes as whole "
            f"numbers, one an example, choose {' or '.join(WITHOUT_LABELS)}, or make a partition with "
            "Partition.from_indices"
        )
    return labels


def _positions(client: int, indices: Any, num_examples: int) -> np.ndarray:
    """Return one client's positions as int64, checked."""
    try:
        own = np.asarray(indices)
    except ValueError:
        own = np.empty(1, object)
    if own.ndim != 1 or (len(own) > 0 and own.dtype.kind not in "iu"):
        raise UserError(
            f"indices: client {client} has {own.dtype} of shape {own.shape}; give it a list of positions, whole numbers"
        )
    if not len(own):
        raise UserError(f"indices: client {client} has no examples; give it at least one, or leave it out")
    outside = own[(own < 0) | (own >= num_examples)]
    if len(outside):
        raise UserError(
            f"indices: position {outside[0]} of client {client} is not in 0 to {num_examples - 1}, the training set; "
            "give positions in it"
        )
    positions, counts = np.unique(own, return_counts=True)
    if counts.max() > 1:
        raise UserError(
            f"indices: client {client} has position {positions[counts.argmax()]} twice, and could train on what it "
            "holds out; give it each position once"
        )
    return own.astype(np.int64)


def check_options(scheme: str, names: Iterable[str]) -> None:
    """Refuse a scheme, or names of options, that do not exist; needs no data.

    Args:
        scheme: what should be one of ``SCHEMES``.
        names: what should be options of it.

    Raises:
        UserError: one of them is not.
    """
    known = options(scheme)
    for name in names:
        if name not in known:
            offer = did_you_mean(name, known) if known else "it takes none"
            raise UserError(f"partition scheme {scheme!r} has no option {name!r}: {offer}")


def options(scheme: str) -> dict[str, Any]:
    """Return the options of a scheme, with their defaults.

    Args:
        scheme: one of ``SCHEMES``.

    Returns:
        Option name to default value.

    Raises:
        UserError: no such scheme.
    """
    if scheme not in _SCHEMES:
        raise UserError(f"unknown partition scheme {scheme!r}: {did_you_mean(str(scheme), SCHEMES)}")
    parameters = inspect.signature(_SCHEMES[scheme]).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def holdout_size(size: int, fraction: float) -> int:
    """Return how many of `size` examples a client holds out: floor(fraction * size), but it trains on at least one."""
    # The small term undoes binary rounding: 0.29 * 100 is 28.999999999999996.
    return min(int(fraction * size + 1e-9), max(size - 1, 0))


def split_holdout(partition: Partition, fraction: float, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Keep a share of each client's examples apart.

    Args:
        partition: who holds what.
        fraction: share that is held out, in [0, 1).
        seed: non-negative.

    Returns:
        For each client (train, holdout): int64 positions in random order; the hold-out has ``floor(fraction * n_k)``
        examples, but at least one example stays for training.

    Raises:
        UserError: the fraction is outside [0, 1).

    Source: FedCor's code holds out 20 %.
    """
    if not 0.0 <= fraction < 1.0:
        raise UserError(f"holdout must be a share of at least 0 and below 1, not {fraction!r}")
    rng = _generator(seed, _HOLDOUT)
    parts = []
    for own in partition.indices:
        num_held_out = holdout_size(len(own), fraction)
        order = rng.permutation(own)
        parts.append((order[num_held_out:], order[:num_held_out]))
    return parts


def _generator(seed: int, purpose: int) -> np.random.Generator:
    try:
        seed = operator.index(seed)
    except TypeError:
        seed = -1
    if seed < 0:
        raise UserError("the seed of a partition must be a whole number of at least 0")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,)))


def _grouped(assignment: Assignment, num_clients: int, seed: int, scheme: str, num_examples: int) -> Partition:
    # One shuffle of all examples, then a stable sort by owner: each client's part is shuffled, without a loop.
    order = _generator(seed, _ORDER).permutation(len(assignment.examples))
    order = order[np.argsort(assignment.owners[order], kind="stable")]
    examples = assignment.examples[order].astype(np.int64)
    sizes = np.bincount(assignment.owners, minlength=num_clients)
    unassigned = np.ones(num_examples, bool)
    unassigned[examples] = False
    return Partition(
        indices=np.split(examples, np.cumsum(sizes)[:-1]),
        remainder=np.flatnonzero(unassigned).astype(np.int64),
        scheme=scheme,
        num_examples=num_examples,
    )
