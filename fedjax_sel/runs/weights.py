"""The trained weights of a run that ended, in `params.npz`: one array a name, as the modules themselves call them."""

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
TOLD = "params"
"""Where result.json has the file's SHA-256."""
_IN_A_STATE = ".params."
_PART = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")


def to_bytes(weights: Weights) -> bytes:
    """Return the content of `params.npz`: names such as `trained/Dense_0/kernel`, leading axis seeds."""
    by_name = _by_name(_nested(_by_name(weights)))  # in the order in which a checkpoint gives them back
    arrays = {name: np.asarray(leaf) for name, leaf in by_name.items()}
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]  # no leaf is named allow_pickle
    return content.getvalue()


def like(shapes: Weights, weights: Weights) -> Weights:
    """Return weights in the pytree of their module; those of a file are nested dicts, in the order of their text.

    Args:
        shapes: of the module, a pytree with the same names.
        weights: of one model, or of more, with an axis of these in front.

    Raises:
        UserError: they are those of another module.
    """
    if (found := unlike(shapes, weights)) is not None:
        raise UserError(f"the weights are not those of this model: {found}")
    given = _by_name(weights)
    return jax.tree.unflatten(jax.tree.structure(shapes), [given[name] for name in _by_name(shapes)])


def unlike(shapes: Weights, weights: Weights) -> str | None:
    """Return in words why weights cannot be brought into a pytree, as by `like`; None where they can."""
    return difference(_by_name(shapes), _by_name(weights))


def difference(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Return in words what tells weights from those of a model; None where nothing does.

    Args:
        wanted: of the model, name -> what has a shape.
        given: likewise; all of them may have one more axis in front.
    """
    alone = sorted(given.keys() ^ wanted.keys())
    if alone:
        return f"{alone[0]!r} is in one of them alone"
    leading = set()
    for name, here in wanted.items():
        there = tuple(given[name].shape)
        more = len(there) - len(here.shape)
        if more not in (0, 1) or there[more:] != tuple(here.shape):
            return f"{name!r} is {list(there[more:])} there and {list(here.shape)} here"
        leading.add(there[:more])
        if len(leading) > 1:
            return f"{name!r} is {list(there)} there, with another number of seeds than the rest"
    return None


def another_model(config: Config, difference: str) -> UserError:
    """Return the error that says that a folder's run is of a model that only has the name of the one that is given."""
    name = config.model.model.removeprefix(VALUE)
    return UserError(
        f"--out: the run in {config.run.out} is of another model named {name} ({difference}); change the name or the "
        "folder"
    )


def read(folder: Path) -> Weights | None:
    """Return the weights in the folder of a run that ended as nested dicts; None where there are none.

    The file of a finished run that is lost is written again from its last checkpoint.

    Raises:
        UserError: they cannot be read, or are not those that the run wrote.
    """
    file = folder / run_files.PARAMS
    if not file.exists():
        return _from_checkpoint(folder)
    result = run_files.read_json(folder / run_files.RESULT)
    digest = result.get(TOLD) if isinstance(result, dict) else None
    try:
        content = files.read_bytes(file, run_files.MOST_BYTES)
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("its SHA-256 is not the one that result.json tells of")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _nested(arrays)
    except Exception as error:  # a damaged archive raises whatever its parts do
        kept = checkpoint.list_all(folder / run_files.CHECKPOINTS)
        advice = "it is made again from the last checkpoint" if kept else "--resume never makes the run again"
        raise UserError(f"{file}: cannot read the weights ({error}); remove the file, and {advice}") from error


def final(folder: Path, finished: bool) -> Weights | None:
    """Return the weights of a run that ended, as `read` does; None where it may continue.

    Args:
        folder: of the run.
        finished: whether its last round was run; else a callback may have ended it.

    Raises:
        UserError: they cannot be read, or are not those that the run wrote.
    """
    return read(folder) if finished or (folder / run_files.PARAMS).exists() else None


def latest(folder: Path) -> Weights:
    """Return the weights of a run that ended, or else those of its newest checkpoint.

    Raises:
        UserError: they cannot be read, or there is no whole checkpoint.
    """
    found = final(folder, finished=False) or of_newest_checkpoint(folder)[1]
    if found is None:
        raise UserError(
            f'weights="latest": {folder} holds no whole checkpoint and no {run_files.PARAMS}; let the run save '
            "(checkpoint_every), or read it without weights"
        )
    return found


def restore(folder: Path) -> None:
    """Write the weights of a finished run again from its last checkpoint, where their file is lost."""
    if not (folder / run_files.PARAMS).exists():
        _from_checkpoint(folder)


def _from_checkpoint(folder: Path) -> Weights | None:
    known = told.newest(folder)  # a process may have died between its last checkpoint and result.json
    rounds, weights = of_newest_checkpoint(folder)
    if weights is None or known is None or rounds != known["rounds"]:
        return None
    content = to_bytes(weights)
    if known.get(TOLD, digest := hashlib.sha256(content).hexdigest()) != digest:
        return None  # a callback chose others, which are lost
    with contextlib.suppress(OSError):  # a disk that cannot be written: it is made again the next time
        whole_files.write(folder / run_files.PARAMS, content)
    return weights


def of_newest_checkpoint(folder: Path) -> tuple[int, Weights | None]:
    """Return the rounds of a run's newest whole checkpoint, and its weights as nested dicts; None where there is none.

    Args:
        folder: of the run.
    """
    for place in checkpoint.list_all(folder / run_files.CHECKPOINTS):
        with contextlib.suppress(DamagedError):
            about, arrays = checkpoint.read(place)
            return about["rounds"], _nested(in_a_state(arrays))
    return 0, None


def in_a_state(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights among a state's leaves by the names that `params.npz` has for them.

    Args:
        leaves: as a checkpoint names them: ".params.trained['fc1']['bias']" is trained/fc1/bias.
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
