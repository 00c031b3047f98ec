"""What a run's strategy knew in the end: some arrays of its last state, kept in its folder for figures.

    states.npz     the arrays by their place in the state, such as ".strategy.embeddings", each [seeds, ...]

A checkpoint has them, too, but is large and may be gone, and a figure should not need the run again.
"""

import functools
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedjax_sel.core import files, whole_files
from fedjax_sel.errors import DamagedRunError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import checkpoint, out_folder, run_files
from fedjax_sel.runs.manifest import DamagedError
from fedjax_sel.runs.records import Result
from studies.papers.entry import Measure, Scale

FILE = "states.npz"


def keeping(*names: str) -> Measure:
    """Return what keeps arrays of the last state in the folder of each finished run.

    Args:
        names: their places in the state.
    """
    return Measure(functools.partial(_keep, names), functools.partial(_has, names))


def after(result: Result) -> dict[str, np.ndarray]:
    """Return the arrays that were kept of a run's state after its last round.

    Args:
        result: of a run with a folder.

    Returns:
        By their places in the state, each with a leading axis of seeds; nothing where none were kept.
    """
    place = folder_of(result) / FILE
    try:
        with np.load(io.BytesIO(files.read_bytes(place, run_files.MOST_BYTES)), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}  # they are kept again


def checkpointed(result: Result, rounds: int) -> dict[str, np.ndarray]:
    """Return all arrays of a run's state after so many rounds.

    Args:
        result: of a run with a folder.
        rounds: that are over.

    Raises:
        DamagedRunError: the folder has no such checkpoint, or it is damaged.
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
    # Mappings to arrays would be taken for options where a name is `file`.
    np.savez(content, **{**after(result), **{name: arrays[name] for name in names}})  # pyright: ignore[reportArgumentType]
    with out_folder.writing(folder_of(result)):
        whole_files.write(folder_of(result) / FILE, content.getvalue())
    yield ""


def _has(names: Sequence[str], result: Result, scale: Scale) -> bool:
    del scale
    return after(result).keys() >= set(names)


def folder_of(result: Result) -> Path:
    """Return the folder of a run."""
    return Path(str(result.config.run.out))


def main_labels(result: Result) -> np.ndarray:
    """Return the label that each client holds the most examples of, int [seeds, N]."""
    problem = pose(result.config)
    labels, classes = np.asarray(problem.dataset.train_labels), problem.dataset.num_classes
    return np.stack([part.label_counts(labels, classes).argmax(axis=1) for part in problem.partitions])
