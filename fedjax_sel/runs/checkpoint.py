"""Checkpoints of a run's state, integrity checks of its files, and files of model weights."""

import contextlib
import errno
import hashlib
import io
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import unflatten_dict

from fedjax_sel.config import Config
from fedjax_sel.core import files, jax_settings, plugins
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.values import VALUE
from fedjax_sel.models.core import Weights, names_of
from fedjax_sel.runs import run_files
from fedjax_sel.runs.run_files import CHECKPOINTS, PARAMS, RESULT, DamagedError, Manifest

MANIFEST, ARRAYS = "manifest.json", "arrays"
_PREFIX = "round-"
_ROOM_TO_SPARE = 2**17  # bytes, for the metadata of orbax and the manifest


def list_all(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first, without checking that they are intact."""
    found = [path for path in folder.glob(f"{_PREFIX}*") if path.is_dir() and rounds_of(path) is not None]
    return sorted(found, key=lambda path: (rounds_of(path), path.name), reverse=True)  # names may exceed eight digits


def rounds_of(place: Path) -> int | None:
    """Return the number of completed rounds from a checkpoint's name; None for other names."""
    match = re.fullmatch(rf"{_PREFIX}(\d+)", place.name)
    return None if match is None else int(match[1])


def save(folder: Path, rounds: int, about: Manifest, state: Any, keep: int) -> Path:
    """Write a checkpoint of a pytree in host memory atomically, keep the newest `keep`, and return its folder.

    Raises OSError if the disk is full or the folder is not writable.
    """
    place = folder / f"{_PREFIX}{rounds:08d}"
    temporary = files.temporary(place)
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
    """Verify every byte of a checkpoint, and return its manifest and its arrays by name.

    Raises DamagedError if a file is missing, truncated, changed or unreadable.
    """
    try:
        about = run_files.read(place / MANIFEST)
        for name, digest in about["files"].items():
            if not (place / name).is_file():
                raise DamagedError(f"{name} is missing")
            if files.digest(place / name) != digest:
                raise DamagedError(f"{name} was changed")
        return about, _read_arrays(place / ARRAYS, about["arrays"])
    except DamagedError:
        raise
    except Exception as error:  # readers raise many types of errors for a damaged file
        message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DamagedError(f"it cannot be read ({message})") from error


def set_aside(place: Path) -> None:
    """Rename an unusable checkpoint, so that it does not count toward `keep`."""
    number = 1
    while (moved := place.with_name(f"damaged-{number}-{place.name}")).exists():
        number += 1
    place.rename(moved)


def _named(state: Any) -> dict[str, np.ndarray]:
    """Return the leaves by their path in the pytree; random keys as their key data."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): jax_settings.as_numpy(leaf) for path, leaf in leaves}


def fill(state: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the arrays from `read` as a pytree like `state`; DamagedError if names, shapes or dtypes differ."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise DamagedError("its array names do not match this run's state")
    filled = []
    for name, (_, leaf) in zip(names, leaves):
        array: Any = arrays[name]
        if jax_settings.is_key(leaf):
            array = jax.random.wrap_key_data(array, impl=leaf.dtype._impl.name)
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            given = f"{array.dtype}{array.shape} in the checkpoint"
            raise DamagedError(f"{name} is {given} and {leaf.dtype}{leaf.shape} in this run")
        filled.append(array)
    return jax.tree.unflatten(structure, filled)


@contextlib.contextmanager
def _orbax() -> Iterator[tuple[Any, Any]]:
    """Yield orbax and an open checkpointer; errors are raised and not also logged."""
    import orbax.checkpoint as ocp  # the import takes seconds

    with plugins.quiet(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        yield ocp, checkpointer


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    # orbax rejects empty arrays; the manifest has their shapes and dtypes.
    stored = {f"{place:05d}": array for place, array in enumerate(arrays.values()) if array.size}
    with _orbax() as (ocp, checkpointer):
        checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(stored))


def _read_arrays(path: Path, described: dict[str, Any]) -> dict[str, np.ndarray]:
    stored = [f"{place:05d}" for place, about in enumerate(described.values()) if 0 not in about["shape"]]
    with _orbax() as (ocp, checkpointer):
        as_numpy = {key: ocp.RestoreArgs(restore_type=np.ndarray) for key in stored}
        found = checkpointer.restore(path.absolute(), args=ocp.args.PyTreeRestore(restore_args=as_numpy))
    empty = {name: np.zeros(about["shape"], about["dtype"]) for name, about in described.items() if 0 in about["shape"]}
    return {name: empty[name] if name in empty else found[f"{place:05d}"] for place, name in enumerate(described)}


def digest_of_array(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's values."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _write_manifest(folder: Path, about: Manifest, arrays: dict[str, np.ndarray]) -> None:
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {path.relative_to(folder).as_posix(): files.digest(path) for path in written}
    described = {name: {"dtype": str(array.dtype), "shape": list(array.shape)} for name, array in arrays.items()}
    run_files.write(folder / MANIFEST, {**about, "arrays": described, "files": digests})


def _commit(temporary: Path, place: Path) -> None:
    for path in [*temporary.rglob("*"), temporary]:
        sync(path)
    temporary.rename(place)
    sync(place.parent)


def sync(path: Path) -> None:
    """Sync a file's content, or a folder's entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Integrity checks against a run's newest manifest: `result.json` or a checkpoint's manifest. Rounds after it were
# written by a process that was killed, and are ignored.

UNREADABLE = (OSError, ValueError, KeyError)  # errors that readers of a damaged file raise


class CutError(ValueError):
    """An error for missing rounds that a manifest covers."""


def newest(path: Path) -> Manifest | None:
    """Return the newest manifest in a run's folder; None if there is no intact one."""
    checkpoints = (place / MANIFEST for place in list_all(path / CHECKPOINTS))
    found = [about for about in (_first([path / RESULT]), _first(checkpoints)) if about is not None]
    return max(found, key=lambda about: about["rounds"], default=None)


def is_sealed(path: Path, about: Manifest) -> bool:
    """Return whether `result.json`, a run's last file, covers the rounds of its newest manifest.

    If only a checkpoint covers them, the process died before it wrote the files that follow a checkpoint.
    """
    sealed = _first([path / RESULT])
    return sealed is not None and sealed["rounds"] == about["rounds"]


def _first(manifests: Iterable[Path]) -> Manifest | None:
    """Return the first intact manifest."""
    for file in manifests:
        with contextlib.suppress(DamagedError):
            return run_files.read(file)
    return None


DIGEST_KEY = "params"  # the key of the SHA-256 of params.npz in result.json


def to_bytes(weights: Weights) -> bytes:
    """Return the content of `params.npz`: names such as `trained/Dense_0/kernel`, leading axis seeds."""
    content = io.BytesIO()
    np.savez(content, **names_of(weights))
    return content.getvalue()


def like(shapes: Weights, weights: Weights, config: Config | None = None) -> Weights:
    """Return weights in their module's pytree `shapes`; weights from a file are nested dicts.

    The weights are those of one model, or of several models with one leading axis. A difference raises UserError, which
    names the run folder of `config` if it is given.
    """
    wanted, given = names_of(shapes), names_of(weights)
    if (found := _difference(wanted, given)) is not None:
        if config is None or config.run.out is None:
            raise UserError(f"the weights do not match this model: {found}")
        name = config.model.model.removeprefix(VALUE)
        raise UserError(
            f"--out: the run in {config.run.out} has a different model named {name} ({found}); change the name or the "
            "folder"
        )
    return jax.tree.unflatten(jax.tree.structure(shapes), [given[name] for name in wanted])


def _difference(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Return the first difference between leaves, perhaps with a leading axis, and a model's leaves, or None."""
    if unmatched := sorted(given.keys() ^ wanted.keys()):
        return f"{unmatched[0]!r} is missing in one of them"
    for name, leaf in wanted.items():
        shape = tuple(given[name].shape)
        more = len(shape) - len(leaf.shape)
        if more not in (0, 1) or shape[more:] != tuple(leaf.shape):
            return f"{name!r} has shape {list(shape[more:])}, this model {list(leaf.shape)}"
    return None


def read_weights(folder: Path) -> Weights | None:
    """Return the weights of a run that ended, as nested dicts; None without the file, or without `result.json`."""
    file = folder / PARAMS
    digest = run_files.read_json(folder / RESULT).get(DIGEST_KEY)
    if digest is None or not file.exists():
        return None
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(
            f"{file}: the weights were changed, because their SHA-256 is not the one in {RESULT}; restore the file, or "
            "repeat the run with --resume never"
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        found = unflatten_dict(dict(arrays), sep="/")
        return Weights(found.get("trained", {}), found.get("carried", ()))
