"""The runs of entries: finished ones are read, others go on, and what several entries need is run once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.reproduction.entry import Cell, Entry, Scale, folder_of
from fedjax_sel.runs import grid
from fedjax_sel.runs.records import Result


class Found(NamedTuple):
    """What became of an entry's runs."""

    results: dict[Cell, Result]  # of those that are finished
    failed: dict[Cell, str]  # why the others are not
    stopped_by: int  # the signal that ended it early; 0 without


def configurations(entry: Entry, out: Path, scale: Scale) -> dict[Cell, Config]:
    """Return what an entry runs, with the folder of each.

    Args:
        entry: of which table or figure.
        out: of all that is reproduced.
        scale: how much of it.
    """
    scaled = {cell: scale.apply(config) for cell, config in entry.runs.items()}
    return {cell: config.replace(out=str(folder_of(out, cell, config))) for cell, config in scaled.items()}


def run(
    entry: Entry,
    out: Path,
    scale: Scale,
    say: Callable[[str], None],
    each: Callable[[Found], None],
    workers: grid.Workers | None = None,
) -> Found:
    """Run what an entry needs, one after another or on workers.

    Args:
        entry: of which table or figure.
        out: of all that is reproduced.
        scale: how much of it.
        say: takes a line for the person before each run.
        each: called with what is known whenever a run has finished.
        workers: that take the runs; None: this process.

    Returns:
        What became of them.
    """
    planned = configurations(entry, out, scale)
    found = Found({}, {}, 0)
    places: dict[str, list[Cell]] = {}
    for cell, config in planned.items():
        places.setdefault(str(config.run.out), []).append(cell)
    unique: Sequence[tuple[str, Config]] = [
        (f"{cells[0].column}, {cells[0].row}", planned[cells[0]]) for cells in places.values()
    ]
    for config, outcome in grid.run_all(unique, say, workers):
        cells = places[str(config.run.out)]
        if isinstance(outcome, str):
            found = found._replace(failed={**found.failed, **dict.fromkeys(cells, outcome)})
        elif not outcome.finished:
            return found._replace(stopped_by=outcome.stopped_by)
        else:
            found = found._replace(results={**found.results, **dict.fromkeys(cells, outcome)})
            each(found)
    if not found.results and found.failed:
        raise UserError(f"{entry.name}: no run succeeded; the first one: {next(iter(found.failed.values()))}")
    return found
