"""Data sets of Hugging Face and of PyTorch, by stand-ins with the interfaces of those packages."""

import sys

import numpy as np
import pytest
from PIL import Image

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
    """As `datasets.Dataset`: without a format Python objects, with NumPy's arrays where it can, or a transform's."""

    def __init__(self, columns, features, type=None, transform=None):
        self.columns, self.features, self.transform = columns, features, transform
        self.format = {"type": type, "format_kwargs": {}}

    @property
    def column_names(self):
        return list(self.columns)

    def select_columns(self, names):
        if len(set(names)) < len(names):
            raise KeyError("Field exists 2 times in schema")
        return HuggingFaceDataset({n: self.columns[n] for n in names}, self.features, **self._view())

    def with_format(self, type):
        return HuggingFaceDataset(self.columns, self.features, type)

    def with_transform(self, transform):
        return HuggingFaceDataset(self.columns, self.features, "custom", transform)

    def _view(self):
        return {"type": self.format["type"], "transform": self.transform}

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, int):
            if key >= len(self):
                raise IndexError("out of range")
            rows = {name: self._decoded(values[key : key + 1]) for name, values in self.columns.items()}
            rows = self.transform(rows) if self.format["type"] == "custom" else rows
            return {name: values[0] for name, values in rows.items()}
        assert self.format["type"] == "numpy", "lists of Python objects"
        return {name: self._array(self._decoded(values[key])) for name, values in self.columns.items()}

    @staticmethod
    def _decoded(values):
        if any(value is Ellipsis for value in values):
            raise OSError("cannot identify image file. Sorry.\nAt all.")
        return values

    @staticmethod
    def _array(values):
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


def test_hugging_face_classes_have_one_number():
    renumbered = HuggingFaceDataset(
        TEST.columns, {**FEATURES, "label": ClassLabel(["dog", "eel", "cat", "fox", "gnu"])}
    )
    with pytest.raises(UserError, match=r"test: the classes are 'dog, .*', but in train 'cat, .*'; number the"):
        Dataset.from_huggingface((TRAIN, renumbered), "image", "label")


def test_hugging_face_transforms_are_applied():
    """The stored columns are 0, 1, 2, ...: what the user sees is read, and its labels are counted."""

    def transform(rows):
        return {"pixels": [np.full((3, 5, 4), 100.0 * number) for number in rows["label"]], "kind": rows["label"]}

    pair = [part.select_columns(["label"]).with_transform(transform) for part in (TRAIN, TEST)]
    made = Dataset.from_huggingface(pair, "pixels", "kind", channels_first=True)
    assert made.image_shape == (5, 4, 3) and made.num_classes == 3
    np.testing.assert_array_equal(made.train_images[:, 0, 0, 0], 100.0 * np.arange(8) % 300)
    assert Dataset.from_huggingface(pair, "pixels", "kind").image_shape == (3, 5, 4)
    with pytest.raises(UserError, match="train: no column 'image'; choose from kind, pixels"):
        Dataset.from_huggingface(pair, "image", "kind")
    with pytest.raises(UserError, match=r"train: columns words, label cannot be read \(division by zero\); fix"):
        Dataset.from_huggingface([part.with_transform(lambda rows: 1 / 0) for part in pair], "words", "label")


class Iterable:
    """As `datasets.IterableDataset`: no length."""

    column_names, features = ["image"], FEATURES

    def select_columns(self, names): ...

    def with_format(self, format): ...


@pytest.mark.parametrize(
    "given,inputs,targets,words",
    [
        ({"train": TRAIN}, "image", "label", "give a DatasetDict with the splits train and test"),
        (TRAIN, "image", "label", "give a DatasetDict with .*, or a pair"),
        ((Iterable(), Iterable()), "image", "label", "give a DatasetDict .*, loaded without streaming"),
        ((TRAIN, TEST), "imag", "label", "train: no column 'imag'; did you mean 'image'"),
        ((TRAIN, TEST), "image", ["label", "y"], "train: no column 'y'"),
        ((TRAIN, TEST), "who", "label", "train inputs: dtype <U2 is not supported; number the texts alike"),
        ((TRAIN, TEST), "ragged", "label", "train inputs: dtype object is not supported.*rows of one length"),
        ((TRAIN, TEST), "broken", "label", "train: columns broken, label cannot be read .cannot identify image file.;"),
    ],
)
def test_what_is_not_hugging_faces_is_one_sentence(given, inputs, targets, words):
    with pytest.raises(UserError, match=words) as caught:
        Dataset.from_huggingface(given, inputs, targets)
    assert "\n" not in str(caught.value) and ". " not in str(caught.value)


# ---------------------------------------------------------------- PyTorch


class Tensor:
    """As `torch.Tensor`: not an array, but convertible to one."""

    def __init__(self, array):
        self.array = np.asarray(array)

    @property
    def shape(self):
        return self.array.shape

    def __len__(self):
        return len(self.array)

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


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
        lambda x, y: MapStyle([(Tensor(one), int(label)) for one, label in zip(x, y)]),
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
    pixels = RNG.integers(256, size=(4, 5, 4, 3), dtype=np.uint8)
    items = MapStyle([(Image.fromarray(one), i % 2) for i, one in enumerate(pixels)])
    made = Dataset.from_torch(items, items)
    np.testing.assert_array_equal(made.train_images, pixels)
    assert made.train_images.dtype == np.uint8 and len(made.mean) == 3


COLORS = RNG.integers(256, size=(2, 5, 4, 3), dtype=np.uint8)
GREY = COLORS[..., 0]
PICTURES = [  # as stored, and the pixels that it shows
    ("L", [Image.fromarray(one) for one in GREY], GREY[..., None]),
    ("1", [Image.fromarray(one > 99) for one in GREY], 255 * (GREY > 99)[..., None]),
    ("P", [Image.fromarray(one // 128 * 255).convert("P", palette=1, colors=8) for one in COLORS], COLORS // 128 * 255),
    ("CMYK", [Image.fromarray(one).convert("CMYK") for one in COLORS], COLORS),
    ("RGBA", [Image.fromarray(one).convert("RGBA") for one in COLORS], np.insert(COLORS, 3, 255, -1)),
]
DEEP = [
    Image.fromarray(one) for one in (GREY[0].astype(np.uint16), GREY[0].astype(np.int32), GREY[0].astype(np.float32))
]
READERS = {
    "arrays": lambda pictures: Dataset.from_arrays(train=(pictures, [0, 1]), test=(pictures, [0, 1])),
    "torch": lambda pictures: Dataset.from_torch(*[MapStyle([*zip(pictures, [0, 1])])] * 2, channels_first=True),
    "huggingface": lambda pictures: Dataset.from_huggingface(
        [HuggingFaceDataset({"x": pictures, "y": [0, 1]}, {"x": None, "y": None})] * 2, "x", "y", channels_first=True
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("mode,pictures,shown", PICTURES, ids=[mode for mode, *_ in PICTURES])
def test_pictures_are_read_as_they_are_shown(reader, mode, pictures, shown):
    assert pictures[0].mode == mode
    made = READERS[reader](pictures)
    assert made.train_images.dtype == np.uint8
    np.testing.assert_array_equal(made.train_images, shown)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("picture", DEEP, ids=["I;16", "I", "F"])
def test_pictures_of_more_than_8_bits_are_rejected(reader, picture):
    with pytest.raises(
        UserError, match=r"train.*: example 0: a picture of mode \S+ has more than 8 bits a channel; scale"
    ):
        READERS[reader]([picture] * 2)


def test_masks_of_segments_keep_their_numbers():
    masks = [picture for _, pictures, _ in PICTURES for picture in pictures if picture.mode == "P"]
    items = MapStyle([(np.zeros(3), mask) for mask in masks])
    table = HuggingFaceDataset({"x": [[0.0]] * 2, "y": masks}, {"x": None, "y": None})
    for made in (Dataset.from_torch(items, items), Dataset.from_huggingface((table, table), "x", "y")):
        np.testing.assert_array_equal(made.train_labels, np.stack([np.asarray(mask) for mask in masks]))


def test_torch_classes_of_other_names_are_rejected():
    train, test = MapStyle(PAIRS), MapStyle(PAIRS)
    train.classes, test.classes = ["cat", "dog"], ["dog"]
    with pytest.raises(UserError, match="test: the classes are 'dog', but in train 'cat, dog'; number"):
        Dataset.from_torch(train, test)
    test.classes = ["cat", "dog"]
    assert Dataset.from_torch(train, test).num_classes == 1


def test_torch_trees():
    items = MapStyle([({"a": Tensor([i, 1]), "b": [Tensor([0.5]), Tensor([2, i])]}, 0.5 * i) for i in range(4)])
    made = Dataset.from_torch(items, items)
    assert made.image_shape == {"a": (2,), "b": ((1,), (2,))} and made.train_labels.tolist() == [0.0, 0.5, 1.0, 1.5]


PAIRS = [(np.zeros(3), 0)] * 5


@pytest.mark.parametrize(
    "given,words",
    [
        (iter(PAIRS), "train: .* is not a map-style data set"),
        (MapStyle([]), "train: .* is not a map-style data set with examples"),
        (MapStyle([np.zeros(3)]), "train: example 0 is not a readable pair"),
        (MapStyle(PAIRS, fails=True), r"train: example 3 is not a readable pair .* \(image file is truncated\); fix"),
        (
            MapStyle([*PAIRS, (np.zeros(4), 0)]),
            r"example 5 has arrays of shape \{.*\(4,\).*\(\)\}, but example 0 has \{.*\(3,\)",
        ),
        (MapStyle([({"a": 1}, 0), ({"b": 1}, 0)]), "train: example 1 has arrays of shape .*to one size and structure"),
        (MapStyle([("text", 0)] * 2), "train inputs: dtype <U4 is not supported"),
    ],
)
def test_what_is_not_torchs_is_one_sentence(given, words):
    with pytest.raises(UserError, match=words) as caught:
        Dataset.from_torch(given, MapStyle(PAIRS))
    assert "\n" not in str(caught.value) and ". " not in str(caught.value)
