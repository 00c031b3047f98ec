"""Early ends of runs whose completed rounds already suffice."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from fedjax_sel.config import Config
from fedjax_sel.experiment import experiment_of
from fedjax_sel.runs import folder, following, provenance, reading, run_files, told, verdict
from fedjax_sel.runs.records import Result

Enough = Callable[[Result], bool]
"""A monotone predicate: True once the rounds so far suffice, and True for every longer result."""


class Until:
    """A callback that ends a run once its rounds suffice, including those before it was resumed."""

    def __init__(self, path: Path, enough: Enough):
        """Create the callback for a run folder, which receives every chunk before the callbacks are called."""
        self._path, self._enough = path, enough

    def resume(self, earlier: Result) -> bool:
        """Return whether the rounds before the resumption suffice."""
        return self._enough(earlier)

    def chunk(self, rounds: Result, first: int) -> bool:
        """Return whether the run may end."""
        del rounds, first
        return self._enough(following.so_far(self._path)[0])


def result_of(path: Path, config: Config, enough: Enough) -> Result | None:
    """Return the result of an unfinished run if its rounds suffice, else None.

    Args:
        path: the folder of a run with this configuration.
        config: the configuration to run.
        enough: the predicate on the rounds.

    Raises:
        UserError: the run is damaged, used different data, or skipped updates at which this run would stop.
    """
    newest = told.newest(path) if (path / run_files.METRICS).exists() else None
    if newest is None or not told.is_sealed(path, newest):
        return None  # no manifest covers its rows, or files are missing
    result = reading.load_whole(path)
    if result is None or not result.num_rounds or not enough(result):
        return None
    result = dataclasses.replace(result, config=config)
    data = provenance.of_experiment(experiment_of(config), newest.get("server_validation"))
    folder.refuse_other_data(path, data)
    verdict.refuse_what_was_skipped(result, config)
    return result
