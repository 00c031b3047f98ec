"""The runs of entries: finished ones are read, others go on, and what several entries need is run once."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.runs.records import Result
from studies import grid
from studies.grid import Failure
from studies.papers.entry import Cell, Entry, Part, Scale, folder_of


class Found(NamedTuple):
    """What became of an entry's runs."""

    results: dict[Cell, Result]  # of those that are finished, in the entry's order
    failed: dict[Cell, Failure]  # why others are not
    stopped: bool = False  # whether it ended early
    stopped_by: int = 0  # the signal that ended it; 0 where Ctrl-C interrupted it at once


def configurations(entry: Entry, out: Path, scale: Scale) -> dict[Cell, Config]:
    """Return what an entry runs, with the folder of each.

    Args:
        entry: of which table or figure.
        out: of all that is reproduced.
        scale: how much of it.
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
    """Run a part of an entry, one after another or on workers, and read what is finished of the others.

    Args:
        entry: of which table or figure.
        part: which of its runs.
        out: of all that is reproduced.
        scale: how much of it.
        say: takes a line for the person before each run.
        each: called with what is known whenever a run was run to its end.
        workers: that take the runs; None: this process.
        progress: whether each run in this process shows its bar.

    Returns:
        What became of them.

    Raises:
        UserError: there is no such part.
    """
    planned = configurations(entry, out, scale)
    wanted = entry.of_part(part).runs
    places: dict[str, list[Cell]] = {}
    for cell in wanted:
        places.setdefault(str(planned[cell].run.out), []).append(cell)
    results = _finished(entry, planned, scale)  # also of this part: a page has all of them from its first run on
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
    """Return what is known with the runs that other processes have finished meanwhile.

    Args:
        entry: of which table or figure.
        out: of all that is reproduced.
        scale: how much of it.
        found: what this process knows.
    """
    planned = configurations(entry, out, scale)
    results = {**found.results, **_finished(entry, _without(planned, found.results), scale)}
    failed = {cell: why for cell, why in found.failed.items() if cell not in results}
    return found._replace(results={cell: results[cell] for cell in planned if cell in results}, failed=failed)


def _without(planned: dict[Cell, Config], known: Mapping[Cell, object]) -> dict[Cell, Config]:
    return {cell: config for cell, config in planned.items() if cell not in known}


def _finished(entry: Entry, planned: dict[Cell, Config], scale: Scale) -> dict[Cell, Result]:
    """Return the results of runs that are there and measured; others do not matter now."""
    results = {}
    for cell, config in planned.items():
        with contextlib.suppress(*grid.FAILURES):
            result = grid.done_before(config, entry.enough)
            if result is not None and entry.is_measured(result, scale):
                results[cell] = result
    return results
