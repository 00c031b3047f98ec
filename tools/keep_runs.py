#!/usr/bin/env python3
"""Copies finished runs to where they can be committed: without checkpoints, and without the names of folders.

A page of results is then written anew in seconds, and on any machine; the next runs of the same entry join it:

    python tools/keep_runs.py runs/papers/runs/mnist-* --to results/runs
    fedjax-sel reproduce fl_dp3s/fig1 --columns mnist-xi1 --seeds 2 --out results/papers --runs results
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from fedjax_sel.core import files
from fedjax_sel.errors import UserError
from fedjax_sel.runs import manifest, reading, run_files

LEFT_OUT = (run_files.CHECKPOINTS, run_files.CURVES, run_files.PARAMS)
"""What a page does not need: states, a picture, the final model."""


def keep(run: Path, place: Path) -> Path:
    """Copy a run.

    Args:
        run: its folder.
        place: where its copy goes, under the same name.

    Returns:
        The copy.

    Raises:
        UserError: the run is damaged, or its last rounds are not those that its `result.json` tells of; or there is
            something under that name.
    """
    rounds = reading.load(run).num_rounds
    try:
        told = manifest.read(run / run_files.RESULT)
    except manifest.DamagedError as error:
        raise UserError(f"{run}: {error}; go on with the run until it ends") from error
    if told["rounds"] != rounds:
        raise UserError(f"{run}: {run_files.RESULT} tells of {told['rounds']} of {rounds} rounds; go on with the run")
    copy = place / run.name
    if copy.exists():
        raise UserError(f"--to: {copy} is there already; remove it, or leave {run} out")
    shutil.copytree(run, copy, ignore=lambda folder, names: [name for name in names if _is_left_out(name)])
    run_files.write_json(copy / run_files.CONFIG, without_folders(files.read_json(run / run_files.CONFIG)))
    manifest.write(copy / run_files.RESULT, {**told, "config": without_folders(told["config"])})
    about = files.read_json(run / run_files.ENVIRONMENT)
    resumed = [{name: one[name] for name in one if name != "command"} for one in about.pop("resumed", ())]
    about.pop("command", None)
    run_files.write_json(copy / run_files.ENVIRONMENT, about | ({"resumed": resumed} if resumed else {}))
    return copy


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
