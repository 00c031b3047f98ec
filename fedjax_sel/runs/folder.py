"""A run's folder: what is written, when, and what happens if it is there already.

    config.json        the resolved configuration
    environment.json   versions, devices, the command
    data.json          where the images come from; SHA-256 of them and of every replicate's partition
    metrics.csv        one row a replicate and round, appended after every chunk
    cohorts.npy        client ids, int32 [seeds, rounds, K]
    checkpoints/       the newest states, from which the run goes on (runs/checkpoint.py)
    curves.png         accuracy, loss and GEMD over rounds and over megabytes

A finished run with the same configuration is reported, an unfinished one goes on, and what cannot go on is set aside.
"""

import hashlib
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.config import NOT_OF_THE_TRAJECTORY, Config
from fedjax_sel.errors import UserError
from fedjax_sel.runs import checkpoint, records
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import devices
from fedjax_sel.simulation.problem import Problem
from fedjax_sel.version import __version__

METRICS, COHORTS, CHECKPOINTS = "metrics.csv", "cohorts.npy", "checkpoints"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")


def default_path(config: Config) -> Path:
    """Where a run goes without --out: the name says what it is, the digits tell configurations apart."""
    scheme = {
        "shards": f"{config.partition.shards_per_client}spc",
        "skewness": f"xi{config.partition.skewness}",
        "dirichlet_qp": f"dir{config.partition.alpha:g}",
    }.get(config.partition.partition, config.partition.partition)
    dataset = config.data.dataset.split(":")[0].replace("/", "-")
    algo = config.selection.algo.replace(":", "-")
    return Path("runs") / f"{dataset}-{scheme}-{algo}-{config.fingerprint()}"


def finished_result(path: Path, config: Config) -> Result | None:
    """The result of a finished run in this folder.

    Returns:
        The result, or None where the folder is absent, empty, or holds an unfinished run of this configuration.

    Raises:
        UserError: the folder holds something else, or cannot be used.
    """
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"--out: {path} is a file; give a folder")
        if not path.exists() or is_empty(path):
            return None
    except OSError as error:
        raise UserError(f"--out: cannot use {path} ({error.strerror or error}); give another folder") from error
    stored = stored_config(path)
    if stored.fingerprint() != config.fingerprint():
        raise UserError(
            f"--out: {path} holds a run of another configuration ({_difference(stored, config)}); give "
            "another folder, or the values there"
        )
    if stored.run.rounds > config.run.rounds:
        raise UserError(
            f"--rounds: {path} holds a run of {stored.run.rounds} rounds, and {config.run.rounds} are fewer; give "
            "another folder, or as many"
        )
    if stored.run.rounds < config.run.rounds or not (path / METRICS).exists() or not (path / COHORTS).exists():
        return None
    try:
        result = _read(path, config)
    except UserError:
        if checkpoint.list_all(path / CHECKPOINTS):
            return None  # the newest whole one may tell
        raise
    return result if result.finished else None


def load(path: Path) -> Result:
    """The result in a run folder, finished or not.

    Raises:
        UserError: there is no readable run.
    """
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give the --out of a run")
    config = stored_config(path)
    return _read(path, config)


def _read(path: Path, config: Config) -> Result:
    try:
        return records.parse(config, _source(path), (path / METRICS).read_text(), _cohorts(path))
    except (ValueError, KeyError, OSError) as error:
        raise UserError(f"{path}: the run is damaged or has no rounds ({error}); move it away") from error


def is_empty(path: Path) -> bool:
    """Whether nothing is in a folder but what a process may have left that died as it began."""
    return all(entry.name.startswith(".") for entry in path.iterdir())


def holds_run(path: Path) -> bool:
    """Whether a run was begun in this folder."""
    return (path / "config.json").exists()


def stored_config(path: Path) -> Config:
    """The configuration of the run in a folder.

    Raises:
        UserError: there is no readable run.
    """
    try:
        return Config.from_json(json.loads((path / "config.json").read_text()))
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path} holds no readable run; give another folder") from error


def _difference(stored: Config, wanted: Config) -> str:
    pairs = zip(stored.flat().items(), wanted.flat().values())
    changed = [
        f"{name} {old!r} there, {new!r} here"
        for (name, old), new in pairs
        if old != new and name not in NOT_OF_THE_TRAJECTORY
    ]
    return "; ".join(changed[:3]) + (f"; and {len(changed) - 3} more" if len(changed) > 3 else "")


def make(path: Path) -> None:
    """Makes the folder.

    Raises:
        UserError: it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or error
    return UserError(f"--out: cannot write to {path} ({reason}); give a folder that can be written")


def set_aside(path: Path) -> Path | None:
    """Renames a folder that is not empty, and makes it anew.

    Returns:
        Its new name, or None if it was empty.

    Raises:
        UserError: it cannot be renamed.
    """
    if is_empty(path):
        return None
    number = 1
    while (moved := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    try:
        path.rename(moved)
    except OSError as error:
        raise _cannot_write(path, error) from error
    make(path)
    return moved


def begin(path: Path, problem: Problem) -> None:
    """Writes what is known before the first round.

    Raises:
        UserError: it cannot be written.
    """
    config = problem.config
    try:
        _write_json(path / "config.json", config.to_json())
        _write_json(path / "data.json", _data(problem))
        _write_json(path / "environment.json", environment())
    except OSError as error:
        raise _cannot_write(path, error) from error


def go_on(path: Path, rounds: int, metrics_bytes: int, config: Config) -> None:
    """Removes the rows that were written after a checkpoint, whose rounds come again, and notes who goes on.

    Args:
        path: the folder.
        rounds: that the checkpoint has behind it.
        metrics_bytes: of their rows.
        config: of the run that goes on; its `rounds` may be more than before.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        with (path / METRICS).open("r+b") as file:
            file.truncate(metrics_bytes)
        (path / "curves.png").unlink(missing_ok=True)  # of fewer rounds
        _write_json(path / "config.json", config.to_json())
        known = json.loads((path / "environment.json").read_text())
        known.setdefault("resumed", []).append({"after_round": rounds} | environment())
        _write_json(path / "environment.json", known)
    except (OSError, ValueError) as error:
        raise _cannot_write(path, error) from error


def rounds_so_far(path: Path, config: Config, rounds: int, metrics: dict[str, Any], cohorts_sha256: str) -> Result:
    """The rounds before a checkpoint.

    Args:
        path: the folder.
        config: of the run.
        rounds: that the checkpoint has behind it.
        metrics: bytes and SHA-256 of their rows.
        cohorts_sha256: of their cohorts.

    Raises:
        ValueError: they are not what the checkpoint says.
        OSError: they cannot be read.
    """
    content = (path / METRICS).read_bytes()[: metrics["bytes"]]
    if hashlib.sha256(content).hexdigest() != metrics["sha256"]:
        raise ValueError(f"{METRICS} was cut or changed")
    cohorts = _cohorts(path)[:, :rounds]
    if checkpoint.digest_of_array(cohorts) != cohorts_sha256:
        raise ValueError(f"{COHORTS} was cut or changed")
    return records.parse(config, _source(path), content.decode(), cohorts)


def _cohorts(path: Path) -> np.ndarray:
    return np.load(path / COHORTS, allow_pickle=False)


def environment() -> dict[str, Any]:
    """Versions, devices, the command."""
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": devices.num_cores(),
        "devices": [str(device) for device in jax.devices()],
        "fedjax_sel": __version__,
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def digests(problem: Problem) -> dict[str, Any]:
    """SHA-256 of the data, of every replicate's partition, and of the trace of who can be reached, if there is one."""
    found = {
        "dataset": problem.dataset.digest(),
        "partitions": {str(seed): part.digest() for seed, part in zip(problem.config.run.seeds, problem.partitions)},
    }
    if problem.reachable is not None:
        found["available"] = checkpoint.digest_of_array(problem.reachable)
    return found


def _data(problem: Problem) -> dict[str, Any]:
    known, dataset = digests(problem), problem.dataset
    table = {
        seed: {
            "sha256": known["partitions"][seed],
            "examples": int(part.sizes.sum()),
            "remainder": len(part.remainder),
            "smallest_client": int(part.sizes.min()),
            "largest_client": int(part.sizes.max()),
        }
        for seed, part in zip(known["partitions"], problem.partitions)
    }
    return {"dataset": dataset.name, "source": dataset.source, "sha256": known["dataset"], "partitions": table}


def _source(path: Path) -> str:
    return json.loads((path / "data.json").read_text())["source"]


def write_cohorts(path: Path, cohorts: np.ndarray) -> None:
    """Writes `cohorts.npy`, whole or not at all."""
    temporary = path / f".{COHORTS}.tmp"
    with temporary.open("wb") as file:
        np.save(file, cohorts, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path / COHORTS)


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    temporary.replace(path)
