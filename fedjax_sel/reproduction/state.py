"""What a run's strategy knew in the end, from the last checkpoint in the run's folder."""

from pathlib import Path

import numpy as np

from fedjax_sel.errors import DamagedRunError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.records import Result


def after(result: Result) -> dict[str, np.ndarray]:
    """Return the arrays of a run's state after its last round, by their place in the state.

    Args:
        result: of a run with a folder.

    Returns:
        Such as ".strategy.embeddings", with a leading axis of seeds.

    Raises:
        DamagedRunError: the folder has no such checkpoint.
    """
    folder = Path(str(result.config.run.out))
    places = checkpoint.list_all(folder / run_files.CHECKPOINTS)
    if not places:
        raise DamagedRunError(
            f"{folder}: it has no checkpoint, from which a figure is drawn; remove it to run it again"
        )
    return checkpoint.read(places[0])[1]


def main_labels(result: Result) -> np.ndarray:
    """Return the label that each client holds the most examples of, int [seeds, N]."""
    problem = pose(result.config)
    labels, classes = np.asarray(problem.dataset.train_labels), problem.dataset.num_classes
    return np.stack([part.label_counts(labels, classes).argmax(axis=1) for part in problem.partitions])
