"""Data sets of Hugging Face and of PyTorch, by stand-ins with the interfaces of those packages."""

import sys

import numpy as np
import pytest

from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

RNG = np.random.default_rng(0)


# ---------------------------------------------------------------- Hugging Face (datasets 5.2)


class ClassLabel:
    def __init__(self, names):
        self.names, self.num_classes = names, len(names)


class Value:
    def __init__(self, dtype):
        self.dtype = dtype


class HuggingFaceDataset:
    """As `datasets.Dataset`: without the format a slice gives Python objects, with it arrays where it can."""

    def __init__(self, columns, features, format=None):
        self.columns, self.features, self.format = columns, features, format

    @property
    def column_names(self):
        return list(self.columns)

    def select_columns(self, names):
        if len(set(names)) < len(names):
            raise KeyError("Field exists 2 times in schema")
        return HuggingFaceDataset({n: self.columns[n] for n in names}, self.features, self.format)

    def with_format(self, format):
        return HuggingFaceDataset(self.columns, self.features, format)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        assert self.format == "numpy", "lists of Python objects"
        return {name: self._array(values[key]) for name, values in self.columns.items()}

    @staticmethod
    def _array(values):
        if any(value is Ellipsis for value in values):
            raise OSError("cannot identify image file. Sorry.\nAt all.")
        shapes = {np.shape(value) for value in values}
        if len(shapes) == 1:
            return np.stack([np.asarray(value) for value in values])
        ragged = np.empty(len(values), object)
        ragged[:] = [np.asarray(value) for value in values]
        return ragged


FEATURES = {name: Value("?") for name in ("image", "words", "score", "who", "ragged", "broken")}
FEATURES["label"] = ClassLabel(["cat", "dog", "eel", "fox", "gnu"])


def split(size):
    columns = {
        "image": list(RNG.integers(256, size=(size, 4, 3, 3), dtype=np.uint8)),
        "label": [i % 3 for i in range(size)],
        "words": [[i, i + 1, 7] for i in range(size)],
        "score": [i / 4 for i in range(size)],
        "who": [f"w{i % 2}" for i in range(size)],
        "ragged": [[1] * (i + 1) for i in range(size)],
        "broken": [...] * size,
    }
    return HuggingFaceDataset(columns, FEATURES)


TRAIN, TEST = split(8), split(4)


@pytest.mark.parametrize(
    "given", [(TRAIN, TEST), [TRAIN, TEST], {"train": TRAIN, "test": TEST}, {"validation": TEST, "train": TRAIN}]
)
def test_hugging_face_images(given):
    made = Dataset.from_huggingface(given, "image", "label", client_column="who")
    np.testing.assert_array_equal(made.train_images, TRAIN.columns["image"])
    np.testing.assert_array_equal(made.test_labels, TEST.columns["label"])
    assert made.num_classes == 5, "as its ClassLabel says, and not the three that occur"
    assert made.client_ids.tolist() == [0, 1] * 4 and made.name == "huggingface"
    assert Dataset.from_huggingface(given, "image", "label", num_classes=9).num_classes == 9


def test_hugging_face_columns_of_all_kinds():
    made = Dataset.from_huggingface((TRAIN, TEST), iter(["words", "score"]), "score")
    assert made.image_shape == {"words": (3,), "score": ()} and made.train_images["words"].dtype == np.int32
    assert made.train_labels.dtype == np.float32 and not made.has_classes
    shifted = Dataset.from_huggingface((TRAIN, TEST), "words", "words")
    np.testing.assert_array_equal(shifted.train_images, shifted.train_labels)
    assert "datasets" not in sys.modules and "torch" not in sys.modules


class Iterable:
    """As `datasets.IterableDataset`: no length."""

    column_names, features = ["image"], FEATURES

    def select_columns(self, names): ...

    def with_format(self, format): ...


@pytest.mark.parametrize(
    "given,inputs,targets,words",
    [
        ({"train": TRAIN}, "image", "label", "splits train, but 'train' and 'test' .* are needed"),
        ({}, "image", "label", "splits none"),
        (TRAIN, "image", "label", "a HuggingFaceDataset is neither a DatasetDict nor a pair .* train_test_split"),
        ((TRAIN, [1]), "image", "label", "a list is no Dataset of the package `datasets`"),
        ((Iterable(), Iterable()), "image", "label", "read as a stream; load it without streaming"),
        ((TRAIN, TEST), "imag", "label", "train: no column 'imag'; did you mean 'image'"),
        ((TRAIN, TEST), "image", ["label", "y"], "train: no column 'y'"),
        ((TRAIN, TEST), "who", "label", "train inputs: <U2 cannot be computed with; number the texts alike"),
        ((TRAIN, TEST), "ragged", "label", "train inputs: object cannot be computed with.*rows of one length"),
        ((TRAIN, TEST), "broken", "label", "train: columns broken, label cannot be read .cannot identify image file.;"),
    ],
)
def test_what_is_not_hugging_faces_is_one_sentence(given, inputs, targets, words):
    with pytest.raises(UserError, match=words) as caught:
        Dataset.from_huggingface(given, inputs, targets)
    assert "\n" not in str(caught.value) and ". " not in str(caught.value)


# ---------------------------------------------------------------- PyTorch


class Tensor:
    """As `torch.Tensor`: one that needs gradients refuses to become an array."""

    def __init__(self, array, needs_gradient=False):
        self.array, self.needs_gradient = np.asarray(array), needs_gradient

    @property
    def shape(self):
        return self.array.shape

    def detach(self):
        return Tensor(self.array)

    def cpu(self):
        return self

    def __getitem__(self, key):
        return Tensor(self.array[key], self.needs_gradient)

    def __len__(self):
        return len(self.array)

    def __array__(self, dtype=None, copy=None):
        if self.needs_gradient:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return self.array if dtype is None else self.array.astype(dtype)


class TensorDataset:
    def __init__(self, *tensors):
        self.tensors = tensors

    def __getitem__(self, position):
        return tuple(tensor[position] for tensor in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


class MapStyle:
    """As torchvision's: pairs, through a transform; `Subset` has the same interface."""

    def __init__(self, items, fails=False):
        self.items, self.fails = items, fails

    def __getitem__(self, position):
        if self.fails and position == 3:
            raise OSError("image file is truncated. Bad.\nvery")
        return self.items[position]

    def __len__(self):
        return len(self.items)


CHANNELS_FIRST = RNG.random((9, 3, 5, 4)).astype(np.float32)
LABELS = np.arange(9) % 3


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: TensorDataset(Tensor(x, needs_gradient=True), Tensor(y)),
        lambda x, y: MapStyle([(Tensor(one, needs_gradient=True), int(label)) for one, label in zip(x, y)]),
        lambda x, y: MapStyle([[Tensor(one), Tensor(label)] for one, label in zip(x, y)]),
    ],
)
def test_torch(make):
    train, test = make(CHANNELS_FIRST[:6], LABELS[:6]), make(CHANNELS_FIRST[6:], LABELS[6:])
    made = Dataset.from_torch(train, test, client_ids=[*"aabbcc"])
    np.testing.assert_array_equal(made.train_images, CHANNELS_FIRST[:6])
    np.testing.assert_array_equal(made.test_labels, LABELS[6:])
    assert made.num_classes == 3 and made.client_ids.tolist() == [0, 0, 1, 1, 2, 2] and made.name == "torch"
    last = Dataset.from_torch(train, test, channels_first=True)
    np.testing.assert_array_equal(last.train_images, CHANNELS_FIRST[:6].transpose(0, 2, 3, 1))


def test_torch_pictures_are_images():
    Image = pytest.importorskip("PIL.Image")
    pixels = RNG.integers(256, size=(4, 5, 4, 3), dtype=np.uint8)
    items = MapStyle([(Image.fromarray(one), i % 2) for i, one in enumerate(pixels)])
    made = Dataset.from_torch(items, items)
    np.testing.assert_array_equal(made.train_images, pixels)
    assert made.train_images.dtype == np.uint8 and len(made.mean) == 3


def test_torch_trees():
    items = MapStyle([({"a": Tensor([i, 1]), "b": [Tensor([0.5]), Tensor([2, i])]}, 0.5 * i) for i in range(4)])
    made = Dataset.from_torch(items, items)
    assert made.image_shape == {"a": (2,), "b": ((1,), (2,))} and made.train_labels.tolist() == [0.0, 0.5, 1.0, 1.5]


PAIRS = [(np.zeros(3), 0)] * 5


@pytest.mark.parametrize(
    "given,words",
    [
        (iter(PAIRS), "train: a list_iterator has no length and positions; give a map-style data set"),
        (MapStyle([]), "train: the data set is empty"),
        (MapStyle([np.zeros(3)]), "train: example 0 is a ndarray and no pair"),
        (MapStyle(PAIRS, fails=True), r"train: example 3 cannot be read \(image file is truncated\); mend"),
        (
            MapStyle([*PAIRS, (np.zeros(4), 0)]),
            r"example 5 has arrays of shape \(4,\), \(\), and the first one of \(3,\)",
        ),
        (MapStyle([({"a": 1}, 0), ({"b": 1}, 0)]), "train: examples differ in structure"),
        (MapStyle([("text", 0)] * 2), "train inputs: <U4 cannot be computed with"),
        (TensorDataset(Tensor([1])), "train: 1 tensors are no pair"),
    ],
)
def test_what_is_not_torchs_is_one_sentence(given, words):
    with pytest.raises(UserError, match=words) as caught:
        Dataset.from_torch(given, MapStyle(PAIRS))
    assert "\n" not in str(caught.value) and ". " not in str(caught.value)
