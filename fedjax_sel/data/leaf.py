"""Reader of LEAF's JSON: FEMNIST by writer and Shakespeare by role, with their natural clients.

LEAF's preprocessing writes files of this form into the folders `train/` and `test/`:

    {"users": ["f0_1", ...], "num_samples": [12, ...], "user_data": {"f0_1": {"x": [...], "y": [...]}, ...}}

In FEMNIST, x holds lists of 784 gray levels from 0 to 1 (28 x 28, row by row), and y whole numbers from 0 to 61.
In Shakespeare, x holds texts of 80 characters, and y the character that follows each.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.core.parsing import shown
from fedjax_sel.data import cache, download
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

ALL_LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters. The token (class) of a character is its position.

Source: LEAF's `models/utils/language_utils.py`.
"""

WINDOW = 80  # characters per example

_NAME = "leaf"
_SIDE, _NUM_FEMNIST_CLASSES = 28, 62
_UNKNOWN = ALL_LETTERS.index(" ")  # LEAF's preprocessing also pads with blanks
_TOKENS = np.full(256, -1, np.int32)
_TOKENS[np.frombuffer(ALL_LETTERS.encode("ascii"), np.uint8)] = np.arange(len(ALL_LETTERS))


class _Kind(NamedTuple):
    name: str
    num_classes: int
    is_text: bool
    # A user's (x, y) -> (inputs, targets); the message of a ValueError completes the sentence "of user NAME ...".
    read: Callable[[list[Any], list[Any]], tuple[np.ndarray, np.ndarray]]


class _Split(NamedTuple):
    kind: _Kind
    inputs: np.ndarray
    targets: np.ndarray
    users: np.ndarray  # int64 [n], the user of each example, numbered by first appearance, in training files first


def load(name: str, parent: Path | None = None) -> Dataset:
    """Load a folder in LEAF's format, each user of whose training files is a client; the cache keeps a decoded copy.

    Args:
        name: name of the folder.
        parent: folder that contains it; default: the current folder.

    Returns:
        FEMNIST as uint8 ``[n, 28, 28, 1]``, or Shakespeare as int32 ``[n, 80]`` with the next character, ``[n]``, as
        class. Rounding to 256 gray levels is exact for LEAF's files.

    Raises:
        UserError: the folder is missing, or its files are not LEAF's.

    Source: Caldas et al., "LEAF: A Benchmark for Federated Settings".
    """
    if not name.strip():
        raise UserError("data set 'leaf' needs a folder with train/ and test/: give 'leaf:FOLDER'")
    folder = (parent or Path()) / os.path.expanduser(name)
    paths = {part: _json_files(folder, part) for part in ("train", "test")}
    return cache.fetch(cache.root(), _NAME, _fingerprint(paths), lambda: _read(folder, paths))


def _fingerprint(paths: dict[str, list[Path]]) -> str:
    """Return a digest of all files, which takes a hundredth of the time of parsing them."""
    digest = hashlib.sha256()
    for part, files_of_part in paths.items():
        for path in files_of_part:
            try:
                content = files.digest(path)
            except (OSError, ValueError) as problem:
                raise _foreign(path, f"it cannot be read ({problem})") from problem
            digest.update(f"{part} {path.name} {content}\n".encode())
    return digest.hexdigest()[:16]


def _read(folder: Path, paths: dict[str, list[Path]]) -> Dataset:
    numbers: dict[str, int] = {}
    train = _split(folder, paths["train"], None, numbers)
    test = _split(folder, paths["test"], train.kind, numbers)
    if train.kind.is_text:
        train, test = _without_foreign(train, test)
    dataset = Dataset.from_arrays(
        train=(train.inputs, train.targets), test=(test.inputs, test.targets),
        client_ids=train.users, num_classes=train.kind.num_classes, name=_NAME,
    )  # fmt: skip
    return dataclasses.replace(dataset, source=f"LEAF's JSON of {train.kind.name}", test_clients=test.users)


def _without_foreign(*splits: _Split) -> list[_Split]:
    """Read characters outside LEAF's 80 as blanks, with one warning for all splits."""
    if any((array < 0).any() for split in splits for array in (split.inputs, split.targets)):
        warnings.warn("data set 'leaf': characters outside LEAF's 80 are read as blanks", stacklevel=2)
    blanked = [[np.where(array < 0, _UNKNOWN, array) for array in (split.inputs, split.targets)] for split in splits]
    return [split._replace(inputs=x, targets=y) for split, (x, y) in zip(splits, blanked)]


def _json_files(folder: Path, part: str) -> list[Path]:
    try:
        found = sorted(entry for entry in (folder / part).iterdir() if entry.suffix == ".json")
    except (OSError, ValueError) as problem:
        reason = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else str(problem)
        raise UserError(
            f"data set 'leaf': {folder / part} cannot be read ({reason}); give the folder that holds train/ and test/"
        ) from problem
    if not found:
        raise UserError(f"data set 'leaf': {folder / part} has no .json files; create them with LEAF's preprocess.sh")
    return found


def _split(folder: Path, paths: list[Path], kind: _Kind | None, numbers: dict[str, int]) -> _Split:
    """Read the files of one split, and add its new users to `numbers`; None infers the kind from the first example."""
    inputs, targets, users = [], [], []
    for path in download.tracked(paths, f"reading {folder.name}"):
        for user, (x, y) in _users(path).items():
            if not x:
                continue
            if kind is None:
                kind = _SHAKESPEARE if isinstance(x[0], str) else _FEMNIST
            try:
                own_inputs, own_targets = kind.read(x, y)
            except ValueError as problem:
                raise _foreign(path, f"of user {shown(user)} {problem}") from problem
            inputs.append(own_inputs)
            targets.append(own_targets)
            users.append(np.full(len(x), numbers.setdefault(user, len(numbers))))
    if kind is None or not inputs:
        raise _foreign(paths[0].parent, "no user has examples")
    return _Split(kind, np.concatenate(inputs), np.concatenate(targets), np.concatenate(users))


def _users(path: Path) -> dict[str, tuple[list[Any], list[Any]]]:
    """Return each user's x and y."""
    try:
        content = files.read_json(path)
        by_user = {name: content["user_data"][name] for name in content["users"]}
        pairs = {name: (own["x"], own["y"]) for name, own in by_user.items()}
    except (OSError, ValueError) as problem:
        raise _foreign(path, f"it cannot be read ({problem})") from problem
    except (KeyError, TypeError) as problem:
        raise _foreign(path, "it lacks users, or their x and y in user_data") from problem
    for name, (x, y) in pairs.items():
        if len(x) != len(y):
            raise _foreign(path, f"user {shown(name)} has {len(x)} x and {len(y)} y")
    return pairs


def _femnist(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    try:
        shades, labels = np.array(x, np.float32), np.array(y)
    except (ValueError, TypeError):
        shades = labels = np.empty(0)
    if shades.shape != (len(x), _SIDE**2):
        raise ValueError(f"x holds neither lists of {_SIDE**2} numbers (FEMNIST) nor texts (Shakespeare)")
    if not ((shades >= 0) & (shades <= 1)).all():
        raise ValueError("x has gray levels outside 0 to 1")
    return np.rint(shades * 255).astype(np.uint8).reshape(-1, _SIDE, _SIDE, 1), labels


def _shakespeare(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    for name, texts, length in (("x", x, WINDOW), ("y", y, 1)):
        for text in texts:
            if not isinstance(text, str) or len(text) != length:
                raise ValueError(f"{name} has {shown(text)}, not a text of {length} characters")
    return tokens("".join(x)).reshape(-1, WINDOW), tokens("".join(y))


def tokens(text: str) -> np.ndarray:
    """Return the position of each character in ALL_LETTERS, int32 ``[n]``; -1 for other characters."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return _TOKENS[np.minimum(codes, len(_TOKENS) - 1)]


_FEMNIST = _Kind("FEMNIST", _NUM_FEMNIST_CLASSES, False, _femnist)
_SHAKESPEARE = _Kind("Shakespeare", len(ALL_LETTERS), True, _shakespeare)


def _foreign(path: Path, what: str) -> UserError:
    return UserError(
        f"data set 'leaf': {path} is not LEAF's JSON of FEMNIST or Shakespeare: {what}; recreate it (preprocess.sh)"
    )
