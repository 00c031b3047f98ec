"""Where a federation stands, in a folder: its clients, its Selector, and the model that opens the round.

The Selector's file is written last and says which round it is; the model of that round is there by then.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_sel.adapters.clients import Arrays
from fedjax_sel.core import files, whole_files
from fedjax_sel.errors import UserError
from fedjax_sel.selector import Selector, storage

CLIENTS, SELECTOR = "clients.json", "selector.npz"


class Found(NamedTuple):
    """Of an earlier start."""

    clients: dict[str, tuple[int, int]]  # name -> its examples, and those with what it holds out


def make(folder: Path) -> None:
    """Make the folder where it is missing.

    Raises:
        UserError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"folder: {folder} cannot be made ({error.strerror}); give another folder") from error


def begun(folder: Path) -> Found | None:
    """Return what an earlier start left; None where there was none.

    Raises:
        UserError: it cannot be read.
    """
    path = folder / CLIENTS
    if not path.exists():
        return None
    try:
        listed = files.parse_json(files.read_text(path))
        return Found({str(name): (int(train), int(all)) for name, (train, all) in listed.items()})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"folder: {path} cannot be read ({error}); restore it, or give another folder") from error


def begin(folder: Path, clients: Mapping[str, tuple[int, int]]) -> None:
    """Write who the clients are, into a folder that may be missing.

    Raises:
        UserError: it cannot be written.
    """
    path = folder / CLIENTS
    listed = json.dumps({name: list(sizes) for name, sizes in clients.items()}, indent=1) + "\n"
    make(folder)
    try:
        whole_files.write(path, listed.encode())
    except OSError as error:
        raise UserError(f"folder: {path} cannot be written ({error.strerror}); give another folder") from error


def save(folder: Path, selector: Selector, weights: Arrays) -> None:
    """Write where the federation stands between two rounds.

    Raises:
        UserError: it cannot be written.
    """
    kept = _weights(folder, selector.round)
    storage.write(kept, {"names": list(weights), "round": selector.round}, list(weights.values()))
    selector.save(folder / SELECTOR)
    for other in folder.glob("weights-*.npz"):
        if other != kept:
            other.unlink(missing_ok=True)


def load(folder: Path, selector: Selector) -> Arrays | None:
    """Bring a Selector to where it was saved, and return the weights; None where nothing was saved.

    Raises:
        UserError: a file is damaged, or of another federation.
    """
    if not (folder / SELECTOR).exists():
        return None
    selector.load(folder / SELECTOR)
    path = _weights(folder, selector.round)
    about, leaves = storage.read(path)
    try:
        return dict(zip(about["names"], map(np.asarray, leaves), strict=True))
    except (KeyError, TypeError, ValueError) as error:
        raise storage.broken(path) from error


def _weights(folder: Path, round: int) -> Path:
    return folder / f"weights-{round:06d}.npz"
