"""Runs that may end early: as soon as the rounds that are there answer what they were run for."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from fedjax_sel.config import Config
from fedjax_sel.experiment import experiment_of
from fedjax_sel.runs import folder, following, provenance, reading, run_files, told, verdict
from fedjax_sel.runs.records import Result

Enough = Callable[[Result], bool]
"""Whether the rounds so far are enough; what it says must stay so as rounds are added."""


class Until:
    """A callback that ends a run once its rounds are enough, those before it went on included."""

    def __init__(self, path: Path, enough: Enough):
        """Take the folder of the run, to which every chunk is written before a callback hears of it."""
        self._path, self._enough = path, enough

    def resume(self, earlier: Result) -> bool:
        """Return whether the run may end where it was left."""
        return self._enough(earlier)

    def chunk(self, rounds: Result, first: int) -> bool:
        """Return whether the run may end."""
        del rounds, first
        return self._enough(following.so_far(self._path)[0])


def result_of(path: Path, config: Config, enough: Enough) -> Result | None:
    """Return what an unfinished run has, if that is enough; None where it has to go on, or begin.

    Args:
        path: the folder, whose run is of this configuration.
        config: what is to be run.
        enough: whether the rounds of a result are.

    Raises:
        UserError: the run is damaged, was made from other data, or left out updates at which this one would end.
    """
    known = told.newest(path) if (path / run_files.METRICS).exists() else None
    if known is None or not told.is_sealed(path, known):
        return None  # nothing vouches for its rows, or files are missing
    result = reading.load_whole(path)
    if result is None or not result.num_rounds or not enough(result):
        return None
    result = dataclasses.replace(result, config=config)
    data = provenance.of_experiment(experiment_of(config), known.get("server_validation"))
    folder.refuse_other_data(path, data)
    verdict.refuse_what_was_skipped(result, config)
    return result
