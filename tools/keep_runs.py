#!/usr/bin/env python3
"""Copy finished runs to a folder that can be committed, without checkpoints and local paths.

The pages of results can then be rewritten in seconds on any machine, and later runs of the same entry extend them:

    python tools/keep_runs.py runs/papers/runs/mnist-* --to results/runs
    python -m studies reproduce fl_dp3s/fig1 --columns mnist-xi1 --seeds 2 --out results/papers --runs results
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from fedjax_sel.core import files
from fedjax_sel.core.files import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.runs import reading, run_files
from studies.papers.entries import ENTRIES

LEFT_OUT = (run_files.CHECKPOINTS, run_files.CURVES, run_files.PARAMS)
"""Files that pages do not need: checkpoints, the plot, the final model."""
ENOUGH = {entry.enough for entry in ENTRIES.values() if entry.enough is not None}
"""Criteria under which a run of an entry may stop before its last round."""


def keep(run: Path, place: Path) -> Path:
    """Copy a run atomically.

    Args:
        run: the run's folder.
        place: the folder that receives the copy, under the same name.

    Returns:
        The copy's folder.

    Raises:
        UserError: If the run is damaged, still running or unfinished, or the target exists.
    """
    result, copy = reading.load(run), place / run.name
    with FolderLock() as lock:
        lock.take(run)
        try:
            stored = run_files.read(run / run_files.RESULT)
        except run_files.DamagedError as error:
            raise UserError(f"{run}: {error}; resume the run until it finishes") from error
        if not result.finished and not any(enough(result) for enough in ENOUGH):
            raise UserError(f"{run}: it has {result.num_rounds} of {result.config.run.rounds} rounds; resume it")
        if copy.exists():
            raise UserError(f"--to: {copy} already exists; remove it, or leave out {run}")
        about = run_files.read_json(run / run_files.ENVIRONMENT) or {}
        unfinished = files.temporary(copy)
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(run, unfinished, ignore=lambda folder, names: {*filter(_is_left_out, names)})
    run_files.write_json(unfinished / run_files.CONFIG, without_folders(result.config.to_json()))
    run_files.write(unfinished / run_files.RESULT, {**stored, "config": without_folders(stored["config"])})
    resumed = [{name: one[name] for name in one if name != "command"} for one in about.pop("resumed", ())]
    about.pop("command", None)
    run_files.write_json(unfinished / run_files.ENVIRONMENT, about | ({"resumed": resumed} if resumed else {}))
    return unfinished.rename(copy)


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.startswith(".")


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """Return a nested configuration without local folders."""
    return {**config, "data": {**config["data"], "data_dir": None}, "run": {**config["run"], "out": None}}


def main(arguments: list[str]) -> int:
    """Copy the given runs, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    parser.add_argument("--to", required=True, type=Path, metavar="DIR", help="folder of the copies")
    flags = parser.parse_args(arguments)
    try:
        for run in flags.runs:
            print(keep(run, flags.to))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
