"""The arrays of one image-classification data set."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

# FedCor's code normalises Fashion-MNIST with MNIST's constants and CIFAR-10 with one half (specification, 2.8).
# The accuracy targets of the papers depend on it, so these sets do not get statistics of their own.
_PUBLISHED_NORMALISATION: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}

_CHUNK_EXAMPLES = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of one data set, on the host.

    Attributes:
        name: the name it was loaded by.
        train_images: uint8 ``[n, H, W, C]``; may be a read-only memory map.
        train_labels: int32 ``[n]``, in ``0 .. num_classes - 1``.
        test_images: uint8 ``[m, H, W, C]``.
        test_labels: int32 ``[m]``.
        num_classes: number of labels that can occur.
        mean: per channel, of pixels scaled to [0, 1]; subtract it.
        std: per channel, of pixels scaled to [0, 1]; divide by it.
        source: where the pixels come from, as a phrase for reports.
        client_ids: int ``[n]``, the natural client of each training example, or None where there is none.
        held_by_server: images and labels that the server kept of the training set, or None.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str
    client_ids: np.ndarray | None = None
    held_by_server: tuple[np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            images, labels = getattr(self, f"{split}_images"), getattr(self, f"{split}_labels")
            if images.dtype != np.uint8 or images.ndim != 4 or labels.dtype != np.int32:
                raise TypeError(f"{split}: images must be uint8 [n, H, W, C] and labels int32 [n]")
            if labels.shape != images.shape[:1]:
                raise ValueError(f"{split}: {images.shape[0]} images but labels of shape {labels.shape}")

    def digest(self) -> str:
        """SHA-256 of the images and labels of both splits, 64 hexadecimal digits."""
        digest = hashlib.sha256(b"fedjax_sel dataset 1\n")
        server = self.held_by_server or ()
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels, *server):
            digest.update(str((array.shape, array.dtype)).encode())
            for first in range(0, len(array), _CHUNK_EXAMPLES):
                digest.update(array[first : first + _CHUNK_EXAMPLES].tobytes())
        return digest.hexdigest()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return tuple(self.train_images.shape[1:])

    @property
    def server_images(self) -> np.ndarray:
        """uint8 ``[v, H, W, C]``: what the server holds itself, v = 0 without."""
        return self.train_images[:0] if self.held_by_server is None else self.held_by_server[0]

    @property
    def server_labels(self) -> np.ndarray:
        """int32 ``[v]``."""
        return self.train_labels[:0] if self.held_by_server is None else self.held_by_server[1]

    def give_server(self, share: float, seed: int) -> Dataset:
        """A data set whose server keeps a share of the training examples of every label; clients share the rest.

        Args:
            share: of the training examples; every label gives its share to within one example.
            seed: of the draw.

        Returns:
            The data set with fewer training examples, in their old order.
        """
        generator = np.random.default_rng([seed, 0x5E])
        kept = np.zeros(len(self.train_labels), bool)
        exact = share * np.bincount(self.train_labels, minlength=self.num_classes)
        sizes = np.floor(exact).astype(int)
        largest_remainders = np.argsort(sizes - exact, kind="stable")
        sizes[largest_remainders[: round(share * len(kept)) - sizes.sum()]] += 1
        for label, size in enumerate(sizes):
            kept[generator.permutation(np.flatnonzero(self.train_labels == label))[:size]] = True
        if not kept.any():
            return self
        return dataclasses.replace(
            self,
            train_images=np.asarray(self.train_images[~kept]),
            train_labels=self.train_labels[~kept],
            client_ids=None if self.client_ids is None else self.client_ids[~kept],
            held_by_server=(np.asarray(self.train_images[kept]), self.train_labels[kept]),
        )

    @classmethod
    def build(cls, name: str, train_images: np.ndarray, **fields: Any) -> Dataset:
        """Makes a data set with the normalisation that belongs to its name.

        Args:
            name: name of the data set.
            train_images: uint8 ``[n, H, W, C]``.
            **fields: the other fields, without ``mean`` and ``std``.

        Returns:
            The data set.
        """
        mean, std = normalisation(name, train_images)
        return cls(name=name, train_images=train_images, mean=mean, std=std, **fields)


def normalisation(name: str, images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel that inputs are normalised with.

    Args:
        name: name of the data set; three sets have published constants.
        images: uint8 ``[n, H, W, C]``, read in chunks, so that a memory map stays one.

    Returns:
        Means and standard deviations, one a channel, of pixels scaled to [0, 1].
        A constant channel gets standard deviation 1.

    Source: the constants are those of FedCor's code.
    """
    if name in _PUBLISHED_NORMALISATION and len(_PUBLISHED_NORMALISATION[name][0]) == images.shape[-1]:
        return _PUBLISHED_NORMALISATION[name]
    # A histogram of the 256 levels gives exact moments in one cheap pass.
    levels = np.arange(256) / 255.0
    counts = np.zeros((images.shape[-1], 256), np.int64)
    for start in range(0, len(images), _CHUNK_EXAMPLES):
        chunk = images[start : start + _CHUNK_EXAMPLES]
        for channel in range(images.shape[-1]):
            counts[channel] += np.bincount(chunk[..., channel].ravel(), minlength=256)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    mean = shares @ levels
    std = np.sqrt(np.maximum(shares @ levels**2 - mean**2, 0.0))
    std = np.where(std > 1e-6, std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
