"""Checkpoints of a run's state, integrity checks of its files, and files of model weights.

A checkpoint is one `.npz` file, which NumPy reads without fedjax_sel: the leaves of the state by their path in its
pytree, and the manifest as JSON. The archive has a checksum of each of them.
"""

import contextlib
import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.core import files
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.values import VALUE
from fedjax_sel.models.core import Weights, names_of
from fedjax_sel.runs import run_files
from fedjax_sel.runs.run_files import CHECKPOINTS, PARAMS, RESULT, DamagedError, Manifest

MANIFEST = "manifest"  # its name in a checkpoint; the names of leaves begin with a dot or a bracket


def list_all(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first, without checking that they are intact."""
    found = [path for path in folder.glob("round-*.npz") if rounds_of(path) is not None]
    return sorted(found, key=lambda path: rounds_of(path) or 0, reverse=True)  # names may exceed eight digits


def rounds_of(place: Path) -> int | None:
    """Return the number of completed rounds from a checkpoint's name; None for other names."""
    match = re.fullmatch(r"round-(\d+)\.npz", place.name)
    return None if match is None else int(match[1])


def save(folder: Path, rounds: int, about: Manifest, state: Any, keep: int) -> Path:
    """Write a checkpoint of a pytree in host memory atomically, keep the newest `keep`, and return its path.

    Raises OSError if the disk is full or the folder is not writable.
    """
    place = folder / f"round-{rounds:08d}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Any] = {MANIFEST: run_files.encode({**about, "rounds": rounds}), **_named(state)}
    with files.writing(place, sync=True) as file:
        np.savez(file, **entries)
    sync(folder)
    remove_oldest(folder, keep)
    return place


def remove_oldest(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for old in list_all(folder)[keep:]:
        with contextlib.suppress(OSError):
            old.unlink()


def read(place: Path) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Verify a checkpoint, and return its manifest and its arrays by name.

    Raises DamagedError if it is truncated, changed or unreadable.
    """
    try:
        arrays = files.read_arrays(place)
        return run_files.decode(str(arrays.pop(MANIFEST)), place.name), arrays
    except (OSError, ValueError, KeyError) as error:
        raise DamagedError(f"it cannot be read ({error})") from error


def read_manifest(place: Path) -> Manifest:
    """Return a checkpoint's manifest, without reading its arrays; DamagedError if it cannot be read."""
    try:
        with np.load(place, allow_pickle=False) as archive:
            return run_files.decode(str(archive[MANIFEST]), place.name)
    except DamagedError:
        raise
    except Exception as error:  # a damaged archive raises many types of errors
        raise DamagedError(f"it cannot be read ({error})") from error


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
    """Return the arrays from `read` as a pytree like `state`; DamagedError if names, shapes or dtypes differ."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise DamagedError("its array names do not match this run's state")
    filled = []
    for name, (_, leaf) in zip(names, leaves):
        array: Any = arrays[name]
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array, impl=leaf.dtype._impl.name)
        elif array.dtype.kind == "V":  # NumPy reads bfloat16 and the like as bytes
            array = array.view(leaf.dtype)
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            given = f"{array.dtype}{array.shape} in the checkpoint"
            raise DamagedError(f"{name} is {given} and {leaf.dtype}{leaf.shape} in this run")
        filled.append(array)
    return jax.tree.unflatten(structure, filled)


def digest_of_array(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's values."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


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
    found = [about for about in (_sealed(path), _first(list_all(path / CHECKPOINTS))) if about is not None]
    return max(found, key=lambda about: about["rounds"], default=None)


def is_sealed(path: Path, about: Manifest | None) -> bool:
    """Return whether `result.json`, a run's last file, covers the rounds of its newest manifest.

    If only a checkpoint covers them, the process died before it wrote the files that follow a checkpoint.
    """
    if about is None:  # without a manifest, look for the weights, which are written just before result.json
        return (path / PARAMS).exists()
    sealed = _sealed(path)
    return sealed is not None and sealed["rounds"] == about["rounds"]


def _sealed(path: Path) -> Manifest | None:
    """Return the manifest in `result.json`; None if it is missing or damaged."""
    with contextlib.suppress(DamagedError):
        return run_files.read(path / RESULT)
    return None


def _first(checkpoints: Iterable[Path]) -> Manifest | None:
    """Return the first intact manifest of checkpoints."""
    for place in checkpoints:
        with contextlib.suppress(DamagedError):
            return read_manifest(place)
    return None


DIGEST_KEY = "params"  # the key of the SHA-256 of params.npz in result.json
_PART = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")


def to_bytes(weights: Weights) -> bytes:
    """Return the content of `params.npz`: names such as `trained/Dense_0/kernel`, leading axis seeds."""
    by_name = names_of(_nested(names_of(weights)))  # in the order of a checkpoint, so that both give equal bytes
    content = io.BytesIO()
    np.savez(content, **by_name)
    return content.getvalue()


def like(shapes: Weights, weights: Weights, config: Config | None = None) -> Weights:
    """Return weights in their module's pytree `shapes`; weights from a file are nested dicts, sorted by name.

    The weights are those of one model, or of several models with one leading axis. A difference raises UserError, which
    names the run folder of `config` if it is given.
    """
    wanted, given = names_of(shapes), names_of(weights)
    if (found := difference(wanted, given)) is not None:
        wrong = UserError(f"the weights do not match this model: {found}")
        raise wrong if config is None else another_model(config, found)
    return jax.tree.unflatten(jax.tree.structure(shapes), [given[name] for name in wanted])


def difference(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Return the first difference between leaves, perhaps with a leading axis, and a model's leaves, or None."""
    if unmatched := sorted(given.keys() ^ wanted.keys()):
        return f"{unmatched[0]!r} is missing in one of them"
    for name, leaf in wanted.items():
        shape = tuple(given[name].shape)
        more = len(shape) - len(leaf.shape)
        if more not in (0, 1) or shape[more:] != tuple(leaf.shape):
            return f"{name!r} has shape {list(shape[more:])}, this model {list(leaf.shape)}"
    return None


def another_model(config: Config, difference: str) -> UserError:
    """Return the error for a folder whose run has a different model with the same name."""
    name = config.model.model.removeprefix(VALUE)
    return UserError(
        f"--out: the run in {config.run.out} has a different model named {name} ({difference}); change the name or "
        "the folder"
    )


def read_weights(folder: Path) -> Weights | None:
    """Return the weights of a run that ended, as nested dicts; None if there are none.

    A lost file of a finished run is rewritten from its last checkpoint.
    """
    file = folder / PARAMS
    if not file.exists():
        return restore(folder)
    digest = run_files.read_json(folder / RESULT).get(DIGEST_KEY)
    try:
        content = file.read_bytes()
        if digest is None:
            warnings.warn(f"{file}: the weights cannot be verified, because {RESULT} has no SHA-256", stacklevel=3)
        elif hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("its SHA-256 differs from the one in result.json")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _nested(arrays)
    except Exception as error:  # a damaged archive raises many types of errors
        kept = list_all(folder / CHECKPOINTS)
        advice = "to restore it from the last checkpoint" if kept else "and repeat the run with --resume never"
        raise UserError(f"{file}: cannot read the weights ({error}); remove the file {advice}") from error


def final(folder: Path, finished: bool) -> Weights | None:
    """Return the weights of a run that is `finished`, or that a callback ended; None if the run may continue."""
    return read_weights(folder) if finished or (folder / PARAMS).exists() else None


def latest(folder: Path) -> Weights:
    """Return the weights of a run that ended, or else the weights of its newest checkpoint."""
    found = final(folder, finished=False) or newest_weights(folder)[1]
    if found is None:
        raise UserError(
            f'weights="latest": {folder} has no intact checkpoint and no {PARAMS}; set checkpoint_every in '
            "the run, or read it without weights"
        )
    return found


def restore(folder: Path) -> Weights | None:
    """Rewrite a finished run's lost weights from its last checkpoint, and return them."""
    last = newest(folder)  # a process may have died between its last checkpoint and result.json
    rounds, weights = newest_weights(folder)
    if weights is None or last is None or rounds != last["rounds"]:
        return None
    with contextlib.suppress(OSError):  # if the disk is not writable, the next call tries again
        files.write(folder / PARAMS, to_bytes(weights))
    return weights


def newest_weights(folder: Path) -> tuple[int, Weights | None]:
    """Return the rounds and the weights of a run's newest intact checkpoint; 0 and None without one."""
    for place in list_all(folder / CHECKPOINTS):
        with contextlib.suppress(DamagedError):
            about, arrays = read(place)
            return about["rounds"], _nested(weights_in_state(arrays))
    return 0, None


def weights_in_state(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights among a state's leaves, by their names in `params.npz`.

    The leaves have their names in a checkpoint, where `.params.trained['fc1']['bias']` is trained/fc1/bias.
    """
    return {
        "/".join(a or b or c for a, b, c in _PART.findall(name.removeprefix(".params"))): leaf
        for name, leaf in leaves.items()
        if name.startswith(".params.")
    }


def _nested(arrays: Mapping[str, Any]) -> Weights:
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        *parts, last = name.split("/")
        node = found
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = array
    return Weights(found.get("trained", {}), found.get("carried", ()))
