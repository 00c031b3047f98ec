"""The run folder: creation, fingerprint, locks, and provenance."""

import contextlib
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel import devices, version
from fedjax_sel.config import Config
from fedjax_sel.core import files, jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment, checking, problem
from fedjax_sel.experiment.problem import Given, Problem
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.run_files import CHECKPOINTS, COHORTS, CONFIG, ENVIRONMENT, METRICS, RESULT, Digests
from fedjax_sel.version import __version__


def digests(data: Given, seeds: Sequence[int]) -> Digests:
    """Return the SHA-256 of the data and of each seed's partition, and of availability trace and devices, if any."""
    partitions = {str(seed): part.digest() for seed, part in zip(seeds, data.partitions)}
    found: Digests = {"dataset": data.dataset.digest(), "partitions": partitions}
    if data.availability_trace is not None:
        found["available"] = checkpoint.digest_of_array(data.availability_trace)
    if data.client_tests is not None:
        tested = [own for tests in data.client_tests for own in tests.positions]
        sizes = np.array([len(own) for own in tested])
        found["client_tests"] = checkpoint.digest_of_array(np.concatenate([sizes, *tested]).astype(np.int64))
    if (speeds := data.devices(seeds)) is not None:
        found["timing"] = checkpoint.digest_of_array(speeds)
    return found


def current_digests(experiment: Experiment, server_share: float) -> Digests:
    """Return digests of an experiment's current data; the server keeps this share of the training set."""
    law = checking.check(experiment).law
    return digests(problem.gather(experiment, server_share, law), experiment.config.run.seeds)


_OF_FILES = {
    "available": "the trace of --available",
    "timing": "the devices of --timing",
    "client_tests": "the clients' own test examples",
}
"""Digests that not every run has -> what they identify."""


def reject_other_digests(out: Path, recorded: Digests | None, now: Digests) -> None:
    """Reject a run whose recorded data differ from the current data; None if no round is saved yet."""
    if recorded is None or recorded == now:
        return
    differs = [name for name in recorded | now if recorded.get(name) != now.get(name)]
    what = _OF_FILES.get(differs[0], "the images and labels")
    if differs[0] == "partitions":
        parts = now["partitions"]
        what = (
            f"the partition of seed {next(seed for seed in parts if recorded['partitions'].get(seed) != parts[seed])}"
        )
    raise UserError(
        f"--out: the run in {out} used different data (the SHA-256 of {what} differs); restore the original data, or "
        "give another folder"
    )


SECONDS_TO_LOSE = 60.0
_ASIDE = ".aside-"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")


def default_path(config: Config) -> Path:
    """Return the default folder of a run without --out: dataset, partition, strategy and a configuration hash."""
    names = config.data.dataset.split(":")[0], config.partition.partition, config.selection.algo
    return Path("runs") / "-".join((*names, config.fingerprint())).replace(":", "-").replace("/", "-")


def made_from(path: Path) -> Digests | None:
    """Return digests of a run's data from its newest manifest; None without one."""
    about = checkpoint.newest(path)
    return None if about is None else about["data"]


def is_empty(path: Path) -> bool:
    """Return whether a folder has no files except hidden leftovers of a process that died at its start."""
    return all(entry.name.startswith(".") for entry in path.iterdir())


def holds_run(path: Path) -> bool:
    """Return whether a run was started in a folder."""
    return (path / CONFIG).exists() or checkpoint.newest(path) is not None


def has_no_round(path: Path) -> bool:
    """Return whether a run has no complete round: it has just started, or ended in its first round."""
    newest = checkpoint.newest(path)
    if newest is not None:
        return not newest["rounds"]
    return (path / CONFIG).exists() and not (path / COHORTS).exists()


def is_worth_keeping(path: Path) -> bool:
    """Return whether a folder has saved rounds, or unsaved ones that took longer than SECONDS_TO_LOSE."""
    newest = checkpoint.newest(path)
    unfinished = newest is not None and newest["rounds"] < Config.from_json(newest["config"]).run.rounds
    if any((path / CHECKPOINTS).glob("*")) or ((path / RESULT).exists() and not unfinished):
        return True
    try:
        return run_files.seconds_of(files.read_text(path / METRICS)) > SECONDS_TO_LOSE
    except FileNotFoundError:
        return (path / COHORTS).exists()
    except checkpoint.UNREADABLE:
        return True


def stored_config(path: Path) -> Config:
    """Return a run's configuration from its newest manifest, or from `config.json` before the first one."""
    newest = checkpoint.newest(path)
    try:
        return Config.from_json(files.read_json(path / CONFIG) if newest is None else newest["config"])
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{path} has no readable run; give another folder") from error


def make(path: Path) -> None:
    """Create a run's folder, and check that it is writable."""
    with run_files.writing(path):
        probe = path / ".writable"
        probe.touch()
        probe.unlink()


def set_aside(path: Path) -> Path:
    """Rename a folder, create an empty one under the old name, and return the new name.

    The renamed folder stays until the user removes it. It must not contain the working directory, whose relative paths
    would change.
    """
    path = path.resolve()  # renames the target of a link, not the link; resolves `.`
    with contextlib.suppress(FileNotFoundError):  # the working directory was removed
        if Path.cwd().is_relative_to(path):
            raise UserError(
                f"--out: cannot set aside the run in {path}, which contains the working directory; start from another "
                "folder"
            )
    number = 1
    while (moved := path.with_name(f"{path.name}{_ASIDE}{number}")).exists():
        number += 1
    with run_files.writing(path):
        path.rename(moved)
    make(path)
    return moved


def is_aside(path: Path) -> bool:
    """Return whether a folder or one of its parents has the name of a folder that was set aside."""
    return any(re.search(rf"{re.escape(_ASIDE)}\d+$", part) for part in path.parts)


def remove_unfinished(path: Path) -> None:
    """Remove partial files of processes that died while writing; no process may be writing there."""
    for place in (path / CHECKPOINTS).glob(".*.tmp"):
        shutil.rmtree(place, ignore_errors=True)
    for file in path.glob(".*.tmp"):
        file.unlink(missing_ok=True)


def _write_config(path: Path, problem: Problem) -> None:
    """Write the configuration for `--config`, without `resume="must"`, which another folder cannot obey."""
    run_files.write_json(path / CONFIG, problem.config.replace(resume="auto").to_json())


def start_run(path: Path, problem: Problem) -> None:
    """Write the files of a new run, and remove rows of a process that died before its first save."""
    with run_files.writing(path):
        for early in (METRICS, COHORTS, run_files.EPSILONS, RESULT, run_files.CURVES, run_files.PARAMS):
            (path / early).unlink(missing_ok=True)
        _write_config(path, problem)
        run_files.write_json(path / ENVIRONMENT, environment())


def continue_run(path: Path, resumed_from: run_files.Manifest, problem: Problem) -> None:
    """Remove the rows and cohorts after a checkpoint, whose rounds are run again, and record the resumption.

    The problem may have more `rounds` than before. A lost or damaged `environment.json` is written again.
    """
    about = run_files.read_json(path / ENVIRONMENT)
    resumed = [*about.get("resumed", []), {"after_round": resumed_from["rounds"]} | environment()]
    with run_files.writing(path):
        with (path / METRICS).open("r+b") as file:
            for outdated in (RESULT, run_files.CURVES, run_files.PARAMS):  # they describe other rounds
                (path / outdated).unlink(missing_ok=True)
            file.truncate(resumed_from["metrics"]["bytes"])
        write_array(path / COHORTS, files.read_array(path / COHORTS)[:, : resumed_from["rounds"]])
        _write_config(path, problem)
        run_files.write_json(path / ENVIRONMENT, {**about, "resumed": resumed})


def environment() -> dict[str, Any]:
    """Return versions, the commit, devices, and the command."""
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": devices.num_cores(),
        "devices": [str(device) for device in jax.devices()],
        "random_generator": jax_settings.PRNG,
        "jax_settings": jax_settings.recorded(),
        "fedjax_sel": __version__,
        **version.current_commit()._asdict(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def write_array(path: Path, array: np.ndarray) -> None:
    """Write a `.npy` file atomically."""
    with files.writing(path, sync=True) as file:
        np.save(file, array, allow_pickle=False)
