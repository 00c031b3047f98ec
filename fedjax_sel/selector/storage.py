"""A Selector's standing in one file: NumPy's archive of arrays, and the rest as JSON in it; nothing is pickled."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.core import files, whole_files
from fedjax_sel.errors import UserError

ABOUT = "about"  # the entry that holds the JSON


def write(path: Path, about: dict[str, Any], tree: Any) -> None:
    """Write a file, all of it or nothing.

    Args:
        path: the file; replaced where it is there.
        about: as JSON.
        tree: a pytree of arrays and random keys.

    Raises:
        UserError: it cannot be written.
    """
    arrays = {f"leaf_{place}": _plain(leaf) for place, leaf in enumerate(jax.tree.leaves(tree))}
    arrays[ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    try:
        whole_files.write(path, content.getvalue(), sync=True)
    except OSError as error:
        raise UserError(f"save: {path} cannot be written ({error.strerror or error}); give another path") from error


def read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read a file.

    Args:
        path: the file.

    Returns:
        The JSON, and the leaves.

    Raises:
        UserError: it is not there, or is no whole file of a Selector.
    """
    try:
        files.check(path)
        with np.load(path, allow_pickle=False) as archive:
            about = files.parse_json(archive[ABOUT].tobytes().decode())
            leaves = [archive[f"leaf_{place}"] for place in range(len(archive.files) - 1)]
    except OSError as error:
        raise UserError(f"load: {path} cannot be read ({error.strerror or error}); give the path of `save`") from error
    except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(f"load: {path} is no whole file of a Selector; give one that `save` wrote") from error
    return about, leaves


def filled(like: Any, leaves: list[np.ndarray]) -> Any:
    """Return a pytree with other leaves.

    Args:
        like: with the structure, shapes and dtypes.
        leaves: from `read`.

    Raises:
        ValueError: they do not fit.
    """
    old, structure = jax.tree.flatten(like)
    if len(old) != len(leaves):
        raise ValueError("another number of arrays")
    for before, leaf in zip(old, leaves):
        plain = _plain(before)
        if plain.shape != leaf.shape or plain.dtype != leaf.dtype:
            raise ValueError("an array of another form")
    return jax.tree.unflatten(structure, [_as(before, leaf) for before, leaf in zip(old, leaves)])


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _as(before: Any, leaf: np.ndarray) -> Any:
    return (
        jax.random.wrap_key_data(jax.numpy.asarray(leaf), impl=jax.random.key_impl(before)) if _is_key(before) else leaf
    )
