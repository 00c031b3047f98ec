"""Decoder of data sets that tensorflow-datasets (TFDS) has prepared as array_record, without TensorFlow."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.data import examples, progress, tfds_folder, tfds_trust
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

_CHUNK_EXAMPLES = 2048
_JPEG_MAGIC = b"\xff\xd8"
_PILLOW_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Data sets published as exact pixels; JPEG records of these are lossy copies.
_PUBLISHED_EXACTLY = ("mnist", "fashion_mnist", "kmnist", "emnist", "cifar10", "cifar100", "svhn_cropped")


class UnavailableError(UserError):
    """A package for reading prepared folders is missing or broken; the folder itself may be intact."""


class _Keys(NamedTuple):
    image: str
    label: str
    channels: int
    num_classes: int


class _Formats(NamedTuple):
    example_proto: Any
    raw_bytes: Any


def read(folder: Path, name: str) -> Dataset:
    """Decode both splits of a prepared data set.

    Args:
        folder: folder of a version, with ``dataset_info.json``.
        name: name of the returned data set.

    Returns:
        The data set, in memory. Its test split is ``test``, or ``validation`` if ``test`` is missing.

    Raises:
        UserError: the folder is damaged or incomplete, is not array_record, or does not hold images of one shape with
            one integer label each.
        UnavailableError: tensorflow-datasets, array_record or Pillow cannot be imported.
    """
    # TFDS returns raw bytes, which Pillow decodes: two to three times as fast as TFDS's own decoding.
    tfds_folder.check_readable(folder)
    tfds_trust.check(folder)
    tfds, formats = _import_tfds()
    with _quiet():
        try:
            builder = tfds.builder_from_directory(folder)
            keys = _keys(tfds, builder.info, folder)
            splits = {split: _shards(builder.info.splits[split]) for split in builder.info.splits}
        except UserError:
            raise
        except Exception as problem:
            raise _damaged(folder, problem) from problem
        test_split = "test" if "test" in splits else "validation"
        for split in ("train", test_split):
            if split not in splits:
                raise UserError(
                    f"{folder} has no {split!r} split (it has: {', '.join(splits) or 'none'}): use another set"
                )
            _check_shards(splits[split])
        decoded = {}
        with progress.bar(f"decoding {name}", sum(splits[s].num_examples for s in ("train", test_split))) as advance:
            for split in ("train", test_split):
                decoded[split] = _decode(folder, builder, split, splits[split].num_examples, keys, formats, advance)
    (train_images, train_labels, jpeg), (test_images, test_labels, _) = decoded["train"], decoded[test_split]
    if train_images.shape[1:] != test_images.shape[1:]:
        raise UserError(f"{folder} has images of different sizes in its splits: prepare it with one size")
    return Dataset.build(
        name,
        train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        num_classes=keys.num_classes,
        source=_source(folder, name, jpeg or _says_jpeg(folder, keys.image)),
    )


class _Shards(NamedTuple):
    paths: tuple[Path, ...]
    lengths: tuple[int, ...]

    @property
    def num_examples(self) -> int:
        return sum(self.lengths)


def _shards(split_info: Any) -> _Shards:
    return _Shards(
        tuple(Path(str(path)) for path in split_info.filepaths), tuple(int(n) for n in split_info.shard_lengths)
    )


def _check_shards(shards: _Shards) -> None:
    """Check the number of records in each shard; a truncated file opens without error, but holds no records."""
    from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

    for path, length in zip(shards.paths, shards.lengths, strict=True):
        if not path.is_file():
            raise UserError(f"{path} is missing, so the folder is damaged or incomplete: prepare the data set again")
        try:
            reader = array_record_module.ArrayRecordReader(str(path))
            found = reader.num_records()
            reader.close()
        except Exception:
            found = 0
        if found != length:
            raise UserError(
                f"{path} holds {found} records instead of {length}, so the folder is damaged or incomplete: "
                "prepare the data set again"
            )


def _keys(tfds: Any, info: Any, folder: Path) -> _Keys:
    features = info.features
    if not isinstance(features, tfds.features.FeaturesDict):
        raise UserError(f"{folder} does not hold labeled images: use an image-classification data set")
    images = [key for key, feature in features.items() if isinstance(feature, tfds.features.Image)]
    labels = [key for key, feature in features.items() if isinstance(feature, tfds.features.ClassLabel)]
    if isinstance(info.supervised_keys, tuple) and len(info.supervised_keys) == 2:
        image, label = info.supervised_keys
        images = [image] if image in images else images
        labels = [label] if label in labels else labels
    if len(images) != 1 or len(labels) != 1:
        raise UserError(
            f"{folder} must hold one image and one integer class label per example, but has the features "
            f"{', '.join(sorted(features))}: use an image-classification data set"
        )
    image = features[images[0]]
    # np_dtype, since the attribute dtype imports TensorFlow.
    if np.dtype(image.np_dtype) != np.uint8 or image.shape[-1] not in _PILLOW_MODES:
        raise UserError(
            f"{folder} has images of type {image.np_dtype}, shape {image.shape}: only uint8 images are supported"
        )
    return _Keys(images[0], labels[0], image.shape[-1], int(features[labels[0]].num_classes or 0))


def _decode(
    folder: Path, builder: Any, split: str, size: int, keys: _Keys, formats: _Formats, advance: Any
) -> tuple[np.ndarray, np.ndarray, bool]:
    from PIL import Image

    if size == 0:
        raise UserError(f"{folder} has an empty {split!r} split: prepare the data set again")
    images, labels, jpeg, mode = np.empty(0, np.uint8), np.empty(size, np.int32), False, _PILLOW_MODES[keys.channels]
    try:
        records = builder.as_data_source(split=split, deserialize_method=formats.raw_bytes)
        for start in range(0, size, _CHUNK_EXAMPLES):
            positions = list(range(start, min(start + _CHUNK_EXAMPLES, size)))
            for position, record in zip(positions, records.__getitems__(positions), strict=True):
                feature = formats.example_proto.Example.FromString(record).features.feature
                encoded = feature[keys.image].bytes_list.value[0]
                picture = Image.open(io.BytesIO(encoded))
                pixels = examples.pixels(f"{folder}, {split!r} split", picture, mode)
                if position == 0:
                    images = np.empty((size, *pixels.shape), np.uint8)
                    jpeg = encoded.startswith(_JPEG_MAGIC)
                if pixels.shape != images.shape[1:]:
                    raise UserError(f"{folder} has images of different sizes: use a data set with one image size")
                images[position] = pixels
                labels[position] = feature[keys.label].int64_list.value[0]
            advance(len(positions))
    except UserError:
        raise
    except Exception as problem:
        raise _damaged(folder, problem) from problem
    if labels.min() < 0 or labels.max() >= keys.num_classes:
        raise UserError(
            f"the {split!r} split of {folder} has labels from {labels.min()} to {labels.max()}, outside 0 to "
            f"{keys.num_classes - 1}: use a labeled data set"
        )
    return images, labels, jpeg


def _source(folder: Path, name: str, jpeg: bool) -> str:
    phrase = f"TFDS {tfds_folder.info(folder).get('version', folder.name)}"
    if not jpeg:
        return phrase
    published_exactly = name.split("/")[0] in _PUBLISHED_EXACTLY
    return phrase + (", lossy JPEG copy, not the official pixels" if published_exactly else ", lossy JPEG records")


def _says_jpeg(folder: Path, image_key: str) -> bool:
    try:
        features = files.read_json(folder / "features.json")["featuresDict"]["features"]
        return features[image_key]["image"].get("encodingFormat") == "jpeg"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _damaged(folder: Path, problem: Exception) -> UserError:
    if isinstance(problem, ImportError):  # TFDS imports some of its parts lazily
        return _unavailable(problem)
    reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    return UserError(f"{folder} is damaged or incomplete ({reason}): delete it and prepare the data set again")


def _unavailable(problem: Exception) -> UnavailableError:
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        reason = f"{problem.name.partition('.')[0]} is not installed"
    else:
        reason = ": ".join(["importing them fails", type(problem).__name__, *str(problem).splitlines()[:1]])
    return UnavailableError(
        "folders that tensorflow-datasets has prepared are read with tensorflow-datasets, array_record and Pillow, but "
        f"{reason}; pip install --upgrade tensorflow-datasets array_record pillow"
    )


def _import_tfds() -> tuple[Any, _Formats]:
    with _quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import PIL.Image
            import tensorflow_datasets as tfds
            from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]
            from tensorflow_datasets.core.decode import DeserializeMethod
            from tensorflow_datasets.proto import tf_example_pb2

            # Trigger the packages' lazy imports here, so that later errors are due to the folder.
            _ = PIL.Image.open, tfds.builder_from_directory, tfds.features.Image, array_record_module.ArrayRecordReader
        except Exception as problem:  # incompatible versions may raise anything
            raise _unavailable(problem) from problem
    return tfds, _Formats(tf_example_pb2, DeserializeMethod.RAW_BYTES)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the logger "absl" of TFDS, whose messages do not help users."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
