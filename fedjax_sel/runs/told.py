"""What a run told of its files, and whether they are still so.

The newest manifest tells: `result.json`, or that of a checkpoint. What follows the rounds that it tells of was written
by a process that was killed, and does not count.
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

UNREADABLE = (OSError, ValueError, KeyError)  # what a damaged file makes its reader raise


class CutError(ValueError):
    """Rounds are missing that a manifest tells of."""


def newest(path: Path) -> Manifest | None:
    """Return what the run in a folder told last; None where nothing tells."""
    checkpoints = (place / checkpoint.MANIFEST for place in checkpoint.list_all(path / CHECKPOINTS))
    found = [known for known in (_first([path / RESULT]), _first(checkpoints)) if known is not None]
    return max(found, key=lambda known: known["rounds"], default=None)


def is_sealed(path: Path, known: Manifest | None) -> bool:
    """Return whether a run wrote the last of its files, `result.json`, after its newest rounds.

    Where only a checkpoint holds these rounds, the process died before it wrote the files that follow a checkpoint.

    Args:
        path: the folder.
        known: from `newest`.
    """
    if known is None:  # no manifest: the weights are the last file before result.json
        return (path / PARAMS).exists()
    sealed = _first([path / RESULT])
    return sealed is not None and sealed["rounds"] == known["rounds"]


def _first(manifests: Iterable[Path]) -> Manifest | None:
    """Return the first manifest that is whole."""
    for file in manifests:
        with contextlib.suppress(DamagedError):
            return manifest.read(file)
    return None


def made_from(path: Path, known: Manifest | None) -> Digests | None:
    """Return digests of a run's data: as the run told them, else from `data.json`; None where nothing tells.

    Args:
        path: the folder.
        known: from `newest`.
    """
    if known is not None:
        return known["data"]
    about = read_json(path / DATA)
    try:
        partitions = {seed: own["sha256"] for seed, own in about["partitions"].items()}
        found = {"dataset": about["sha256"], "partitions": partitions}
    except (KeyError, TypeError, AttributeError):
        return None
    return found | ({"available": about["available"]} if "available" in about else {})


def higher_is_better(known: Manifest | None) -> bool:
    """Return whether a target of the run's measure is reached from below, as it is of an accuracy."""
    return True if known is None else known.get("higher_is_better", True)


def source(path: Path, known: Manifest | None) -> str:
    """Return where a run's pixels come from, for titles.

    Args:
        path: the folder.
        known: from `newest`.
    """
    if known is not None and "source" in known:
        return known["source"]
    about = read_json(path / DATA)
    return str(about["source"]) if isinstance(about, dict) and "source" in about else "of unknown source"


def rows_and_cohorts(path: Path, config: Config, about: Manifest | None, whole: bool) -> tuple[str, np.ndarray]:
    """Read the rows and the cohorts that a manifest tells of, if they are there.

    Args:
        path: the folder.
        config: of the run.
        about: the manifest; None: whatever there is.
        whole: whether nothing may come after them.

    Returns:
        The rows as text, and the cohorts, int32 [seeds, rounds, K].

    Raises:
        CutError: some are missing at the end.
        ValueError: they are not what the manifest tells.
        OSError: they cannot be read.
    """
    rows, cohorts = files.read_bytes(path / METRICS, MOST_BYTES), _cohorts(path, config)
    if about is None:
        return rows.decode(), cohorts
    size, rounds = about["metrics"]["bytes"], about["rounds"]
    for name, length, known in ((METRICS, len(rows), size), (COHORTS, cohorts.shape[1], rounds)):
        if length < known:
            raise CutError(f"{name} was cut")
        if whole and length > known:
            raise ValueError(f"{name} has more rounds than were run")
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
    known = len(config.run.seeds), config.selection.num_selected
    if found.ndim != 3 or found.dtype != np.int32 or (len(found), found.shape[2]) != known:
        raise ValueError(f"{COHORTS} was changed")
    return found
