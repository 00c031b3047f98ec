"""Execution of a grid: finished rows are reused, and the grid's folder is updated after each run."""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import Config, Experiment, Result, UserError
from fedjax_sel.core.files import FolderLock
from fedjax_sel.runs import folder as run_folder
from studies import grid as independent
from studies import selection_cost
from studies.boards import measures, series
from studies.boards.grid import BASELINE, Grid
from studies.boards.series import Series
from studies.papers import heading, runner
from studies.papers.entry import Cell, Entry, Part, Scale
from studies.papers.page import Page

TIMED_SECONDS = 1.0


class Outcome(NamedTuple):
    """Outcome of a grid."""

    rows: int  # number of rows in its folder
    failed: dict[str, str]  # reason of failure by row
    stopped: bool = False
    stopped_by: int = 0  # signal number


@dataclasses.dataclass
class _Board:
    """Content of a grid's folder, written after each run."""

    folder: Path
    planned: Mapping[str, Config]
    rows: dict[str, Series]
    about: dict[str, Any]
    describe: Callable[[Result], Mapping[str, Any]] | None = None

    def add(self, results: Mapping[str, Result]) -> None:
        for name, result in results.items():
            about = _about_row(result) | dict(self.describe(result) if self.describe else {})
            for other, known in self.about["rows"].items():
                if other != name and about["data"] and known.get("data", "") not in ("", about["data"]):
                    raise UserError(
                        f"--data-dir: {name} was run on other examples than {other}, which {self.folder} has; give "
                        "another --out, or the data of the others"
                    )
            self.rows[name] = series.of_result(result)
            self.about["rows"][name] = about
            self.about["data_source"] = result.data_source

    def note(self, failed: Mapping[str, independent.Failure]) -> None:
        """Record failures until their rows succeed, because a later command may not retry them."""
        known = {**self.about.get("failed", {}), **{name: failure.why for name, failure in failed.items()}}
        for_good = {*self.about.get("failed_for_good", ()), *(name for name, one in failed.items() if one.for_good)}
        for_good -= {name for name, one in failed.items() if not one.for_good}
        self.about["failed"] = {
            name: why for name, why in known.items() if name in self.planned and name not in self.rows
        }
        self.about["failed_for_good"] = [name for name in self.about["failed"] if name in for_good]

    def write(self) -> None:
        order = [
            *(name for name in self.planned if name in self.rows),
            *(name for name in self.rows if name not in self.planned),
        ]
        if order:
            series.write(self.folder, {name: self.rows[name] for name in order}, self.about)


def run(
    grid: Grid,
    out: Path,
    runs: Path,
    scale: Scale,
    command: str,
    say: Callable[[str], None],
    others: Mapping[str, Grid],
    algos: Collection[str] | None = None,
    data_dir: str | None = None,
    workers: independent.Workers | None = None,
) -> Outcome:
    """Run the missing rows of a grid, and save their series.

    Args:
        grid: the grid.
        out: results folder; the grid has a subfolder there.
        runs: parent of the run folders.
        scale: scale of the runs.
        command: command line, for the page.
        say: function that prints a progress line.
        others: grids by name, among them the one whose results determine the rows.
        algos: strategies to run now; None: all.
        data_dir: folder of prepared data; None: the default folders.
        workers: workers for the runs; None: this process.

    Raises:
        UserError: the folder has results of another scale or is locked by another process; results that the grid
            depends on are missing; or no run has ever succeeded.
    """
    scale = _own(grid, scale)
    if algos is not None and grid.own_seeds:  # in tuning, the rows of a strategy follow from the baseline's
        algos = {*algos, BASELINE}
    planned = _planned(grid, out, scale, data_dir, others, algos)
    folder = out / grid.name
    run_folder.make(folder)
    with FolderLock() as lock:  # a write replaces all rows, so a concurrent writer would lose rows
        lock.take(folder)
        board = _board(grid, folder, planned)
        board.about |= {
            "title": grid.title,
            "other_than_usual": scale.in_words(),
            "commands": list(dict.fromkeys([*board.about.get("commands", []), command])),
            "num_classes": grid.num_classes,
            "planned": list(planned),
        }
        board.note({})
        missing = {name: config for name, config in planned.items() if name not in board.rows}
        wanted = {name: one for name, one in missing.items() if algos is None or one.selection.algo in algos}
        if len(planned) > len(wanted):
            say(f"{grid.name}: {len(wanted)} of {len(planned)} rows to run; {len(board.rows)} are in {folder}")
        found = _run(grid, wanted, runs, say, board, workers) if wanted else None
        if found is not None and found.stopped:
            return Outcome(len(board.rows), dict(board.about["failed"]), True, found.stopped_by)
        _time_selection(grid, board, say)
        board.write()
        return Outcome(len(board.rows), dict(board.about["failed"]))


def _run(
    grid: Grid,
    wanted: Mapping[str, Config],
    runs: Path,
    say: Callable[[str], None],
    board: _Board,
    workers: independent.Workers | None,
) -> runner.Found:
    def keep(found: runner.Found) -> None:
        board.add({cell.row: result for cell, result in found.results.items()})
        board.note({cell.row: failure for cell, failure in found.failed.items()})
        board.write()

    entry = Entry(grid.name, "", {Cell(grid.name, name): config for name, config in wanted.items()}, _no_page, "")
    found = runner.run(entry, Part(), runs, Scale(), say, keep, workers)
    keep(found)
    if found.failed and not board.rows and not found.stopped:
        raise UserError(f"{grid.name}: no run succeeded; the first one: {next(iter(found.failed.values()))}")
    return found


def _planned(
    grid: Grid,
    out: Path,
    scale: Scale,
    data_dir: str | None,
    others: Mapping[str, Grid],
    algos: Collection[str] | None,
) -> dict[str, Config]:
    """Return the configurations of a grid, which can depend on another grid's results."""
    rows = grid.rows
    if grid.choose is not None:
        held = series.read(out / grid.after)
        if held is None:
            raise UserError(f"PART: {grid.name} follows from {grid.after}, which is not in {out}; run that first")
        there, here = held.about.get("other_than_usual", ""), _own(others[grid.after], scale).in_words()
        if there != here:
            raise UserError(
                f"PART: {grid.name} follows from {grid.after}, which {out} has with {there or 'all of its work'}, not "
                f"{here or 'all of it'}; ask for the same, or give another --out"
            )
        settled = {*held.rows, *held.about.get("failed_for_good", ())}
        needed = (
            name
            for name, one in others[grid.after].rows.items()
            if algos is None or one.selection.algo in {*algos, BASELINE}
        )
        if left := [name for name in needed if name not in settled]:
            raise UserError(
                f"PART: {grid.name} follows from {grid.after}, which lacks {len(left)} of its rows, such as {left[0]}; "
                "run that first"
            )
        rows = grid.choose(held)
    planned = {name: scale.apply(config) for name, config in rows.items()}
    return planned if data_dir is None else {name: one.replace(data_dir=data_dir) for name, one in planned.items()}


def _own(grid: Grid, scale: Scale) -> Scale:
    """Return the scale for a grid. A grid with its own seeds uses the requested number of those.

    If the requested seeds equal the grid's default seeds, the scale has no seeds.
    """
    if scale.seeds is None:
        return scale
    usual = next(iter(grid.rows.values())).run.seeds
    seeds = usual[: len(scale.seeds)] if grid.own_seeds else scale.seeds
    return dataclasses.replace(scale, seeds=None if seeds == usual else seeds)


def _no_page(results: Any, scale: Scale) -> Page:
    del results, scale
    return Page([])


def _board(grid: Grid, folder: Path, planned: Mapping[str, Config]) -> _Board:
    """Return the finished rows of a folder with their provenance.

    Raises:
        UserError: a row has another configuration.
    """
    held = series.read(folder)
    if held is None:
        return _Board(folder, planned, {}, {"rows": {}}, grid.describe)
    for name in held.rows:
        if name in planned and held.about["rows"][name]["configuration"] != _identity(planned[name]):
            one = held.rows[name]
            raise UserError(
                f"--out: {folder} holds {name} with {one.rounds} rounds and {len(one.seeds)} seeds, or other settings, "
                "than are asked for now; give another --out, or remove that folder"
            )
    return _Board(folder, planned, dict(held.rows), held.about, grid.describe)


def _identity(config: Config) -> str:
    return f"{config.run.rounds}-{config.fingerprint()}"


def _about_row(result: Result) -> dict[str, Any]:
    config, place = result.config, heading.environment_of(result)
    arguments = dict(config.selection.algo_args)
    made_from = run_folder.made_from(Path(config.run.out)) if config.run.out else None
    return {
        "configuration": _identity(config),
        "algo_args": arguments,
        "learning_rate": config.training.learning_rate,
        **({} if (rate := config.training.server_learning_rate) is None else {"server_learning_rate": rate}),
        "data": (made_from or {}).get("dataset", ""),  # SHA-256
        "fairness": _fairness(result),
        "seconds": round(float(result.elapsed_seconds[-1]), 1),
        "commit": heading.commit_of(result),
        "fedjax_sel": place.get("fedjax_sel", ""),
        "jax": place.get("packages", {}).get("jax", ""),
        "devices": " and ".join(place.get("devices", ())),
    }


def _fairness(result: Result) -> dict[str, list[float]]:
    """Return the fairness measures of a run, one value per seed, by name; without those never measured."""
    of_clients = list(result.final_over_clients().values())[1:]  # the worst decile is in the curves
    values = [*result.selection_fairness().values(), *of_clients]
    measured = {name: value for name, value in zip(measures.FAIRNESS, values) if not np.isnan(value).all()}
    return {name: [float(f"{one:.6g}") for one in value] for name, value in measured.items()}


def _time_selection(grid: Grid, board: _Board, say: Callable[[str], None]) -> None:
    """Time the selection of one replicate, for rows without timing."""
    about = board.about["rows"]
    untimed = [name for name in board.rows if name in board.planned and "selection_seconds" not in about[name]]
    if not (grid.timed and untimed):
        return
    say(f"{grid.name}: selection is timed apart")
    for name in untimed:
        alone = Experiment(board.planned[name].replace(seeds=board.planned[name].run.seeds[:1]))
        with contextlib.suppress(*independent.FAILURES):  # the next command tries again
            about[name]["selection_seconds"] = selection_cost.selection_seconds(alone, TIMED_SECONDS)
            board.write()
