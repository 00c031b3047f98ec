"""Files with a Selector's state: a NumPy archive of arrays, JSON and a digest; without pickle.

Files of earlier versions have no digest and remain readable.
"""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.core import files
from fedjax_sel.errors import UserError

ABOUT = "about"  # entry with the JSON
DIGEST = "sha256"  # entry with the digest of all other entries


def write(path: Path, about: dict[str, Any], tree: Any) -> None:
    """Write a file atomically.

    Args:
        path: the file; an existing one is replaced.
        about: JSON-serializable data.
        tree: a pytree of arrays and random keys.

    Raises:
        UserError: the file cannot be written.
    """
    arrays = {f"leaf_{place}": _plain(leaf) for place, leaf in enumerate(jax.tree.leaves(tree))}
    arrays[ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    entries = {name: _entry(array) for name, array in arrays.items()}
    entries[DIGEST] = _entry(np.frombuffer(_digest(entries), np.uint8))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, entry in entries.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), entry)
    try:
        files.write(path, content.getvalue(), sync=True)
    except OSError as error:
        raise UserError(f"save: {path} cannot be written ({error.strerror or error}); choose another path") from error


def read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read a file that `write` wrote.

    Returns:
        The JSON data and the leaves of the pytree.

    Raises:
        UserError: the file is missing, damaged, or not a Selector's.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(files.read_bytes(path))) as archive:
            # `write` stores entries uncompressed; this check rejects decompression bombs.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("an entry is compressed")
            entries = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
        digest = entries.pop(DIGEST, None)
        if digest is not None and _array(digest).tobytes() != _digest(entries):
            raise ValueError("the digest does not match")
        about = files.parse_json(_array(entries[ABOUT]).tobytes().decode())
        return about, [_array(entries[f"leaf_{place}"]) for place in range(len(entries) - 1)]
    except OSError as error:
        raise UserError(
            f"load: {path} cannot be read ({error.strerror or error}); pass the path of a saved file"
        ) from error
    except Exception as error:  # the parsers raise many exception types on damaged bytes
        raise broken(path) from error


def broken(path: Path) -> UserError:
    """Return the error for a truncated, modified or foreign file."""
    return UserError(f"load: {path} is not an intact Selector file; pass one that `save` wrote")


def _digest(entries: dict[str, bytes]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(f"{name}:{len(entries[name])}:".encode() + entries[name])
    return digest.digest()


def _entry(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=False)
    return content.getvalue()


def _array(entry: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(entry), allow_pickle=False)


def filled(like: Any, leaves: list[np.ndarray]) -> Any:
    """Return a pytree with the leaves of a file.

    Args:
        like: a pytree with the expected structure, shapes and dtypes.
        leaves: leaves from `read`.

    Raises:
        ValueError: the leaves differ in number, shape or dtype.
    """
    old, structure = jax.tree.flatten(like)
    if len(old) != len(leaves):
        raise ValueError("the number of arrays differs")
    for before, leaf in zip(old, leaves):
        plain = _plain(before)
        if plain.shape != leaf.shape or plain.dtype != leaf.dtype:
            raise ValueError("an array has another shape or dtype")
    return jax.tree.unflatten(structure, [_as(before, leaf) for before, leaf in zip(old, leaves)])


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _as(before: Any, leaf: np.ndarray) -> Any:
    return (
        jax.random.wrap_key_data(jax.numpy.asarray(leaf), impl=jax.random.key_impl(before)) if _is_key(before) else leaf
    )
