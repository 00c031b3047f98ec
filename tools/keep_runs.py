#!/usr/bin/env python3
"""Copies finished runs to where they can be committed: without checkpoints, and without the names of folders.

A page of results is then written anew in seconds, and on any machine; the next runs of the same entry join it:

    python tools/keep_runs.py runs/papers/runs/mnist-* --to results/runs
    python -m studies reproduce fl_dp3s/fig1 --columns mnist-xi1 --seeds 2 --out results/papers --runs results
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from fedjax_sel.core import whole_files
from fedjax_sel.core.folder_lock import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.runs import manifest, reading, run_files
from studies.papers.entries import ENTRIES

LEFT_OUT = (run_files.CHECKPOINTS, run_files.CURVES, run_files.PARAMS)
"""What a page does not need: states, a picture, the final model."""
ENOUGH = {entry.enough for entry in ENTRIES.values() if entry.enough is not None}
"""When a run of an entry may have ended before its last round."""


def keep(run: Path, place: Path) -> Path:
    """Copy a run, whole or not at all.

    Args:
        run: its folder.
        place: where its copy goes, under the same name.

    Returns:
        The copy.

    Raises:
        UserError: the run is damaged, goes on, or has not come to its end; or there is something under that name.
    """
    result, copy = reading.load(run), place / run.name
    with FolderLock() as lock:
        lock.take(run)
        try:
            told = manifest.read(run / run_files.RESULT)
        except manifest.DamagedError as error:
            raise UserError(f"{run}: {error}; go on with the run until it ends") from error
        if not result.finished and not any(enough(result) for enough in ENOUGH):
            raise UserError(f"{run}: it has {result.num_rounds} of {result.config.run.rounds} rounds; go on with it")
        if copy.exists():
            raise UserError(f"--to: {copy} is there already; remove it, or leave {run} out")
        about = run_files.read_json(run / run_files.ENVIRONMENT) or {}
        unfinished = whole_files.temporary(copy)
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(run, unfinished, ignore=lambda folder, names: {*filter(_is_left_out, names)})
    run_files.write_json(unfinished / run_files.CONFIG, without_folders(result.config.to_json()))
    manifest.write(unfinished / run_files.RESULT, {**told, "config": without_folders(told["config"])})
    resumed = [{name: one[name] for name in one if name != "command"} for one in about.pop("resumed", ())]
    about.pop("command", None)
    run_files.write_json(unfinished / run_files.ENVIRONMENT, about | ({"resumed": resumed} if resumed else {}))
    return unfinished.rename(copy)


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.startswith(".")


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """Return a nested configuration without the folders of the machine that it ran on."""
    return {**config, "data": {**config["data"], "data_dir": None}, "run": {**config["run"], "out": None}}


def main(arguments: list[str]) -> int:
    """Copy the runs that are named; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--to", required=True, type=Path, metavar="DIR", help="where the copies go")
    asked = parser.parse_args(arguments)
    try:
        for run in asked.runs:
            print(keep(run, asked.to))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
