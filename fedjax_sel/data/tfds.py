"""TFDS data sets in prepared folders: location, integrity checks, and reading."""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core import files, parsing, plugins
from fedjax_sel.data import download, examples
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_INFO = "dataset_info.json"


def find(data_dir: Path, name: str) -> Path | None:
    """Return the newest prepared version of ``name`` or ``name/config``, or None if the data set is missing.

    Folders have TFDS layout, ``<data_dir>/<name>[/<config>]/<version>/dataset_info.json``.
    """
    base = data_dir / name
    if not os.path.isdir(base):  # False also if a parent folder is not accessible
        return None
    versions = _versions(base)
    if not versions and "/" not in name:
        configs = sorted(entry for entry in base.iterdir() if entry.is_dir() and _versions(entry))
        if len(configs) > 1:
            choices = ", ".join(f"{name}/{config.name}" for config in configs)
            raise UserError(f"data set {name!r} in {data_dir} has several configurations: name one of {choices}")
        versions = [version for config in configs for version in _versions(config)]
    if not versions:
        if any("incomplete" in entry.name for entry in base.rglob("*")):
            raise UserError(f"{base} was not fully prepared: delete it and prepare {name!r} again")
        return None
    complete = [version for version in versions if (version / _INFO).is_file()]
    if not complete:
        raise UserError(f"{versions[-1]} has no {_INFO}: {name!r} was not fully prepared: delete it and prepare again")
    return complete[-1]


def fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits for a prepared folder, from its JSON, and the sizes and times of its record files.

    Record files may be large and lie on a slow network drive, so they are not read.
    """
    digest = hashlib.sha256()
    for path in sorted(entry for entry in folder.iterdir() if entry.is_file()):
        about = path.stat()
        content = path.read_bytes() if path.suffix == ".json" else f"{about.st_size} {about.st_mtime_ns}".encode()
        digest.update(f"{path.name}\n".encode() + content)
    return digest.hexdigest()[:16]


def listing(data_dir: Path) -> list[str]:
    """Return the sorted names (``name`` or ``name/config``) of the prepared data sets in a folder."""
    try:
        paths = [*data_dir.glob(f"*/*/{_INFO}"), *data_dir.glob(f"*/*/*/{_INFO}")]
    except OSError:
        return []
    return sorted(path.parent.parent.relative_to(data_dir).as_posix() for path in paths)


def _versions(base: Path) -> list[Path]:
    found = [entry for entry in base.iterdir() if entry.is_dir() and _VERSION.fullmatch(entry.name)]
    return sorted(found, key=lambda entry: tuple(int(part) for part in entry.name.split(".")))


_CHUNK_EXAMPLES = 2048
_JPEG_MAGIC = b"\xff\xd8"
_PILLOW_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Data sets published as exact pixels; JPEG records of these are lossy copies.
_PUBLISHED_EXACTLY = ("mnist", "fashion_mnist", "kmnist", "emnist", "cifar10", "cifar100", "svhn_cropped")


class _Keys(NamedTuple):
    image: str
    label: str
    channels: int
    num_classes: int


def read(folder: Path, name: str) -> Dataset:
    """Decode the splits ``train`` and ``test`` (``validation`` if that is missing) of a prepared data set into memory.

    Raises UserError if the folder is damaged or does not hold array_record images of one shape with one integer label
    each, or if tensorflow-datasets, array_record or Pillow cannot be imported.
    """
    # TFDS returns raw bytes, which Pillow decodes: two to three times as fast as TFDS's own decoding.
    try:
        about = dict(files.read_json(folder / _INFO))
    except (OSError, ValueError, TypeError) as problem:
        raise UserError(f"{folder / _INFO} is damaged ({problem}): prepare the data set again") from problem
    file_format = about.get("fileFormat", "tfrecord")
    if file_format != "array_record":
        raise UserError(
            f"{folder} holds {file_format} files, which need TensorFlow to read: prepare the data set again with "
            "tfds.builder(..., file_format='array_record') or --file_format=array_record"
        )
    tfds = _import_tfds()
    with plugins.quiet():
        try:
            builder = tfds.builder_from_directory(folder)
            keys = _keys(tfds, builder.info, folder)
            sizes = {split: int(info.num_examples) for split, info in builder.info.splits.items()}
        except UserError:
            raise
        except Exception as problem:
            raise _damaged(folder, problem) from problem
        splits = ("train", "test" if "test" in sizes else "validation")
        for split in splits:
            if split not in sizes:
                raise UserError(f"{folder} has no {split!r} split (it has: {', '.join(sizes) or 'none'}): use another")
        (*train, jpeg), (*test, _) = (_decode(folder, builder, split, sizes[split], keys) for split in splits)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise UserError(f"{folder} has images of different sizes in its splits: prepare it with one size")
    source = f"TFDS {about.get('version', folder.name)}"
    if jpeg:
        exact = name.split("/")[0] in _PUBLISHED_EXACTLY
        source += ", lossy JPEG copy, not the official pixels" if exact else ", lossy JPEG records"
    return Dataset.build(name, (train[0], train[1]), (test[0], test[1]), num_classes=keys.num_classes, source=source)


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
        raise UserError(f"{folder} has {image.np_dtype} images of shape {image.shape}: only uint8 images are supported")
    return _Keys(images[0], labels[0], image.shape[-1], int(features[labels[0]].num_classes or 0))


def _decode(folder: Path, builder: Any, split: str, size: int, keys: _Keys) -> tuple[np.ndarray, np.ndarray, bool]:
    from PIL import Image
    from tensorflow_datasets.core.decode import DeserializeMethod
    from tensorflow_datasets.proto import tf_example_pb2

    if size == 0:
        raise UserError(f"{folder} has an empty {split!r} split: prepare the data set again")
    images, labels, jpeg, mode = np.empty(0, np.uint8), np.empty(size, np.int32), False, _PILLOW_MODES[keys.channels]
    try:
        records = builder.as_data_source(split=split, deserialize_method=DeserializeMethod.RAW_BYTES)
        for start in download.tracked(range(0, size, _CHUNK_EXAMPLES), f"decoding {folder}"):
            positions = list(range(start, min(start + _CHUNK_EXAMPLES, size)))
            for position, record in zip(positions, records.__getitems__(positions), strict=True):
                example = tf_example_pb2.Example.FromString(record)  # pyright: ignore[reportAttributeAccessIssue]
                feature = example.features.feature
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
    except UserError:
        raise
    except Exception as problem:
        raise _damaged(folder, problem) from problem
    return images, labels, jpeg


def _damaged(folder: Path, problem: Exception) -> UserError:
    if isinstance(problem, ImportError):  # TFDS imports some of its parts lazily
        return _unavailable(problem)
    reason = examples.reason(problem)
    return UserError(f"{folder} is damaged or incomplete ({reason}): delete it and prepare the data set again")


def _unavailable(problem: Exception) -> UserError:
    return UserError(
        "folders that tensorflow-datasets has prepared are read with tensorflow-datasets, array_record and Pillow, but "
        f"importing them fails ({parsing.reason(problem)}); pip install --upgrade tensorflow-datasets array_record "
        "pillow"
    )


def _import_tfds() -> Any:
    with plugins.quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import PIL.Image  # noqa: F401
            import tensorflow_datasets as tfds
            from array_record.python import array_record_module  # noqa: F401 # pyright: ignore
            from tensorflow_datasets.core.decode import DeserializeMethod  # noqa: F401

            # Trigger the lazy imports here, so that later errors are due to the folder.
            _ = tfds.builder_from_directory, tfds.features.Image
            return tfds
        except Exception as problem:  # incompatible versions may raise anything
            raise _unavailable(problem) from problem
