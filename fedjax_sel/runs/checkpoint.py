"""Checkpoints: the state of all replicates after a round, with digests that reveal damage.

    checkpoints/round-00000120/
        arrays/         the state's leaves, as orbax writes them
        manifest.json   the run that the state belongs to, and the SHA-256 of every file and array

A checkpoint is written under a temporary name, manifest last, and renamed once it is synced to disk. If the process
dies while saving, the previous checkpoint is still intact. Reading a checkpoint executes no code: orbax stores plain
arrays, and the manifest is JSON.
"""

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import whole_files
from fedjax_sel.runs import manifest
from fedjax_sel.runs.manifest import DamagedError, Manifest

MANIFEST, ARRAYS = "manifest.json", "arrays"
_PREFIX = "round-"
_ROOM_TO_SPARE = 2**17  # bytes, for the metadata of orbax and the manifest


def list_all(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first, without checking that they are intact."""
    found = {path: rounds_of(path) for path in folder.glob(f"{_PREFIX}*") if path.is_dir()}
    rounds = {path: number for path, number in found.items() if number is not None}
    return sorted(
        rounds, key=lambda path: (rounds[path], path.name), reverse=True
    )  # by number: names may exceed eight digits


def rounds_of(place: Path) -> int | None:
    """Return the number of completed rounds from a checkpoint's name; None if the name is not a checkpoint's."""
    match = re.fullmatch(rf"{_PREFIX}(\d+)", place.name)
    return None if match is None else int(match[1])


def save(folder: Path, rounds: int, about: Manifest, state: Any, keep: int) -> Path:
    """Write a checkpoint atomically, then remove the oldest ones.

    Args:
        folder: the run's checkpoint folder.
        rounds: number of completed rounds.
        about: further manifest entries, plain values.
        state: a pytree of arrays in host memory.
        keep: number of checkpoints to keep.

    Returns:
        The checkpoint's folder.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    place = folder / f"{_PREFIX}{rounds:08d}"
    temporary = whole_files.temporary(place)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        arrays = _named(state)
        # Checked up front, because each of orbax's threads reports a full disk with a different error.
        if shutil.disk_usage(folder).free < sum(array.nbytes for array in arrays.values()) + _ROOM_TO_SPARE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _write_arrays(temporary / ARRAYS, arrays)
        _write_manifest(temporary, {**about, "rounds": rounds}, arrays)
        _commit(temporary, place)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    remove_oldest(folder, keep)
    return place


def remove_oldest(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for old in list_all(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)


def read(place: Path) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Verify every byte of a checkpoint and return its content.

    Args:
        place: the checkpoint's folder.

    Returns:
        The manifest, and the arrays for `fill`.

    Raises:
        DamagedError: a file is missing, truncated, changed or unreadable.
    """
    try:
        about = manifest.read(place / MANIFEST)
        for name, digest in about["files"].items():
            if not (place / name).is_file():
                raise DamagedError(f"{name} is missing")
            if _digest_of_file(place / name) != digest:
                raise DamagedError(f"{name} was changed")
        return about, _read_arrays(place / ARRAYS, about["arrays"])
    except DamagedError:
        raise
    except Exception as error:  # readers raise many types of errors for a damaged file
        message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DamagedError(f"it cannot be read ({message})") from error


def remove_unfinished(folder: Path) -> None:
    """Remove partial checkpoints of processes that died while saving; no process may be saving there."""
    for path in folder.glob(f".{_PREFIX}*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def set_aside(place: Path) -> None:
    """Rename an unusable checkpoint, so that it does not count toward `keep`."""
    number = 1
    while (moved := place.with_name(f"damaged-{number}-{place.name}")).exists():
        number += 1
    place.rename(moved)


def _named(state: Any) -> dict[str, np.ndarray]:
    """Return the leaves by their path in the pytree; random keys as their key data."""
    named = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        named[jax.tree_util.keystr(path)] = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return named


def fill(state: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Put a checkpoint's arrays into a pytree.

    Args:
        state: a pytree with the state's structure; leaves are arrays, or shapes and dtypes.
        arrays: the arrays from `read`.

    Raises:
        DamagedError: names, shapes or dtypes do not match.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise DamagedError("its array names do not match this run's state")
    filled = []
    for name, (_, leaf) in zip(names, leaves):
        array: Any = arrays[name]
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array, impl=leaf.dtype._impl.name)
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            shapes = f"{array.dtype}{array.shape} in the checkpoint and {leaf.dtype}{leaf.shape} in this run"
            raise DamagedError(f"{name} is {shapes}")
        filled.append(array)
    return jax.tree.unflatten(structure, filled)


@contextlib.contextmanager
def _orbax() -> Iterator[tuple[Any, Any]]:
    """Yield orbax and an open checkpointer; errors are raised and not also logged."""
    import orbax.checkpoint as ocp  # the import takes seconds

    # With several hosts only the first one writes, so orbax must not wait for the others.
    alone = ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(),
        active_processes={jax.process_index()} if jax.process_count() > 1 else None,
        barrier_sync_key_prefix="fedjax_sel" if jax.process_count() > 1 else None,
    )
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
            yield ocp, checkpointer
    finally:
        log.setLevel(level)


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    # orbax rejects empty arrays; the manifest has their shapes and dtypes.
    stored = {_key(position): array for position, array in enumerate(arrays.values()) if array.size}
    with _orbax() as (ocp, checkpointer):
        checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(stored))


def _read_arrays(path: Path, described: dict[str, Any]) -> dict[str, np.ndarray]:
    stored = {_key(position): None for position, about in enumerate(described.values()) if 0 not in about["shape"]}
    with _orbax() as (ocp, checkpointer):
        as_numpy = {key: ocp.RestoreArgs(restore_type=np.ndarray) for key in stored}
        found = checkpointer.restore(path.absolute(), args=ocp.args.PyTreeRestore(restore_args=as_numpy))
    arrays = {}
    for position, (name, about) in enumerate(described.items()):
        array = found.get(_key(position), np.zeros(about["shape"], about["dtype"]))
        if _description(array) != about:
            raise DamagedError(f"the array {name} was changed")
        arrays[name] = array
    return arrays


def _key(position: int) -> str:
    return f"{position:05d}"


def _description(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": digest_of_array(array)}


def digest_of_array(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's values."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _write_manifest(folder: Path, about: Manifest, arrays: dict[str, np.ndarray]) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    arrays_and_files = {
        "arrays": {name: _description(array) for name, array in arrays.items()},
        "files": {path.relative_to(folder).as_posix(): _digest_of_file(path) for path in files},
    }
    manifest.write(folder / MANIFEST, {**about, **arrays_and_files})


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _commit(temporary: Path, place: Path) -> None:
    """Sync a complete checkpoint to disk and rename it to its final name."""
    for path in [*temporary.rglob("*"), temporary]:
        sync(path)
    temporary.rename(place)
    sync(place.parent)


def sync(path: Path) -> None:
    """Sync a file's content, or a folder's entries, to disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows syncs only writable handles
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
