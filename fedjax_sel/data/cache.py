"""The cache of decoded data sets: one .npz file for each."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels", "client_ids", "test_clients")
_ABOUT = ("name", "num_classes", "source", "mean", "std")


def root() -> Path:
    """Return the folder of decoded copies: FEDJAX_SEL_CACHE, else below XDG_CACHE_HOME, else below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(os.environ.get("FEDJAX_SEL_CACHE") or f"{base}/fedjax_sel").expanduser()
    except RuntimeError as error:
        raise UserError("FEDJAX_SEL_CACHE: there is no home folder; set it to the absolute path of a folder") from error


def path_of(parent: Path, name: str, fingerprint: str) -> Path:
    """Return the path of a data set's decoded copy; a slash in the name (``name/config``) becomes ``--``."""
    return parent / f"{name.replace('/', '--')}-{fingerprint}.npz"


def fetch(parent: Path, name: str, fingerprint: str, build: Callable[[], Dataset]) -> Dataset:
    """Return the copy of a data set in a folder of decoded copies; write a missing copy, and replace a damaged one.

    `fingerprint` is that of the source, which `build` decodes. If the folder cannot be written, there is a warning.
    """
    path = path_of(parent, name, fingerprint)
    if os.path.exists(path):  # False also where permissions are missing
        try:
            return _read(path)
        except (OSError, ValueError, KeyError) as damage:
            warnings.warn(f"the decoded copy of {name} is damaged ({damage}) and is rebuilt", stacklevel=2)
    dataset = build()
    try:
        write(path, dataset)
    except OSError as problem:
        warnings.warn(f"no copy of {name} could be written to {parent} ({problem}); continuing without", stacklevel=2)
    return dataset


def write(path: Path, dataset: Dataset) -> None:
    """Write a copy atomically; raise OSError if the folder cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(dataset, name) for name in _ARRAYS if getattr(dataset, name) is not None}
    with files.writing(path) as file:
        np.savez(file, about=json.dumps({name: getattr(dataset, name) for name in _ABOUT}), **arrays)


def _read(path: Path) -> Dataset:
    arrays: dict[str, Any] = files.read_arrays(path)
    about = json.loads(str(arrays.pop("about")))
    mean, std = (None if about[key] is None else tuple(about[key]) for key in ("mean", "std"))
    return Dataset(**{**about, **arrays, "mean": mean, "std": std})
