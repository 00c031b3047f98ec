"""Integrity checks of a run's files against its newest manifest.

The newest manifest is `result.json` or a checkpoint's manifest. Rounds after it were written by a process that was
killed, and are ignored.
"""

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.core import files
from fedjax_sel.runs import checkpoint, manifest
from fedjax_sel.runs.manifest import DamagedError, Manifest
from fedjax_sel.runs.provenance import Digests
from fedjax_sel.runs.run_files import CHECKPOINTS, COHORTS, DATA, METRICS, MOST_BYTES, PARAMS, RESULT, read_json

UNREADABLE = (OSError, ValueError, KeyError)  # errors that readers of a damaged file raise


class CutError(ValueError):
    """An error for missing rounds that a manifest covers."""


def newest(path: Path) -> Manifest | None:
    """Return the newest manifest in a run's folder; None if there is no intact one."""
    checkpoints = (place / checkpoint.MANIFEST for place in checkpoint.list_all(path / CHECKPOINTS))
    found = [about for about in (_first([path / RESULT]), _first(checkpoints)) if about is not None]
    return max(found, key=lambda about: about["rounds"], default=None)


def is_sealed(path: Path, about: Manifest | None) -> bool:
    """Return whether `result.json`, a run's last file, covers its newest rounds.

    If only a checkpoint covers them, the process died before it wrote the files that follow a checkpoint.

    Args:
        path: the folder.
        about: the manifest from `newest`.
    """
    if about is None:  # without a manifest, look for the weights, which are written just before result.json
        return (path / PARAMS).exists()
    sealed = _first([path / RESULT])
    return sealed is not None and sealed["rounds"] == about["rounds"]


def _first(manifests: Iterable[Path]) -> Manifest | None:
    """Return the first intact manifest."""
    for file in manifests:
        with contextlib.suppress(DamagedError):
            return manifest.read(file)
    return None


def made_from(path: Path, about: Manifest | None) -> Digests | None:
    """Return digests of a run's data, from its manifest or else from `data.json`; None if neither has them.

    Args:
        path: the folder.
        about: the manifest from `newest`.
    """
    if about is not None:
        return about["data"]
    data = read_json(path / DATA)
    try:
        partitions = {seed: own["sha256"] for seed, own in data["partitions"].items()}
        found = {"dataset": data["sha256"], "partitions": partitions}
    except (KeyError, TypeError, AttributeError):
        return None
    return found | ({"available": data["available"]} if "available" in data else {})


def higher_is_better(about: Manifest | None) -> bool:
    """Return whether larger values of the run's measure are better; True if the manifest does not say."""
    return True if about is None else about.get("higher_is_better", True)


def source(path: Path, about: Manifest | None) -> str:
    """Return the origin of a run's data, for titles.

    Args:
        path: the folder.
        about: the manifest from `newest`.
    """
    if about is not None and "source" in about:
        return about["source"]
    data = read_json(path / DATA)
    return str(data["source"]) if isinstance(data, dict) and "source" in data else "of unknown source"


def rows_and_cohorts(path: Path, config: Config, about: Manifest | None, whole: bool) -> tuple[str, np.ndarray]:
    """Read and verify the rows and the cohorts that a manifest covers.

    Args:
        path: the folder.
        config: the run's configuration.
        about: the manifest; None to read all rows and cohorts unverified.
        whole: whether to reject rounds after the last round of the manifest.

    Returns:
        The rows as text, and the cohorts, int32 [seeds, rounds, K].

    Raises:
        CutError: rows or cohorts are missing at the end.
        ValueError: rows or cohorts do not match the manifest.
        OSError: a file cannot be read.
    """
    rows, cohorts = files.read_bytes(path / METRICS, MOST_BYTES), _cohorts(path, config)
    if about is None:
        return rows.decode(), cohorts
    size, rounds = about["metrics"]["bytes"], about["rounds"]
    for name, length, expected in ((METRICS, len(rows), size), (COHORTS, cohorts.shape[1], rounds)):
        if length < expected:
            raise CutError(f"{name} was truncated")
        if whole and length > expected:
            raise ValueError(f"{name} has more rounds than the run")
    if hashlib.sha256(rows[:size]).hexdigest() != about["metrics"]["sha256"]:
        raise ValueError(f"{METRICS} was changed")
    if checkpoint.digest_of_array(cohorts[:, :rounds]) != about["cohorts"]:
        raise ValueError(f"{COHORTS} was changed")
    return rows[:size].decode(), cohorts[:, :rounds]


def _cohorts(path: Path, config: Config) -> np.ndarray:
    try:
        found = files.read_array(path / COHORTS, MOST_BYTES)
    except ValueError as error:
        raise ValueError(f"{COHORTS}: {error}") from error
    expected = len(config.run.seeds), config.selection.num_selected
    if found.ndim != 3 or found.dtype != np.int32 or (len(found), found.shape[2]) != expected:
        raise ValueError(f"{COHORTS} was changed")
    return found
