"""The arrays of one data set: what models see, and what they are to say."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedjax_sel.data import examples, huggingface, pytorch, trees
from fedjax_sel.data.normalisation import mean_and_std
from fedjax_sel.data.trees import Tree
from fedjax_sel.errors import UserError

_CHUNK_EXAMPLES = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets of one data set, on the host: arrays, or dicts and tuples of arrays, one entry an example.

    Inputs are called images and targets labels, which they are in most sets.

    Attributes:
        name: the name it was loaded by.
        train_images: inputs: uint8 ``[n, H, W, C]`` (images; may be a read-only memory map), float32 or int32
            ``[n, ...]``, or a tree of such.
        train_labels: targets: int32 ``[n]``, in ``0 .. num_classes - 1``, where they are classes; otherwise float32 or
            int32 ``[n, ...]``, or a tree of such.
        test_images: the same with m examples.
        test_labels: the same with m examples.
        num_classes: number of labels that can occur; 0 where targets are not one class an example.
        mean: per channel, of pixels scaled to [0, 1]; subtract it. None where inputs are no images; in a tree of inputs
            one entry an array.
        std: per channel, of pixels scaled to [0, 1]; divide by it. None likewise.
        source: where the examples come from, as a phrase for reports.
        client_ids: int ``[n]``, the natural client of each training example, or None where there is none.
        held_by_server: inputs and targets that the server kept of the training set, or None.

    Raises:
        UserError: arrays of other kinds, or without one target for each input.
    """

    name: str
    train_images: Tree
    train_labels: Tree
    test_images: Tree
    test_labels: Tree
    num_classes: int
    mean: Any
    std: Any
    source: str
    client_ids: np.ndarray | None = None
    held_by_server: tuple[Tree, Tree] | None = None

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            labels = getattr(self, f"{part}_labels")
            examples.check(part, getattr(self, f"{part}_images"), labels)
            if self.num_classes > 0:
                examples.check_range(f"{part} targets", labels, self.num_classes)

    @property
    def has_classes(self) -> bool:
        """Whether targets are one class an example, so that there are label histograms and GEMD."""
        return self.num_classes > 0

    @property
    def num_train_examples(self) -> int:
        """Training examples, without those that the server keeps."""
        return trees.num_examples(self.train_images)

    @property
    def num_test_examples(self) -> int:
        """Test examples."""
        return trees.num_examples(self.test_images)

    @property
    def num_server_examples(self) -> int:
        """Examples that the server holds itself."""
        return trees.num_examples(self.server_images)

    def digest(self) -> str:
        """Return the SHA-256 of the inputs and targets of both splits, 64 hexadecimal digits.

        Names, dtypes, shapes and bytes are in it, and the number of classes; of images with classes no names, and the
        number only where there are more than the labels show, so that the digests in older run folders stay right. So
        is a normalisation other than that of the name and the images (`build`).
        """
        parts = {
            "train_images": self.train_images,
            "train_labels": self.train_labels,
            "test_images": self.test_images,
            "test_labels": self.test_labels,
        }
        if self.held_by_server is not None:
            parts |= {"server_images": self.held_by_server[0], "server_labels": self.held_by_server[1]}
        classic = self.has_classes and trees.is_array(self.train_images) and examples.is_images(self.train_images)
        highest = 0  # label
        digest = hashlib.sha256(
            b"fedjax_sel dataset 1\n" if classic else f"fedjax_sel dataset 2\n{self.num_classes}\n".encode()
        )
        for part, tree in parts.items():
            for name, array in trees.leaves(tree, part):
                highest = max(highest, int(array.max(initial=0))) if part.endswith("labels") and classic else highest
                digest.update(str((array.shape, array.dtype) if classic else (name, array.shape, array.dtype)).encode())
                for first in range(0, len(array), _CHUNK_EXAMPLES):
                    digest.update(array[first : first + _CHUNK_EXAMPLES].tobytes())
        if classic and self.num_classes > highest + 1:
            digest.update(f"{self.num_classes} classes".encode())
        own, usual = (_applied(self.train_images, *moments) for moments in ((self.mean, self.std), self._usual()))
        if own != usual:
            digest.update(f"normalised {own}".encode())
        return digest.hexdigest()

    def _usual(self) -> tuple[Any, Any]:
        """Return the means and standard deviations that `build` would choose, of what the server keeps, too."""
        kept = () if self.held_by_server is None else (self.held_by_server[0],)
        return _normalisation(self.name, self.train_images, *kept)

    @property
    def image_shape(self) -> Any:
        """Shape of one input, for images height, width, channels; a tree of shapes where inputs are a tree."""
        return trees.transform(lambda array: tuple(array.shape[1:]), self.train_images)

    @property
    def server_images(self) -> Tree:
        """Inputs that the server holds itself, such as uint8 ``[v, H, W, C]``, v = 0 without."""
        return trees.take(self.train_images, slice(0)) if self.held_by_server is None else self.held_by_server[0]

    @property
    def server_labels(self) -> Tree:
        """Targets of the examples that the server holds itself, such as int32 ``[v]``."""
        return trees.take(self.train_labels, slice(0)) if self.held_by_server is None else self.held_by_server[1]

    def give_server(self, share: float, seed: int) -> Dataset:
        """Return a data set whose server keeps a share of every label's training examples; clients share the rest.

        Args:
            share: of the training examples; every label gives its share to within one example. Without classes the
                examples are drawn uniformly.
            seed: of the draw.

        Returns:
            The data set with fewer training examples, in their old order.
        """
        generator = np.random.default_rng([seed, 0x5E])
        kept = np.zeros(self.num_train_examples, bool)
        if self.has_classes:
            exact = share * np.bincount(self.train_labels, minlength=self.num_classes)
            sizes = np.floor(exact).astype(int)
            largest_remainders = np.argsort(sizes - exact, kind="stable")
            sizes[largest_remainders[: round(share * len(kept)) - sizes.sum()]] += 1
            for label, size in enumerate(sizes):
                kept[generator.permutation(np.flatnonzero(self.train_labels == label))[:size]] = True
        else:
            kept[generator.permutation(len(kept))[: round(share * len(kept))]] = True
        if not kept.any():
            return self

        def part(rows: np.ndarray) -> tuple[Tree, Tree]:
            inputs = trees.transform(lambda array: np.asarray(array[rows]), self.train_images)
            return inputs, trees.take(self.train_labels, rows)

        inputs, targets = part(~kept)
        return dataclasses.replace(
            self,
            train_images=inputs,
            train_labels=targets,
            client_ids=None if self.client_ids is None else self.client_ids[~kept],
            held_by_server=part(kept),
        )

    @classmethod
    def build(cls, name: str, train_images: Tree, **fields: Any) -> Dataset:
        """Make a data set with the normalisation that belongs to its name.

        Args:
            name: name of the data set.
            train_images: inputs, of which uint8 ``[n, H, W, C]`` are normalised.
            **fields: the other fields, without ``mean`` and ``std``.

        Returns:
            The data set.
        """
        mean, std = _normalisation(name, train_images)
        return cls(name=name, train_images=train_images, mean=mean, std=std, **fields)

    @classmethod
    def from_arrays(
        cls,
        *,
        train: tuple[Tree, Tree],
        test: tuple[Tree, Tree],
        client_ids: Any = None,
        num_classes: int | None = None,
        name: str = "arrays",
    ) -> Dataset:
        """Make a data set of anybody's arrays.

        Inputs and targets are each an array, or a dict or tuple of arrays, whose first axis counts the examples.
        Inputs of uint8 ``[n, H, W]`` or ``[n, H, W, channels]`` are images, and normalised on the device; all other
        numbers become float32 or int32 as they are.

        Args:
            train: inputs and targets of n training examples.
            test: the same of m test examples.
            client_ids: whose each training example is, ``[n]`` whole numbers or texts, for the partition ``natural``.
            num_classes: number of classes; by default the largest label and one, where targets are one whole number an
                example. 0 says that such numbers are no classes.
            name: for reports. ``mnist``, ``fashion_mnist`` and ``cifar10`` choose published normalisations.

        Returns:
            The data set.

        Raises:
            UserError: arrays that cannot be computed with, or do not fit each other.
        """
        inputs, targets = {}, {}
        for part, pair in (("train", train), ("test", test)):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise UserError(f"{part}: a {type(pair).__name__} is no pair; give ({part}_inputs, {part}_targets)")
            inputs[part] = examples.inputs(f"{part} inputs", pair[0])
            targets[part] = examples.targets(f"{part} targets", pair[1])
            examples.check(part, inputs[part], targets[part])
        examples.check_alike(inputs["train"], inputs["test"], "inputs")
        examples.check_alike(targets["train"], targets["test"], "targets")
        num_train = trees.num_examples(inputs["train"])
        return cls.build(
            name,
            inputs["train"],
            train_labels=targets["train"],
            test_images=inputs["test"],
            test_labels=targets["test"],
            num_classes=examples.count_classes(targets["train"], targets["test"], num_classes),
            source="given arrays",
            client_ids=None if client_ids is None else examples.client_numbers(client_ids, num_train),
        )

    @classmethod
    def from_huggingface(
        cls,
        data: Any,
        inputs: str | Iterable[str],
        targets: str | Iterable[str],
        client_column: str | None = None,
        num_classes: int | None = None,
        name: str = "huggingface",
        channels_first: bool = False,
    ) -> Dataset:
        """Make a data set of one that Hugging Face's `datasets` has loaded; that package is not needed here.

        A transform that the user has set is applied once to each example. Pictures are read as `examples.pixels` says.

        Args:
            data: a ``DatasetDict`` with the splits ``train`` and ``test`` (or ``validation``), or a pair of its
                ``Dataset`` objects.
            inputs: column, or columns, which then are a dict.
            targets: column, or columns.
            client_column: column that tells whose each training example is.
            num_classes: as for `from_arrays`; a ``ClassLabel`` column without a transform gives its own.
            name: as for `from_arrays`.
            channels_first: as for `from_torch`.

        Returns:
            The data set.

        Raises:
            UserError: a split or column that is not there, or values that cannot be computed with.
        """
        found = huggingface.read(data, inputs, targets, client_column, channels_first)
        classes = found.num_classes if num_classes is None else num_classes
        return cls.from_arrays(
            train=found.train, test=found.test, client_ids=found.client_ids, num_classes=classes, name=name
        )

    @classmethod
    def from_torch(
        cls,
        train: Any,
        test: Any,
        client_ids: Any = None,
        num_classes: int | None = None,
        channels_first: bool = False,
        name: str = "torch",
    ) -> Dataset:
        """Make a data set of two of PyTorch's map-style data sets; PyTorch itself is not needed here.

        Args:
            train: has a length, and an (input, target) pair at each position; a ``TensorDataset`` is taken whole.
            test: the same.
            client_ids: as for `from_arrays`.
            num_classes: as for `from_arrays`.
            channels_first: whether inputs of three axes are [channels, H, W], as torchvision's ``ToTensor`` makes them;
                they become [H, W, channels], which models here expect. Pictures are so already.
            name: as for `from_arrays`.

        Returns:
            The data set.

        Raises:
            UserError: something else was given, or values that cannot be computed with.
        """
        pytorch.check_classes(train, test)
        pairs = {part: pytorch.read(part, split, channels_first) for part, split in (("train", train), ("test", test))}
        return cls.from_arrays(**pairs, client_ids=client_ids, num_classes=num_classes, name=name)


def _normalisation(name: str, inputs: Tree, *more: Tree) -> tuple[Any, Any]:
    """Return means and standard deviations in the places of images, None in other inputs'; None where none are."""

    def moments_of(*arrays: np.ndarray) -> Any:
        return mean_and_std(name, *arrays) if examples.is_images(arrays[0]) else None

    found = trees.transform(moments_of, inputs, *more)
    if not any(examples.is_images(array) for _, array in trees.leaves(inputs)):
        return None, None
    mean, std = (
        trees.transform(lambda _, moments, which=which: moments and moments[which], inputs, found) for which in (0, 1)
    )
    return mean, std


def _applied(inputs: Tree, mean: Any, std: Any) -> Any:
    """Return what a device normalises with, in the places of inputs: float32, in which a digest has no last bits."""

    def of_one(_: Any, mean: Any, std: Any) -> Any:
        return None if std is None else [np.asarray(moments, np.float32).tolist() for moments in (mean, std)]

    return None if std is None else trees.transform(of_one, inputs, mean, std)
