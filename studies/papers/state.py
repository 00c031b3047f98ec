"""Selected arrays of a strategy's final state, saved in the run's folder for figures.

    states.npz     the arrays by path in the state, such as ".strategy.embeddings", each [seeds, ...]

The checkpoint has the same arrays, but it is large and may be deleted. A figure must not require a new run.
"""

import functools
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedjax_sel import DamagedRunError, Result
from fedjax_sel.core import files
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.run_files import DamagedError
from studies.papers.entry import Measure, Scale

FILE = "states.npz"


def keeping(*names: str) -> Measure:
    """Return a measurement that saves arrays of the final state in the folder of each finished run.

    Args:
        *names: paths of the arrays in the state.
    """
    return Measure(functools.partial(_keep, names), functools.partial(_has, names))


def after(result: Result) -> dict[str, np.ndarray]:
    """Return the saved arrays of a run's final state.

    Args:
        result: result of a run with a folder.

    Returns:
        Arrays by path in the state, each [seeds, ...]; empty if none are saved.
    """
    place = folder_of(result) / FILE
    try:
        with np.load(io.BytesIO(place.read_bytes()), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}  # a missing or damaged file is written again


def checkpointed(result: Result, rounds: int) -> dict[str, np.ndarray]:
    """Return all arrays of a run's state after a given round.

    Args:
        result: result of a run with a folder.
        rounds: number of completed rounds.

    Raises:
        DamagedRunError: the checkpoint is missing or damaged.
    """
    folder = folder_of(result)
    for place in checkpoint.list_all(folder / run_files.CHECKPOINTS):
        if checkpoint.rounds_of(place) == rounds:
            try:
                return checkpoint.read(place)[1]
            except DamagedError as error:
                raise DamagedRunError(f"{place}: {error}; remove {folder} to run it again") from error
    raise DamagedRunError(f"{folder}: it has no checkpoint after round {rounds}; remove it to run it again")


def _keep(names: Sequence[str], result: Result, scale: Scale) -> Iterator[str]:
    if _has(names, result, scale):
        return
    arrays = checkpointed(result, result.num_rounds)
    content = io.BytesIO()
    # pyright cannot exclude that a key equals `file`, a parameter of savez.
    np.savez(content, **{**after(result), **{name: arrays[name] for name in names}})  # pyright: ignore[reportArgumentType]
    with run_files.writing(folder_of(result)):
        files.write(folder_of(result) / FILE, content.getvalue())
    yield ""


def _has(names: Sequence[str], result: Result, scale: Scale) -> bool:
    del scale
    return after(result).keys() >= set(names)


def folder_of(result: Result) -> Path:
    """Return the folder of a run."""
    return Path(str(result.config.run.out))


def main_labels(result: Result) -> np.ndarray:
    """Return each client's most frequent label, int [seeds, N]."""
    problem = pose(result.config)
    labels, classes = np.asarray(problem.dataset.train_labels), problem.dataset.num_classes
    return np.stack([part.label_counts(labels, classes).argmax(axis=1) for part in problem.partitions])
