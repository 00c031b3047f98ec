"""The trained weights of a finished run, in `params.npz`: one array a name, as the modules themselves call them."""

import io
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.core import files
from fedjax_sel.errors import UserError
from fedjax_sel.models import Weights
from fedjax_sel.runs import run_files

SEPARATOR = "/"


def to_bytes(weights: Weights) -> bytes:
    """Return the content of `params.npz`: names such as `trained/Dense_0/kernel`, leading axis seeds."""
    arrays = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights):
        arrays[SEPARATOR.join(_name(key) for key in path)] = np.asarray(leaf)
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def read(folder: Path) -> Weights | None:
    """Return the weights in a run's folder as nested dicts; None where there are none, as in an unfinished run.

    Raises:
        UserError: they cannot be read.
    """
    file = folder / run_files.PARAMS
    if not file.exists():
        return None
    try:
        with np.load(io.BytesIO(files.read_bytes(file, run_files.MOST_BYTES)), allow_pickle=False) as arrays:
            found: dict[str, Any] = {}
            for name in arrays.files:
                *parts, last = name.split(SEPARATOR)
                node = found
                for part in parts:
                    node = node.setdefault(part, {})
                node[last] = arrays[name]
    except Exception as error:  # a damaged archive raises whatever its parts do
        raise UserError(
            f"{file}: cannot read the weights ({error}); run the experiment again in another folder"
        ) from error
    return Weights(found.get("trained", {}), found.get("carried", ()))


def _name(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
