"""The cache of decoded data sets, written through temporary folders."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

_PREFIX = ".writing-"
_ABANDONED_AFTER_SECONDS = 24 * 3600.0


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Create a temporary folder, and remove it on exit unless it was renamed."""
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove the temporary folders that killed writers left in a folder more than a day ago."""
    for entry in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - entry.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                shutil.rmtree(entry, ignore_errors=True)


OFFICIAL = "official_"
"""Prefix of the official files' fingerprints."""

_FORMAT = 1
_MANIFEST = "manifest.json"
_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_CLIENTS = "client_ids"  # stored only for data sets with natural clients


class DamagedCopyError(Exception):
    """A decoded copy fails its integrity check; the message names the file and the reason."""


def root() -> Path:
    """Return the folder of decoded copies: FEDJAX_SEL_CACHE, else below XDG_CACHE_HOME, else below ~/.cache."""
    chosen, base = os.environ.get("FEDJAX_SEL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        if chosen:
            return Path(chosen).expanduser()
        return (Path(base) if base else Path.home() / ".cache") / "fedjax_sel"
    except RuntimeError as problem:
        raise UserError(
            f"FEDJAX_SEL_CACHE{'=' + chosen if chosen else ''}: there is no home folder to keep data in: set it to the "
            "absolute path of a folder"
        ) from problem


def copy_folder(parent: Path, name: str, fingerprint: str) -> Path:
    """Return the folder of a data set's decoded copy; a slash in the name (``name/config``) becomes ``--``."""
    return parent / f"{name.replace('/', '--')}-{fingerprint}"


def find(parent: Path, name: str) -> list[Path]:
    """Return all copies of a data set in a folder, or the folder itself: official files first, then the newest."""
    prefix = name.replace("/", "--") + "-"
    try:
        candidates = [entry for entry in parent.iterdir() if entry.name.startswith(prefix) and entry.is_dir()]
    except OSError:
        return []
    # "name--config-fingerprint" starts with "name-" too, but is another data set.
    candidates = [entry for entry in candidates if "-" not in entry.name[len(prefix) :]]
    if os.path.isfile(parent / _MANIFEST) and parent.name.startswith(prefix):
        candidates.append(parent)

    def rank(copy: Path) -> tuple[bool, float]:
        age = 0.0
        with contextlib.suppress(OSError):  # another process may have moved it aside
            age = -copy.stat().st_mtime
        return (not copy.name.startswith(prefix + OFFICIAL), age)

    return sorted(candidates, key=rank)


def fetch(parent: Path, name: str, fingerprint: str, build: Callable[[], Dataset]) -> Dataset:
    """Return the copy of a data set in a folder of decoded copies; write a missing copy, and replace a damaged one.

    `fingerprint` is that of the source, which `build` decodes. Images are memory-mapped; if the folder cannot be
    written, the data set is in memory, with a warning.
    """
    copy = copy_folder(parent, name, fingerprint)
    sweep(parent)
    if os.path.exists(copy):  # False also where permissions are missing
        try:
            return read(copy, name, fingerprint)
        except DamagedCopyError as damage:
            warnings.warn(f"the decoded copy of {name} is damaged ({damage}) and is rebuilt", stacklevel=2)
    dataset = build()
    try:
        write(copy, dataset, fingerprint)
        return read(copy, name, fingerprint)
    except (OSError, DamagedCopyError) as problem:
        warnings.warn(f"no copy of {name} could be written to {parent} ({problem}); continuing without", stacklevel=2)
        return dataset


def write(copy: Path, dataset: Dataset, fingerprint: str) -> None:
    """Write a copy atomically: into a temporary folder beside the final one, which is then renamed.

    An existing intact copy is kept. Raises OSError if the folder cannot be written.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(copy.parent) as temporary:
        described = {}
        stored = _ARRAYS if dataset.client_ids is None else (*_ARRAYS, _CLIENTS)
        for array in stored:
            path = temporary / f"{array}.npy"
            np.save(path, getattr(dataset, array), allow_pickle=False)
            described[path.name] = _describe(path)
        manifest = {
            "format": _FORMAT, "name": dataset.name, "fingerprint": fingerprint, "num_classes": dataset.num_classes,
            "source": dataset.source, "mean": dataset.mean, "std": dataset.std,
            "shapes": {array: getattr(dataset, array).shape for array in stored}, "files": described,
        }  # fmt: skip
        manifest["digest"] = _manifest_digest(manifest)
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        temporary.chmod(0o755)  # mkdtemp makes it private, but other users may share the cache
        _publish(temporary, copy, dataset.name, fingerprint)


def read(copy: Path, name: str, fingerprint: str | None = None) -> Dataset:
    """Read a copy, with read-only memory-mapped images, and check the digest of every file.

    Raises DamagedCopyError if a check fails, or if the copy holds another data set or another fingerprint (None: any).
    """
    manifest = _read_manifest(copy)
    if manifest["name"] != name or fingerprint not in (None, manifest["fingerprint"]):
        raise DamagedCopyError(f"{copy} holds {manifest['name']} from another source")
    arrays = {}
    try:
        clients = (_CLIENTS,) if f"{_CLIENTS}.npy" in manifest["files"] else ()
        for array in (*_ARRAYS, *clients):
            path = copy / f"{array}.npy"
            expected = manifest["files"][path.name]
            if not path.is_file():
                raise DamagedCopyError(f"{path} is missing")
            if _describe(path) != expected:
                raise DamagedCopyError(f"{path} does not match the SHA-256 in its manifest")
            arrays[array] = files.read_array(path, expected["bytes"], mapped=array.endswith("images"))
        mean, std = (None if manifest[key] is None else tuple(manifest[key]) for key in ("mean", "std"))
        about = {key: manifest[key] for key in ("name", "num_classes", "source")}
        return Dataset(**about, **arrays, mean=mean, std=std)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DamagedCopyError(f"{copy} cannot be read: {problem}") from problem


def _read_manifest(copy: Path) -> dict[str, Any]:
    path = copy / _MANIFEST
    try:
        manifest = files.read_json(path)
    except FileNotFoundError:
        raise DamagedCopyError(f"{path} is missing") from None
    except (OSError, ValueError) as problem:
        raise DamagedCopyError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(manifest, dict) or manifest.get("digest") != _manifest_digest(manifest):
        raise DamagedCopyError(f"{path} was changed after it was written")
    if manifest.get("format") != _FORMAT:
        raise DamagedCopyError(f"{path} has format {manifest.get('format')!r} instead of {_FORMAT}")
    return manifest


def _manifest_digest(manifest: dict[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": files.digest(path)}


def _publish(temporary: Path, copy: Path, name: str, fingerprint: str) -> None:
    """Rename a finished folder into place; keep an intact copy that another writer finished first."""
    for _ in range(10):
        try:
            temporary.rename(copy)
            return
        except OSError:
            if not copy.exists():
                raise
        try:
            read(copy, name, fingerprint)
            return
        except DamagedCopyError:
            # Move it aside instead of deleting it in place: readers may have it open, other writers may replace it too.
            with temporary_folder(copy.parent) as aside, contextlib.suppress(FileNotFoundError):
                copy.rename(aside / "damaged")
    raise OSError(f"{copy} could not be replaced")
