"""Execution of an entry's runs: finished runs are read, unfinished ones resume, and shared ones run once."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedjax_sel import Config, Result
from studies import grid
from studies.grid import Failure
from studies.papers.entry import Cell, Entry, Part, Scale, folder_of


class Found(NamedTuple):
    """Outcome of an entry's runs."""

    results: dict[Cell, Result]  # results of the finished runs, in the entry's order
    failed: dict[Cell, Failure]  # failures of other runs
    stopped: bool = False  # whether the execution was interrupted
    stopped_by: int = 0  # signal that interrupted it; 0 for an immediate Ctrl-C


def configurations(entry: Entry, out: Path, scale: Scale) -> dict[Cell, Config]:
    """Return the configurations of an entry, with their folders.

    Args:
        entry: the entry.
        out: parent folder of the reproductions.
        scale: scale of the runs.
    """
    scaled = {cell: scale.apply(config) for cell, config in entry.runs.items()}
    return {cell: config.replace(out=str(folder_of(out, config))) for cell, config in scaled.items()}


def run(
    entry: Entry,
    part: Part,
    out: Path,
    scale: Scale,
    say: Callable[[str], None],
    each: Callable[[Found], object],
    workers: grid.Workers | None = None,
    progress: bool = True,
) -> Found:
    """Run a part of an entry, sequentially or on workers, and read the other finished runs.

    Args:
        entry: the entry.
        part: runs to execute.
        out: parent folder of the reproductions.
        scale: scale of the runs.
        say: function that prints a line before each run.
        each: callback with the current outcome after each completed run.
        workers: workers for the runs; None: this process.
        progress: whether runs in this process show a progress bar.

    Raises:
        UserError: the part is empty or unknown.
    """
    planned = configurations(entry, out, scale)
    wanted = entry.of_part(part).runs
    places: dict[str, list[Cell]] = {}
    for cell in wanted:
        places.setdefault(str(planned[cell].run.out), []).append(cell)
    results = _finished(entry, planned, scale)  # includes this part, so that the page is complete from the first run on
    failed: dict[Cell, Failure] = {}

    def found() -> Found:
        return Found({cell: results[cell] for cell in planned if cell in results}, dict(failed))

    unique = [(f"{cells[0].column}, {cells[0].row}", planned[cells[0]]) for cells in places.values()]
    try:
        for done in grid.run_all(unique, say, workers, entry.afterwards(scale), progress, entry.enough):
            cells = places[str(done.config.run.out)]
            if done.stopped_by is not None:
                return found()._replace(stopped=True, stopped_by=done.stopped_by)
            if done.failure is not None:
                failed |= dict.fromkeys(cells, done.failure)
            elif done.result is not None:
                results |= dict.fromkeys(cells, done.result)
                if not done.before:
                    each(found())
    except KeyboardInterrupt:
        return found()._replace(stopped=True)
    return found()


def with_others(entry: Entry, out: Path, scale: Scale, found: Found) -> Found:
    """Return an outcome with the runs that other processes have finished in the meantime.

    Args:
        entry: the entry.
        out: parent folder of the reproductions.
        scale: scale of the runs.
        found: outcome in this process.
    """
    planned = configurations(entry, out, scale)
    results = {**found.results, **_finished(entry, _without(planned, found.results), scale)}
    failed = {cell: why for cell, why in found.failed.items() if cell not in results}
    return found._replace(results={cell: results[cell] for cell in planned if cell in results}, failed=failed)


def _without(planned: dict[Cell, Config], known: Mapping[Cell, object]) -> dict[Cell, Config]:
    return {cell: config for cell, config in planned.items() if cell not in known}


def _finished(entry: Entry, planned: dict[Cell, Config], scale: Scale) -> dict[Cell, Result]:
    """Return the results of the runs that are finished and measured."""
    results = {}
    for cell, config in planned.items():
        with contextlib.suppress(*grid.FAILURES):
            result = grid.done_before(config, entry.enough)
            if result is not None and entry.is_measured(result, scale):
                results[cell] = result
    return results
