"""Data sets as arrays of inputs and targets."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedjax_sel.data import examples, packages
from fedjax_sel.data.examples import Tree
from fedjax_sel.errors import UserError

# FedCor's code normalizes Fashion-MNIST with MNIST's constants and CIFAR-10 with one half. The papers' accuracy targets
# depend on these constants, so they take precedence over the data's own statistics.
_PUBLISHED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}

_CHUNK_EXAMPLES = 4096


def mean_and_std(name: str, *images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation per channel of pixels scaled to [0, 1], for normalizing images.

    The uint8 arrays ``[n, H, W, C]`` are counted in chunks, to save memory. The standard deviation of a
    constant channel is 1.
    """
    channels = images[0].shape[-1]
    if name in _PUBLISHED and len(_PUBLISHED[name][0]) == channels:
        return _PUBLISHED[name]
    # A histogram of the 256 levels gives exact moments in one cheap pass.
    levels = np.arange(256) / 255.0
    counts = np.zeros((channels, 256), np.int64)
    for chunk in (part[i : i + _CHUNK_EXAMPLES] for part in images for i in range(0, len(part), _CHUNK_EXAMPLES)):
        for channel in range(channels):
            counts[channel] += np.bincount(chunk[..., channel].ravel(), minlength=256)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    mean = shares @ levels
    std = np.sqrt(np.maximum(shares @ levels**2 - mean**2, 0.0))
    std = np.where(std > 1e-6, std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets of one data set in host memory, as arrays or as dicts and tuples of arrays.

    Inputs are called images and targets labels, as in most data sets. The first axis of each array counts the examples.

    Attributes:
        name: name that the data set was loaded by.
        train_images: training inputs: images, uint8 ``[n, H, W, C]``; float32 or int32 ``[n, ...]``; or a tree of
            such arrays.
        train_labels: training targets: classes, int32 ``[n]`` in ``0 .. num_classes - 1``; float32 or int32
            ``[n, ...]``; or a tree of such arrays.
        test_images: inputs of m test examples, with the structure of `train_images`.
        test_labels: targets of m test examples, with the structure of `train_labels`.
        num_classes: number of possible labels; 0 unless targets are one class per example.
        mean: per-channel mean of pixels scaled to [0, 1]. None without images; one entry per array in a tree of inputs.
        std: per-channel standard deviation of pixels scaled to [0, 1], with the structure of `mean`.
        source: provenance of the examples, as a phrase for reports.
        client_ids: natural client of each training example, int ``[n]``; None without natural clients.
        test_clients: natural client of each test example, int ``[m]``, numbered as in `client_ids`; None: unknown.
        held_by_server: inputs and targets that the server kept from the training set, or None.

    Raises:
        UserError: an array has an unsupported dtype or shape, or the numbers of inputs and targets differ.
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
    test_clients: np.ndarray | None = None

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            labels = getattr(self, f"{part}_labels")
            examples.check(part, getattr(self, f"{part}_images"), labels)
            if self.num_classes > 0:
                examples.check_range(f"{part} targets", labels, self.num_classes)

    @property
    def has_classes(self) -> bool:
        """True if targets are one class per example, which label histograms and GEMD require."""
        return self.num_classes > 0

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, without the server's."""
        return examples.num_examples(self.train_images)

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return examples.num_examples(self.test_images)

    @property
    def num_server_examples(self) -> int:
        """Number of examples that the server holds."""
        return examples.num_examples(self.server_images)

    def digest(self) -> str:
        """Return the SHA-256 of the inputs and targets of both splits, 64 hexadecimal digits.

        The digest covers names, dtypes, shapes and bytes of the arrays, and the number of classes. It also covers a
        normalization that differs from the default of `build`. For images with classes it omits the names, and the
        number of classes unless that exceeds the largest label plus one: digests in older run folders stay valid.
        """
        names = [f"{part}_{kind}" for part in ("train", "test", "server") for kind in ("images", "labels")]
        parts = {name: getattr(self, name) for name in (names[:4] if self.held_by_server is None else names)}
        classic = self.has_classes and examples.is_array(self.train_images) and examples.is_images(self.train_images)
        highest_label = 0
        digest = hashlib.sha256(
            b"fedjax_sel dataset 1\n" if classic else f"fedjax_sel dataset 2\n{self.num_classes}\n".encode()
        )
        for part, tree in parts.items():
            for name, array in examples.leaves(tree, part):
                if part.endswith("labels") and classic:
                    highest_label = max(highest_label, int(array.max(initial=0)))
                digest.update(str((array.shape, array.dtype) if classic else (name, array.shape, array.dtype)).encode())
                digest.update(np.ascontiguousarray(array).data)
        if classic and self.num_classes > highest_label + 1:
            digest.update(f"{self.num_classes} classes".encode())
        # The default of `build` depends on all training examples, including the examples held by the server.
        default = _normalization(self.name, self.train_images, *(self.held_by_server or ())[:1])
        own, usual = (_applied(self.train_images, *moments) for moments in ((self.mean, self.std), default))
        if own != usual:
            digest.update(f"normalised {own}".encode())
        return digest.hexdigest()

    @property
    def image_shape(self) -> Any:
        """Shape of one input, (height, width, channels) for images; a tree of shapes for a tree of inputs."""
        return examples.transform(lambda array: tuple(array.shape[1:]), self.train_images)

    @property
    def server_images(self) -> Tree:
        """Inputs that the server holds, such as uint8 ``[v, H, W, C]``; v = 0 if it holds none."""
        return examples.take(self.train_images, slice(0)) if self.held_by_server is None else self.held_by_server[0]

    @property
    def server_labels(self) -> Tree:
        """Targets of the examples that the server holds, such as int32 ``[v]``."""
        return examples.take(self.train_labels, slice(0)) if self.held_by_server is None else self.held_by_server[1]

    def give_server(self, share: float, seed: int) -> Dataset:
        """Move a share of the training examples to the server.

        The draw is stratified by label to within one example; without classes it is uniform.

        Args:
            share: share of the training examples, in [0, 1].
            seed: seed of the draw.

        Returns:
            A data set with the remaining training examples, in their previous order.

        Raises:
            UserError: the server already holds examples.
        """
        if share > 0 and self.held_by_server is not None:
            raise UserError(f"the server holds examples of {self.name} already; give it a share once")
        drawn = self._draw(share, np.random.default_rng([seed, 0x5E]))
        return dataclasses.replace(self._training(~drawn), held_by_server=self._part(drawn)) if drawn.any() else self

    def for_tuning(self, share: float) -> Dataset:
        """Replace the test set by a share of the training examples, which no client then trains on.

        Settings that are chosen on such data were not chosen on test data. The draw is that of `give_server`, with a
        fixed seed: all seeds of a run have equal tuning examples.

        Args:
            share: share of the training examples, in [0, 1).
        """
        drawn = self._draw(share, np.random.default_rng(0x7E))
        inputs, targets = self._part(drawn)
        owners = None if self.client_ids is None else self.client_ids[drawn]
        return dataclasses.replace(self._training(~drawn), test_images=inputs, test_labels=targets, test_clients=owners)

    def _draw(self, share: float, generator: np.random.Generator) -> np.ndarray:
        """Draw a share of the training examples, stratified by label to within one example; bool [n]."""
        drawn = np.zeros(self.num_train_examples, bool)
        if self.has_classes:
            exact = share * np.bincount(self.train_labels, minlength=self.num_classes)
            sizes = np.floor(exact).astype(int)
            largest_remainders = np.argsort(sizes - exact, kind="stable")
            sizes[largest_remainders[: round(share * len(drawn)) - sizes.sum()]] += 1
            for label, size in enumerate(sizes):
                drawn[generator.permutation(np.flatnonzero(self.train_labels == label))[:size]] = True
        else:
            drawn[generator.permutation(len(drawn))[: round(share * len(drawn))]] = True
        return drawn

    def _part(self, rows: np.ndarray) -> tuple[Tree, Tree]:
        inputs = examples.transform(lambda array: np.asarray(array[rows]), self.train_images)
        return inputs, examples.take(self.train_labels, rows)

    def _training(self, rows: np.ndarray) -> Dataset:
        """Return the data set with these training examples only."""
        inputs, targets = self._part(rows)
        ids = None if self.client_ids is None else self.client_ids[rows]
        return dataclasses.replace(self, train_images=inputs, train_labels=targets, client_ids=ids)

    @classmethod
    def build(cls, name: str, train: tuple[Tree, Tree], test: tuple[Tree, Tree], **fields: Any) -> Dataset:
        """Make a data set of inputs and targets for training and for testing, with the default normalization.

        Args:
            name: name for reports, which can select a published normalization.
            train: inputs and targets of n training examples, as `from_arrays` converts them.
            test: inputs and targets of m test examples.
            **fields: `num_classes`, `source`, and optionally `client_ids` and `test_clients`.
        """
        mean, std = _normalization(name, train[0])
        return cls(name, *train, *test, mean=mean, std=std, **fields)

    @classmethod
    def from_arrays(
        cls,
        *,
        train: tuple[Tree, Tree],
        test: tuple[Tree, Tree],
        client_ids: Any = None,
        test_client_ids: Any = None,
        num_classes: int | None = None,
        name: str = "arrays",
    ) -> Dataset:
        """Make a data set from arrays.

        Inputs and targets are each an array, or a dict or tuple of arrays, whose first axis counts the examples.
        Inputs of uint8 ``[n, H, W]`` or ``[n, H, W, channels]`` are images, which are normalized on the device. All
        other numbers are converted to float32 or int32 without scaling.

        Args:
            train: inputs and targets of n training examples.
            test: inputs and targets of m test examples.
            client_ids: client of each training example, integers or strings ``[n]``, for the partition ``natural``.
            test_client_ids: client of each test example, of the same kind as `client_ids`; each natural client then
                tests on its own examples. Default: unknown.
            num_classes: number of classes. Default: the largest label plus one if targets are one whole number per
                example, else 0. Pass 0 if such numbers are not classes.
            name: name for reports. ``mnist``, ``fashion_mnist`` and ``cifar10`` select their published normalization.

        Raises:
            UserError: an array has an unsupported dtype or shape, or the arrays do not match each other.
        """
        inputs, targets = {}, {}
        for part, pair in (("train", train), ("test", test)):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise UserError(f"{part}: a {type(pair).__name__} is not a pair; give ({part}_inputs, {part}_targets)")
            inputs[part] = examples.inputs(f"{part} inputs", pair[0])
            targets[part] = examples.targets(f"{part} targets", pair[1])
            examples.check(part, inputs[part], targets[part])
        examples.check_alike(inputs["train"], inputs["test"], "inputs")
        examples.check_alike(targets["train"], targets["test"], "targets")
        train_ids, test_ids = _client_numbers(
            client_ids, test_client_ids, *(examples.num_examples(inputs[part]) for part in ("train", "test"))
        )
        return cls.build(
            name,
            *((inputs[part], targets[part]) for part in ("train", "test")),
            num_classes=examples.count_classes(targets["train"], targets["test"], num_classes),
            source="given arrays",
            client_ids=train_ids,
            test_clients=test_ids,
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
        """Make a data set from one that Hugging Face's `datasets` has loaded; the package itself is not imported.

        A transform that the user has set is applied once per example. `examples.pixels` converts pictures.

        Args:
            data: a ``DatasetDict`` with the splits ``train`` and ``test`` (or ``validation``), or a (train, test) pair
                of ``Dataset`` objects.
            inputs: name of a column, or names of several, which form a dict.
            targets: name of a column, or names of several.
            client_column: name of the column with the client of each training example.
            num_classes: number of classes, as in `from_arrays`. Default: that of a ``ClassLabel`` column without a
                transform.
            name: name for reports, as in `from_arrays`.
            channels_first: layout of the inputs, as in `from_torch`.

        Raises:
            UserError: a split or column is missing, or values have an unsupported dtype or shape.
        """
        train, test, found, client_ids = packages.read_huggingface(data, inputs, targets, client_column, channels_first)
        num_classes = found if num_classes is None else num_classes
        return cls.from_arrays(train=train, test=test, client_ids=client_ids, num_classes=num_classes, name=name)

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
        """Make a data set from PyTorch's map-style data sets; PyTorch itself is not imported.

        Args:
            train: training set with a length and an (input, target) pair at each position.
            test: test set of the same form.
            client_ids: client of each training example, as in `from_arrays`.
            num_classes: number of classes, as in `from_arrays`.
            channels_first: True if inputs with three axes are [channels, H, W], as torchvision's ``ToTensor`` returns
                them. They are transposed to [H, W, channels]; Pillow pictures already have that layout.
            name: name for reports, as in `from_arrays`.

        Raises:
            UserError: an argument is no such data set, or values have an unsupported dtype or shape.
        """
        pairs = packages.read_torch(train, test, channels_first)
        return cls.from_arrays(**pairs, client_ids=client_ids, num_classes=num_classes, name=name)


def _client_numbers(train: Any, test: Any, num_train: int, num_test: int) -> tuple[Any, Any]:
    """Convert the owners of both parts' examples to numbers of one numbering."""
    if test is None:
        return (None if train is None else examples.client_numbers(train, num_train)), None
    if train is None:
        raise UserError("test_client_ids: they need client_ids, the clients of the training examples; give both")
    for what, ids, size in (("client_ids", train, num_train), ("test_client_ids", test, num_test)):
        examples.client_numbers(ids, size, what)
    parts = [np.asarray(ids) for ids in (train, test)]
    if (parts[0].dtype.kind in "iu") != (parts[1].dtype.kind in "iu"):
        raise UserError("test_client_ids: numbers and names are mixed with client_ids; give one kind in both")
    numbers = examples.client_numbers(np.concatenate(parts), num_train + num_test)
    return numbers[:num_train], numbers[num_train:]


def _normalization(name: str, inputs: Tree, *more: Tree) -> tuple[Any, Any]:
    """Return means and standard deviations, trees with None for inputs that are not images; None without images."""

    def moments_of(*arrays: np.ndarray) -> Any:
        return mean_and_std(name, *arrays) if examples.is_images(arrays[0]) else (None, None)

    if not any(examples.is_images(array) for _, array in examples.leaves(inputs)):
        return None, None
    pairs = examples.transform(moments_of, inputs, *more)
    mean, std = (examples.transform(lambda _, pair, which=which: pair[which], inputs, pairs) for which in (0, 1))
    return mean, std


def _applied(inputs: Tree, mean: Any, std: Any) -> Any:
    """Return each input's mean and std in float32, as devices apply them; a digest ignores float64's last bits."""

    def of_one(_: Any, mean: Any, std: Any) -> Any:
        return None if std is None else [np.asarray(moments, np.float32).tolist() for moments in (mean, std)]

    return None if std is None else examples.transform(of_one, inputs, mean, std)
