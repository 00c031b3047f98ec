"""Results of a run in progress, read before a manifest covers them."""

from pathlib import Path

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.errors import UserError
from fedjax_sel.runs import folder, rows, run_files, told
from fedjax_sel.runs.records import Result


def so_far(path: Path) -> tuple[Result, int]:
    """Return all rounds with rows, and the number of rounds with cohorts.

    Rows are written after each chunk, cohorts only with a checkpoint. Cohorts after the newest checkpoint are filled
    with -1, as for a round in which no client trained. The last rows have no digest yet, so they are not verified.

    Args:
        path: the folder.

    Returns:
        The result, perhaps of zero rounds, and the number of rounds with cohorts.

    Raises:
        UserError: the folder has no run, or the run is damaged.
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
        newest = told.newest(path)
        padded = np.concatenate([cohorts, missing], axis=1)
        result = rows.parse(config, told.source(path, newest), text, padded, told.higher_is_better(newest))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the run cannot be read ({error}); restore its files, or leave it out") from error
    return result, min(result.num_rounds, cohorts.shape[1])


def _read(path: Path) -> str:
    try:
        return files.read_text(path, run_files.MOST_BYTES)
    except FileNotFoundError:
        return ""
