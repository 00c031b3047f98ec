"""A run that goes on: what it has written so far, read without waiting for what vouches for it."""

from pathlib import Path

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.errors import UserError
from fedjax_sel.runs import folder, rows, run_files, told
from fedjax_sel.runs.records import Result


def so_far(path: Path) -> tuple[Result, int]:
    """Return every round whose rows are there, and how many of them have known cohorts.

    Rows come after every chunk, cohorts with a checkpoint: behind the latter, cohorts are -1, as where nobody trained.
    Nothing has yet said what the last rows should be, so that they are taken as they are.

    Args:
        path: the folder.

    Returns:
        The result, perhaps of no rounds, and the rounds with cohorts.

    Raises:
        UserError: there is no run, or what is there is damaged.
    """
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give the --out of a run")
    config = folder.stored_config(path)
    seeds, selected = len(config.run.seeds), config.selection.num_selected
    try:
        text = _read(path / run_files.METRICS)
        try:
            cohorts = files.read_array(path / run_files.COHORTS, run_files.MOST_BYTES)
        except FileNotFoundError:
            cohorts = np.zeros((seeds, 0, selected), np.int32)
        rounds = max((text.count("\n") - 1) // seeds, 0)
        missing = np.full((seeds, max(rounds - cohorts.shape[1], 0), selected), -1, np.int32)
        known = told.newest(path)
        whole = np.concatenate([cohorts, missing], axis=1)
        result = rows.parse(config, told.source(path, known), text, whole, told.higher_is_better(known))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the run cannot be read ({error}); bring its files back, or leave it out") from error
    return result, min(result.num_rounds, cohorts.shape[1])


def _read(path: Path) -> str:
    try:
        return files.read_text(path, run_files.MOST_BYTES)
    except FileNotFoundError:
        return ""
