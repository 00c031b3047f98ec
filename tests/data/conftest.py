"""Every test here has a cache, a home and an environment of its own, and no network.

The data sets in TFDS layout are prepared here, as array_record and without TensorFlow: PNG bytes by Pillow, builders of
our own.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

REAL_DATA_DIR = os.environ.get("TFDS_DATA_DIR")  # before any test clears it


@pytest.fixture
def real_data_dir() -> str:
    """Where the environment says that real data are."""
    if not REAL_DATA_DIR:
        pytest.skip("TFDS_DATA_DIR is not set")
    return REAL_DATA_DIR


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Points every place that data could come from into the test's own folder; returns the cache's."""
    for variable in ("TFDS_DATA_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    # A proxy of the machine must not see requests to the loopback server.
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "home").mkdir()
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that tensorflow-datasets has prepared, with tiny sets; do not change it."""
    data_dir = tmp_path_factory.mktemp("tfds")
    prepare_tiny(data_dir)
    return data_dir


@pytest.fixture
def prepare() -> Callable[..., None]:
    """``prepare(data_dir, names, seed)``."""
    return prepare_tiny


@pytest.fixture
def pixels() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """``pixels(split, image_shape, seed)``: what the tiny sets were made from, in the order of generation."""
    return tiny_pixels


TINY_SIZES = {"train": 30, "test": 12}


def tiny_pixels(split: str, shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one split, in the order of generation; the first pixel is the example's number."""
    rng = np.random.default_rng([seed, TINY_SIZES[split]])
    images = rng.integers(256, size=(TINY_SIZES[split], *shape), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(TINY_SIZES[split])
    return images, (np.arange(TINY_SIZES[split]) % 3).astype(np.int32)


def _encode(image: np.ndarray, file_format: str) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(out, file_format)
    return out.getvalue()


def prepare_tiny(
    data_dir: Path,
    names: tuple[str, ...] = (
        "tiny_gray",
        "tiny_color",
        "tiny_jpeg",
        "cifar10",
        "tiny_ragged",
        "tiny_unlabelled",
        "tiny_deep",
    ),
    seed: int = 0,
) -> None:
    """Prepares the named sets in a folder.

    ``tiny_color`` has other feature names and a validation split, and ``tiny_jpeg`` and ``cifar10`` JPEG records;
    the last three cannot be used.
    """
    import tensorflow_datasets as tfds

    data_dir.mkdir(parents=True, exist_ok=True)
    for name in names:
        color = name in ("tiny_color", "tiny_jpeg", "cifar10")
        encoding = "jpeg" if name in ("tiny_jpeg", "cifar10") else "png"
        image_key, label_key = ("picture", "kind") if name == "tiny_color" else ("image", "label")
        shape = (None, None, 1) if name == "tiny_ragged" else (6, 5, 3 if color else 1)
        features = {image_key: tfds.features.Image(shape=shape, encoding_format=encoding)}
        if name != "tiny_unlabelled":
            features[label_key] = tfds.features.ClassLabel(num_classes=3)

        def info(self, features=features):
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def examples(self, split, name=name, color=color, encoding=encoding, keys=(image_key, label_key)):
            images, labels = tiny_pixels(split, (6, 5, 3 if color else 1), seed)
            for number, (image, label) in enumerate(zip(images, labels, strict=True)):
                image = image[:-1] if name == "tiny_ragged" and number == 3 else image
                image = image.astype(np.uint16) * 257 if name == "tiny_deep" else image
                example = {keys[0]: _encode(image, encoding)}
                if name != "tiny_unlabelled":
                    example[keys[1]] = int(label)
                yield number, example

        def splits(self, download_manager, name=name, examples=examples):
            test = "validation" if name == "tiny_color" else "test"
            return {"train": examples(self, "train"), test: examples(self, "test")}

        body = {
            "VERSION": tfds.core.Version("1.2.0"),
            "name": name,
            "_info": info,
            "_split_generators": splits,
            "_generate_examples": lambda self: None,
            "pkg_dir_path": data_dir,
        }
        builder_class = type(
            name.title().replace("_", ""), (tfds.core.GeneratorBasedBuilder,), body, skip_registration=True
        )
        builder = builder_class(data_dir=data_dir, file_format="array_record")
        builder.download_and_prepare()
