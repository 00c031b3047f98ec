"""The trained weights of a run that ended, in `params.npz`: one array per parameter, by the modules' own names."""

import contextlib
import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.core import files, whole_files
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.values import VALUE
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint, run_files, told
from fedjax_sel.runs.manifest import DamagedError

SEPARATOR = "/"
DIGEST_KEY = "params"
"""The key of the file's SHA-256 in result.json."""
_IN_A_STATE = ".params."
_PART = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")


def to_bytes(weights: Weights) -> bytes:
    """Return the content of `params.npz`: names such as `trained/Dense_0/kernel`, leading axis seeds."""
    by_name = _by_name(_nested(_by_name(weights)))  # in the order of a checkpoint, so that both give equal bytes
    arrays = {name: np.asarray(leaf) for name, leaf in by_name.items()}
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]  # no leaf is named allow_pickle
    return content.getvalue()


def like(shapes: Weights, weights: Weights) -> Weights:
    """Return weights in their module's pytree; weights from a file are nested dicts, sorted by name.

    Args:
        shapes: the module's pytree, with the same names; leaves have shapes.
        weights: weights of one model, or of several models with one leading axis.

    Raises:
        UserError: the weights belong to a different module.
    """
    if (found := unlike(shapes, weights)) is not None:
        raise UserError(f"the weights do not match this model: {found}")
    given = _by_name(weights)
    return jax.tree.unflatten(jax.tree.structure(shapes), [given[name] for name in _by_name(shapes)])


def unlike(shapes: Weights, weights: Weights) -> str | None:
    """Return the reason why `like` would reject the weights, or None."""
    return difference(_by_name(shapes), _by_name(weights))


def difference(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Return the first difference between weights and a model's shapes, or None.

    Args:
        wanted: the model's leaves by name; each has a shape.
        given: the weights by name; all of them may have one more leading axis.
    """
    unmatched = sorted(given.keys() ^ wanted.keys())
    if unmatched:
        return f"{unmatched[0]!r} is missing in one of them"
    leading = set()
    for name, leaf in wanted.items():
        shape = tuple(given[name].shape)
        more = len(shape) - len(leaf.shape)
        if more not in (0, 1) or shape[more:] != tuple(leaf.shape):
            return f"{name!r} has shape {list(shape[more:])}, this model {list(leaf.shape)}"
        leading.add(shape[:more])
        if len(leading) > 1:
            return f"{name!r} has shape {list(shape)}, with another number of seeds than the other weights"
    return None


def another_model(config: Config, difference: str) -> UserError:
    """Return the error for a folder whose run has a different model with the same name."""
    name = config.model.model.removeprefix(VALUE)
    return UserError(
        f"--out: the run in {config.run.out} has a different model named {name} ({difference}); change the name or "
        "the folder"
    )


def read(folder: Path) -> Weights | None:
    """Return the weights of a run that ended, as nested dicts; None if there are none.

    A lost file of a finished run is rewritten from its last checkpoint.

    Raises:
        UserError: the file cannot be read, or was changed.
    """
    file = folder / run_files.PARAMS
    if not file.exists():
        return _from_checkpoint(folder)
    result = run_files.read_json(folder / run_files.RESULT)
    digest = result.get(DIGEST_KEY) if isinstance(result, dict) else None
    try:
        content = files.read_bytes(file, run_files.MOST_BYTES)
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("its SHA-256 differs from the one in result.json")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _nested(arrays)
    except Exception as error:  # a damaged archive raises many types of errors
        kept = checkpoint.list_all(folder / run_files.CHECKPOINTS)
        advice = "to restore it from the last checkpoint" if kept else "and repeat the run with --resume never"
        raise UserError(f"{file}: cannot read the weights ({error}); remove the file {advice}") from error


def final(folder: Path, finished: bool) -> Weights | None:
    """Return the weights of a run that ended, as `read` does; None if the run may continue.

    Args:
        folder: the run's folder.
        finished: whether the last round is complete; else a callback may have ended the run.

    Raises:
        UserError: the file cannot be read, or was changed.
    """
    return read(folder) if finished or (folder / run_files.PARAMS).exists() else None


def latest(folder: Path) -> Weights:
    """Return the weights of a run that ended, or else the weights of its newest checkpoint.

    Raises:
        UserError: the file cannot be read, or there is no intact checkpoint.
    """
    found = final(folder, finished=False) or of_newest_checkpoint(folder)[1]
    if found is None:
        raise UserError(
            f'weights="latest": {folder} has no intact checkpoint and no {run_files.PARAMS}; set checkpoint_every in '
            "the run, or read it without weights"
        )
    return found


def restore(folder: Path) -> None:
    """Rewrite a finished run's weights from its last checkpoint if their file is lost."""
    if not (folder / run_files.PARAMS).exists():
        _from_checkpoint(folder)


def _from_checkpoint(folder: Path) -> Weights | None:
    newest = told.newest(folder)  # a process may have died between its last checkpoint and result.json
    rounds, weights = of_newest_checkpoint(folder)
    if weights is None or newest is None or rounds != newest["rounds"]:
        return None
    content = to_bytes(weights)
    if newest.get(DIGEST_KEY, digest := hashlib.sha256(content).hexdigest()) != digest:
        return None  # a callback had chosen other weights, which are lost
    with contextlib.suppress(OSError):  # if the disk is not writable, the next call tries again
        whole_files.write(folder / run_files.PARAMS, content)
    return weights


def of_newest_checkpoint(folder: Path) -> tuple[int, Weights | None]:
    """Return the number of rounds and the weights of a run's newest intact checkpoint; 0 and None without one.

    Args:
        folder: the run's folder.
    """
    for place in checkpoint.list_all(folder / run_files.CHECKPOINTS):
        with contextlib.suppress(DamagedError):
            about, arrays = checkpoint.read(place)
            return about["rounds"], _nested(in_a_state(arrays))
    return 0, None


def in_a_state(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights among a state's leaves, by their names in `params.npz`.

    Args:
        leaves: leaves by their names in a checkpoint, where ".params.trained['fc1']['bias']" is trained/fc1/bias.
    """
    return {
        SEPARATOR.join(a or b or c for a, b, c in _PART.findall(name.removeprefix(".params"))): leaf
        for name, leaf in leaves.items()
        if name.startswith(_IN_A_STATE)
    }


def _nested(arrays: Mapping[str, Any]) -> Weights:
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        *parts, last = name.split(SEPARATOR)
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
