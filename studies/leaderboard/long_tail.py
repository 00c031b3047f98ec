"""Partition of a population with long-tailed labels, for `--partition MODULE:dirichlet`."""

from collections.abc import Callable

import numpy as np

from fedjax_sel import Dataset
from fedjax_sel.data.partition import Partition, make

_STREAM = 30  # separates these draws from those of `make`


def dirichlet(ratio: float = 100.0, alpha: float = 0.3) -> Callable[[Dataset, int, int], Partition]:
    """Return a partition of a long-tailed part of the training set; the other examples belong to no client.

    The classes are ordered at random. From the first class all examples are kept, and each next class keeps a fraction
    of the one before, such that the last keeps one in `ratio` (Cao et al. 2019, arXiv 1906.07413). The examples kept
    are divided by `dirichlet`. The test set stays balanced; the clients' own tests have the long tail.

    Args:
        ratio: examples of the most frequent class for each example of the rarest, at least 1.
        alpha: concentration of each client's label proportions.
    """

    def deal(dataset: Dataset, num_clients: int, seed: int) -> Partition:
        rng, labels = np.random.default_rng([seed, _STREAM]), dataset.train_labels
        shares = ratio ** -np.linspace(0.0, 1.0, dataset.num_classes)
        kept = []
        for label, share in zip(rng.permutation(dataset.num_classes), shares):
            places = rng.permutation(np.flatnonzero(labels == label))
            kept.append(places[: max(1, round(share * len(places)))])
        kept = np.sort(np.concatenate(kept))
        part = make("dirichlet", labels[kept], num_clients, seed, alpha=alpha)
        return Partition.from_indices([kept[own] for own in part.indices], len(labels))

    return deal
