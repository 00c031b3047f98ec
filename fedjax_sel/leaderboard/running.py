"""The runs of a grid: what is there is not run again, and the grid's folder is written run by run."""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.leaderboard import series
from fedjax_sel.leaderboard.grids import Grid
from fedjax_sel.leaderboard.series import Series
from fedjax_sel.reproduction import runner
from fedjax_sel.reproduction.entry import Cell, Entry, Part, Scale
from fedjax_sel.reproduction.page import Page
from fedjax_sel.runs import grid as independent
from fedjax_sel.runs import origin
from fedjax_sel.runs.lock import FolderLock
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import selection_cost

TIMED_SECONDS = 1.0


class Outcome(NamedTuple):
    """What became of a grid."""

    rows: int  # that its folder holds now
    failed: dict[str, str]  # row -> why it is not there
    stopped: bool = False
    stopped_by: int = 0  # the signal


def run(
    grid: Grid,
    out: Path,
    runs: Path,
    scale: Scale,
    command: str,
    say: Callable[[str], None],
    algos: Collection[str] | None = None,
    data_dir: str | None = None,
    workers: independent.Workers | None = None,
) -> Outcome:
    """Run what is missing of a grid, and keep its series.

    Args:
        grid: what to run.
        out: of the results; the grid has a folder there.
        runs: where the runs' own folders go.
        scale: how much of it.
        command: that asked for it.
        say: takes a line for the person.
        algos: strategies that are run now; None: all.
        data_dir: folder of prepared data, instead of the usual places.
        workers: that take the runs; None: this process.

    Raises:
        UserError: its folder holds results of another scale, or another process writes to it; what it follows from is
            not there; or no run succeeded, now or before.
    """
    folder = out / grid.name
    given = _rows(grid, out)
    series.make(folder)
    with FolderLock() as lock:  # each write is of all rows, which nobody else may add to meanwhile
        lock.take(folder)
        return _run(grid, given, folder, runs, scale, command, say, algos, data_dir, workers)


def _run(
    grid: Grid,
    given: Mapping[str, Config],
    folder: Path,
    runs: Path,
    scale: Scale,
    command: str,
    say: Callable[[str], None],
    algos: Collection[str] | None,
    data_dir: str | None,
    workers: independent.Workers | None,
) -> Outcome:
    if grid.own_seeds and scale.seeds is not None:
        own = next(iter(given.values())).run.seeds
        scale = dataclasses.replace(scale, seeds=own[: len(scale.seeds)])
    planned = {name: scale.apply(config) for name, config in given.items()}
    if data_dir is not None:
        planned = {name: config.replace(data_dir=data_dir) for name, config in planned.items()}
    rows, about = _held(folder, planned)
    about = {
        **about,
        "title": grid.title,
        "other_than_usual": scale.in_words(),
        "commands": list(dict.fromkeys([*about.get("commands", []), command])),
        "num_classes": grid.num_classes,
        "planned": list(planned),
    }
    _note_failures(about, rows, {})
    wanted = {
        name: config
        for name, config in planned.items()
        if name not in rows and (algos is None or config.selection.algo in algos)
    }
    if len(planned) > len(wanted):
        say(f"{grid.name}: {len(wanted)} of {len(planned)} rows to run; {len(rows)} are in {folder}")
    if not wanted:
        return _timed(grid, planned, folder, rows, about, say)

    def keep(found: runner.Found) -> None:
        for cell, result in found.results.items():
            rows[cell.row] = series.of_result(result)
            about["rows"][cell.row] = _about_row(result)
            about["data_source"] = result.data_source
        _note_failures(about, rows, {cell.row: failure for cell, failure in found.failed.items()})
        _write(folder, planned, rows, about)

    entry = Entry(grid.name, "", {Cell(grid.name, name): config for name, config in wanted.items()}, _no_page, "")
    found = runner.run(entry, Part(), runs, Scale(), say, keep, workers)
    keep(found)
    if found.failed and not rows:
        raise UserError(f"{grid.name}: no run succeeded; the first one: {next(iter(found.failed.values()))}")
    if found.stopped:
        return Outcome(len(rows), dict(about["failed"]), True, found.stopped_by)
    return _timed(grid, planned, folder, rows, about, say)


def _note_failures(about: dict[str, Any], rows: Collection[str], new: Mapping[str, independent.Failure]) -> None:
    """Keep why rows are not there, until they are; a later command may not have tried them again."""
    known = {**about.get("failed", {}), **{name: failure.why for name, failure in new.items()}}
    for_good = {*about.get("failed_for_good", ()), *(name for name, one in new.items() if one.for_good)}
    for_good -= {name for name, one in new.items() if not one.for_good}
    about["failed"] = {name: why for name, why in known.items() if name in about["planned"] and name not in rows}
    about["failed_for_good"] = [name for name in about["failed"] if name in for_good]


def _rows(grid: Grid, out: Path) -> Mapping[str, Config]:
    """Return what a grid runs, which may follow from another one's results."""
    if grid.choose is None:
        return grid.rows
    held = series.read(out / grid.after)
    if held is None:
        raise UserError(f"PART: {grid.name} follows from {grid.after}, which is not in {out}; run that first")
    return grid.choose(held)


def _no_page(results: Any, scale: Scale) -> Page:
    del results, scale
    return Page([])


def _held(folder: Path, planned: Mapping[str, Config]) -> tuple[dict[str, Series], dict[str, Any]]:
    """Return the rows that are there already, and what is said of them.

    Raises:
        UserError: they are of other configurations.
    """
    held = series.read(folder)
    if held is None:
        return {}, {"rows": {}}
    for name in held.rows:
        if name in planned and held.about["rows"][name]["configuration"] != _identity(planned[name]):
            one = held.rows[name]
            raise UserError(
                f"--out: {folder} holds {name} with {one.rounds} rounds and {len(one.seeds)} seeds, or other settings, "
                "than are asked for now; give another --out, or remove that folder"
            )
    return dict(held.rows), held.about


def _identity(config: Config) -> str:
    return f"{config.run.rounds}-{config.fingerprint()}"


def _about_row(result: Result) -> dict[str, Any]:
    config, place = result.config, origin.environment_of(result)
    arguments = dict(config.selection.algo_args)
    return {
        "configuration": _identity(config),
        "algo_args": arguments,
        "seconds": round(float(result.elapsed_seconds[-1]), 1),
        "commit": origin.commit_of(result),
        "fedjax_sel": place.get("fedjax_sel", ""),
        "jax": place.get("packages", {}).get("jax", ""),
        "devices": " and ".join(place.get("devices", ())),
    }


def _timed(
    grid: Grid,
    planned: Mapping[str, Config],
    folder: Path,
    rows: dict[str, Series],
    about: dict[str, Any],
    say: Callable[[str], None],
) -> Outcome:
    """Time selection alone, of one replicate, of the rows whose selection is not timed yet."""
    missing = [name for name in rows if name in planned and "selection_seconds" not in about["rows"][name]]
    if grid.timed and missing:
        say(f"{grid.name}: selection is timed apart")
        for name in missing:
            config = planned[name].replace(seeds=planned[name].run.seeds[:1])
            with contextlib.suppress(*independent.FAILURES):  # the next command tries again
                about["rows"][name]["selection_seconds"] = selection_cost.selection_seconds(config, TIMED_SECONDS)
                _write(folder, planned, rows, about)
    if rows:
        _write(folder, planned, rows, about)
    return Outcome(len(rows), dict(about["failed"]))


def _write(folder: Path, planned: Mapping[str, Config], rows: dict[str, Series], about: dict[str, Any]) -> None:
    order = [*(name for name in planned if name in rows), *(name for name in rows if name not in planned)]
    if order:
        series.write(folder, {name: rows[name] for name in order}, about)
