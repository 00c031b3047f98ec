"""The cache of decoded data sets, written through temporary folders."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

_MANIFEST = "manifest.json"
_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_CLIENTS = ("client_ids", "test_clients")  # stored only for data sets with natural clients


def root() -> Path:
    """Return the folder of decoded copies: FEDJAX_SEL_CACHE, else below XDG_CACHE_HOME, else below ~/.cache."""
    chosen, base = os.environ.get("FEDJAX_SEL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(chosen or Path(base or "~/.cache", "fedjax_sel")).expanduser()
    except RuntimeError as problem:
        raise UserError(
            f"FEDJAX_SEL_CACHE{'=' + chosen if chosen else ''}: there is no home folder to keep data in: set it to the "
            "absolute path of a folder"
        ) from problem


def copy_folder(parent: Path, name: str, fingerprint: str) -> Path:
    """Return the folder of a data set's decoded copy; a slash in the name (``name/config``) becomes ``--``."""
    return parent / f"{name.replace('/', '--')}-{fingerprint}"


def fetch(parent: Path, name: str, fingerprint: str, build: Callable[[], Dataset]) -> Dataset:
    """Return the copy of a data set in a folder of decoded copies; write a missing copy, and replace a damaged one.

    `fingerprint` is that of the source, which `build` decodes. Images are memory-mapped; if the folder cannot be
    written, the data set is in memory, with a warning.
    """
    copy = copy_folder(parent, name, fingerprint)
    if os.path.exists(copy):  # False also where permissions are missing
        try:
            return _read(copy)
        except _UNREADABLE as damage:
            warnings.warn(f"the decoded copy of {name} is damaged ({damage}) and is rebuilt", stacklevel=2)
            shutil.rmtree(copy, ignore_errors=True)
    dataset = build()
    try:
        write(copy, dataset)
        return _read(copy)
    except _UNREADABLE as problem:
        warnings.warn(f"no copy of {name} could be written to {parent} ({problem}); continuing without", stacklevel=2)
        return dataset


def write(copy: Path, dataset: Dataset) -> None:
    """Write a copy atomically: into a temporary folder beside the final one, which is then renamed.

    A copy that another process writes at the same time is kept. Raises OSError if the folder cannot be written.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=copy.parent, ignore_cleanup_errors=True) as parent:
        temporary = Path(parent) / copy.name
        temporary.mkdir()
        for array in (*_ARRAYS, *(name for name in _CLIENTS if getattr(dataset, name) is not None)):
            np.save(temporary / f"{array}.npy", getattr(dataset, array), allow_pickle=False)
        manifest = {
            "name": dataset.name, "num_classes": dataset.num_classes, "source": dataset.source,
            "mean": dataset.mean, "std": dataset.std,
        }  # fmt: skip
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        try:
            temporary.rename(copy)
        except OSError:
            if not copy.exists():
                raise


_UNREADABLE = (OSError, ValueError, KeyError, TypeError)  # errors of `_read` on a damaged copy


def _read(copy: Path) -> Dataset:
    """Read a copy, with read-only memory-mapped images."""
    manifest = files.read_json(copy / _MANIFEST)
    names = (*_ARRAYS, *(name for name in _CLIENTS if (copy / f"{name}.npy").exists()))
    arrays: dict[str, Any] = {
        name: files.read_array(copy / f"{name}.npy", mapped=name.endswith("images")) for name in names
    }
    mean, std = (None if manifest[key] is None else tuple(manifest[key]) for key in ("mean", "std"))
    about = {key: manifest[key] for key in ("name", "num_classes", "source")}
    return Dataset(**about, **arrays, mean=mean, std=std)
