"""The trained weights of a finished run, in `params.npz`: one array a name, as the modules themselves call them."""

import contextlib
import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.core import files, whole_files
from fedjax_sel.errors import UserError
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.manifest import DamagedError

SEPARATOR = "/"
TOLD = "params"
"""Where result.json has the file's SHA-256."""
_IN_A_STATE = ".params"
_PART = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")


def to_bytes(weights: Weights) -> bytes:
    """Return the content of `params.npz`: names such as `trained/Dense_0/kernel`, leading axis seeds."""
    arrays = {name: np.asarray(leaf) for name, leaf in _by_name(weights).items()}
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]  # no leaf is named allow_pickle
    return content.getvalue()


def like(shapes: Weights, weights: Weights) -> Weights:
    """Return weights in the pytree of their module; those of a file are nested dicts, in the order of their text.

    Args:
        shapes: of the module, a pytree with the same names.
        weights: of one or more models.

    Raises:
        UserError: they are those of another module.
    """
    given = _by_name(weights)
    wanted = _by_name(shapes)
    if given.keys() != wanted.keys():
        other = sorted(given.keys() ^ wanted.keys())[0]
        raise UserError(f"the weights are not those of this model: {other!r} is in one of them alone")
    return jax.tree.unflatten(jax.tree.structure(shapes), [given[name] for name in wanted])


def read(folder: Path) -> Weights | None:
    """Return the weights in the folder of a finished run as nested dicts; None where there are none.

    A file that is lost is written again from the run's last checkpoint.

    Raises:
        UserError: they cannot be read, or are not those that the run wrote.
    """
    file = folder / run_files.PARAMS
    if not file.exists():
        return _from_checkpoint(folder)
    told = run_files.read_json(folder / run_files.RESULT)
    digest = told.get(TOLD) if isinstance(told, dict) else None
    try:
        content = files.read_bytes(file, run_files.MOST_BYTES)
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("its SHA-256 is not the one that result.json tells of")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _nested({tuple(name.split(SEPARATOR)): arrays[name] for name in arrays.files})
    except Exception as error:  # a damaged archive raises whatever its parts do
        raise UserError(
            f"{file}: cannot read the weights ({error}); remove the file, and it is made again from the last checkpoint"
        ) from error


def _from_checkpoint(folder: Path) -> Weights | None:
    told = run_files.read_json(folder / run_files.RESULT)
    rounds = told.get("rounds") if isinstance(told, dict) else None
    for place in checkpoint.list_all(folder / run_files.CHECKPOINTS):
        with contextlib.suppress(DamagedError):
            about, arrays = checkpoint.read(place)
            if about["rounds"] != rounds:
                return None
            weights = _nested({_parts(name): leaf for name, leaf in arrays.items() if name.startswith(_IN_A_STATE)})
            with contextlib.suppress(OSError):  # a disk that cannot be written: it is made again the next time
                whole_files.write(folder / run_files.PARAMS, to_bytes(weights))
            return weights
    return None


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a leaf's name in a checkpoint: ".params.trained['fc1']['bias']" -> trained, fc1, bias."""
    return tuple(a or b or c for a, b, c in _PART.findall(name.removeprefix(_IN_A_STATE)))


def _nested(arrays: Mapping[tuple[str, ...], np.ndarray]) -> Weights:
    found: dict[str, Any] = {}
    for (*parts, last), array in arrays.items():
        node = found
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = array
    return Weights(found.get("trained", {}), found.get("carried", ()))


def _by_name(weights: Weights) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    return {SEPARATOR.join(_name(key) for key in path): leaf for path, leaf in leaves}


def _name(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
