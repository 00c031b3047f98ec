"""Folder with a federation's state: its clients, its Selector, and the model at the start of the round.

The Selector's file determines the round. It is written last, when the model of that round is already on disk.
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


class Saved(NamedTuple):
    """Clients of an earlier start."""

    clients: dict[str, tuple[int, int]]  # name -> number of examples without and with held-out ones


def make(folder: Path) -> None:
    """Create the folder if it is missing.

    Raises:
        UserError: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"folder: {folder} cannot be created ({error.strerror}); choose another folder") from error


def load_clients(folder: Path) -> Saved | None:
    """Return the clients of an earlier start; None if there was none.

    Raises:
        UserError: the file cannot be read.
    """
    path = folder / CLIENTS
    if not path.exists():
        return None
    try:
        listed = files.parse_json(files.read_text(path))
        return Saved({str(name): (int(train), int(all)) for name, (train, all) in listed.items()})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"folder: {path} cannot be read ({error}); restore it, or choose another folder") from error


def save_clients(folder: Path, clients: Mapping[str, tuple[int, int]]) -> None:
    """Save the clients, and create the folder if it is missing.

    Raises:
        UserError: the file cannot be written.
    """
    path = folder / CLIENTS
    listed = json.dumps({name: list(sizes) for name, sizes in clients.items()}, indent=1) + "\n"
    make(folder)
    try:
        whole_files.write(path, listed.encode())
    except OSError as error:
        raise UserError(f"folder: {path} cannot be written ({error.strerror}); choose another folder") from error


def save(folder: Path, selector: Selector, weights: Arrays) -> None:
    """Save the federation's state between two rounds.

    Raises:
        UserError: a file cannot be written.
    """
    current = _weights(folder, selector.round)
    storage.write(current, {"names": list(weights), "round": selector.round}, list(weights.values()))
    selector.save(folder / SELECTOR)
    for other in folder.glob("weights-*.npz"):
        if other != current:
            other.unlink(missing_ok=True)


def load(folder: Path, selector: Selector) -> Arrays | None:
    """Restore a Selector, and return the saved weights; None if there is no saved state.

    Raises:
        UserError: a file is damaged, or belongs to another federation.
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
