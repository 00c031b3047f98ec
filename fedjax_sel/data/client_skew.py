"""Changes of each client's examples: transformed images (feature skew) and wrong labels (label noise).

The changed examples are stored, one copy of the training set per partition, so that rounds gather them like any others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from fedjax_sel.core.parsing import kind_and_number
from fedjax_sel.data import examples
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition, generator
from fedjax_sel.errors import UserError

_FEATURES, _LABELS = 20, 21  # purposes of random streams, see `partition.generator`
KINDS = ("rotation", "noise", "contrast")
"""Transformations with a strength, `kind:number`; ``turns`` has none."""


def transformed(
    dataset: Dataset, partitions: Sequence[Partition], seeds: Sequence[int], feature_skew: str = "none"
) -> tuple[Dataset, list[Partition]]:
    """Return a data set with a copy of the training examples per partition, and partitions of it.

    Test examples, the server's and those of no client stay unchanged.

    Args:
        dataset: the data.
        partitions: different partitions of its training examples.
        seeds: data seed of each partition.
        feature_skew: ``none``, ``turns``, or ``rotation``, ``noise`` or ``contrast`` with a strength, ``noise:0.1``.

    Raises:
        UserError: the data have no images, or not square ones for ``turns``.
    """
    images = dataset.train_images
    if feature_skew != "none" and not (examples.is_array(images) and examples.is_images(images)):
        raise UserError(
            f"--feature-skew: {feature_skew} changes images, uint8 [n, H, W, channels], but {dataset.name} has other "
            "inputs; remove this flag"
        )
    if feature_skew == "turns" and images.shape[1] != images.shape[2]:
        raise UserError(
            f"--feature-skew: turns needs square images, but {dataset.name} has {images.shape[1]} x {images.shape[2]} "
            "pixels; choose rotation:90"
        )
    inputs, rows, made = [], [], []
    lengths = [int(part.sizes.sum()) + len(part.remainder) for part in partitions]
    for part, seed, first, length in zip(partitions, seeds, np.cumsum([0, *lengths]), lengths):
        change = _transformation(feature_skew, part.num_clients, generator(seed, _FEATURES))
        inputs += [change(client, examples.take(images, own)) for client, own in enumerate(part.indices)]
        inputs.append(examples.take(images, part.remainder))
        rows += [*part.indices, part.remainder]
        *indices, remainder = np.split(first + np.arange(length), np.cumsum(part.sizes))
        made.append(Partition(indices, remainder, part.scheme, sum(lengths)))
    copies = np.concatenate(rows)
    changed = dataclasses.replace(
        dataset,
        train_images=examples.transform(lambda *arrays: np.concatenate(arrays), *inputs),
        train_labels=examples.take(dataset.train_labels, copies),
        client_ids=None if dataset.client_ids is None else dataset.client_ids[copies],
    )
    return changed, made


def mislabeled(
    dataset: Dataset,
    partitions: Sequence[Partition],
    seeds: Sequence[int],
    label_noise: float,
    noisy_clients: float = 1.0,
) -> Dataset:
    """Return a data set in which each noisy client has wrong labels, each another class with equal probability.

    Args:
        dataset: the data.
        partitions: partitions of its training examples that share no example.
        seeds: data seed of each partition.
        label_noise: fraction of a noisy client's labels that are wrong, to within rounding.
        noisy_clients: fraction of the clients that are noisy, drawn at random.

    Raises:
        UserError: the data have fewer than two classes, or no label is wrong.
    """
    if dataset.num_classes < 2:
        raise UserError(
            f"--label-noise: {label_noise:g} needs at least two classes, but {dataset.name} has {dataset.num_classes}; "
            "remove this flag"
        )
    labels, count = dataset.train_labels.copy(), 0
    for part, seed in zip(partitions, seeds, strict=True):
        rng = generator(seed, _LABELS)
        for client in rng.permutation(part.num_clients)[: round(noisy_clients * part.num_clients)]:
            own = part.indices[client]
            wrong = rng.choice(own, round(label_noise * len(own)), replace=False)
            labels[wrong] = (labels[wrong] + rng.integers(1, dataset.num_classes, len(wrong))) % dataset.num_classes
            count += len(wrong)
    if not count:
        raise UserError(f"--label-noise: {label_noise:g} rounds to no wrong label; raise it or --noisy-clients")
    return dataclasses.replace(dataset, train_labels=labels)


def _transformation(
    feature_skew: str, num_clients: int, rng: np.random.Generator
) -> Callable[[int, np.ndarray], np.ndarray]:
    """Draw the transformation of each client's images, a function of client and uint8 ``[m, H, W, channels]``.

    ``noise:S`` follows NIID-Bench (arXiv 2102.02079): client k of 1 to N has standard deviation S k / N.
    """
    if feature_skew == "none":
        return lambda _, images: images
    if feature_skew == "turns":
        turns = rng.integers(4, size=num_clients)
        return lambda client, images: np.rot90(images, turns[client], (1, 2))
    parsed = kind_and_number(feature_skew, KINDS)
    assert parsed is not None, "rejected by the configuration"
    kind, strength = parsed
    draws = rng.uniform(-1.0, 1.0, num_clients)

    def change(client: int, images: np.ndarray) -> np.ndarray:
        from scipy import ndimage  # imported here, because data sets must import quickly

        if kind == "rotation":
            return ndimage.rotate(images, strength * draws[client], (1, 2), reshape=False, order=1, mode="nearest")
        if kind == "noise":
            level = 255.0 * strength * (client + 1) / num_clients
            changed = images + level * rng.standard_normal(images.shape)
        else:
            center = images.mean(axis=(1, 2, 3), keepdims=True)
            changed = center + (1.0 + strength) ** draws[client] * (images - center)
        return np.clip(np.rint(changed), 0, 255).astype(np.uint8)

    return change
