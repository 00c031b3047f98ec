"""The clients' own test examples, and clients that never train."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition, generator, holdout_size

_UNSEEN, _TEST = 10, 11  # purposes of random streams, see `partition.generator`


class ClientTests(NamedTuple):
    """Each client's test examples: first the N training clients, then the clients that never train."""

    positions: list[np.ndarray]  # int64 per client, possibly empty
    in_training_set: bool  # whether they are positions in the training set; False: in the test set
    natural: np.ndarray | None = None  # natural client of each, numbered as in `Dataset.client_ids`


def split(
    partition: Partition, dataset: Dataset, share: float, num_unseen: int, seed: int
) -> tuple[Partition, ClientTests | None]:
    """Set the clients' test examples and the unseen clients aside.

    With `share`, each client tests on this share of its examples; an unseen client tests on all of its examples.
    Without it, natural clients test on their own examples of the test set, if the data set names their owners.

    Returns:
        The partition of the training clients' training examples, and the tests; None without tests.
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
    rng, training, held_out = generator(seed, _TEST), [], []
    for client in seen:
        own = partition.indices[client]
        tested = rng.permutation(own)[: holdout_size(len(own), share)]
        training.append(own[~np.isin(own, tested)])
        held_out.append(tested)
    positions = [*held_out, *(partition.indices[client] for client in unseen)] if own_tests is None else own_tests
    remainder = np.setdiff1d(np.arange(partition.num_examples), np.concatenate(training))
    kept = Partition(training, remainder, partition.scheme, partition.num_examples)
    return kept, ClientTests(positions, own_tests is None, natural)
