"""A run's folder: what is written, when, and what happens if it is there already.

    config.json        the resolved configuration
    environment.json   versions, devices, the command
    data.json          where the images come from; SHA-256 and sizes of every replicate's partition
    metrics.csv        one row a replicate and round, appended after every chunk
    cohorts.npy        client ids, int32 [seeds, rounds, K]
    curves.png         accuracy, loss and GEMD over rounds and over megabytes

Nothing is overwritten: a finished run with the same configuration is reported, an unfinished one is set aside.
"""

import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.errors import UserError
from fedjax_sel.runs import records
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import devices
from fedjax_sel.version import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


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
        if not path.exists() or not any(path.iterdir()):
            return None
    except OSError as error:
        raise UserError(f"--out: cannot use {path} ({error.strerror or error}); give another folder") from error
    stored = _stored_config(path)
    if stored.fingerprint() != config.fingerprint():
        raise UserError(
            f"--out: {path} holds a run of another configuration ({_difference(stored, config)}); give "
            "another folder, or the values there"
        )
    if not (path / "metrics.csv").exists() or not (path / "cohorts.npy").exists():
        return None
    result = _read(path, config)
    return result if result.finished else None


def load(path: Path) -> Result:
    """The result in a run folder, finished or not.

    Raises:
        UserError: there is no readable run.
    """
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give the --out of a run")
    config = _stored_config(path)
    return _read(path, config)


def _read(path: Path, config: Config) -> Result:
    try:
        source = json.loads((path / "data.json").read_text())["source"]
        return records.read(config, source, path / "metrics.csv", path / "cohorts.npy")
    except (ValueError, KeyError, OSError) as error:
        raise UserError(f"{path}: the run is damaged or has no rounds ({error}); move it away") from error


def _stored_config(path: Path) -> Config:
    try:
        return Config.from_json(json.loads((path / "config.json").read_text()))
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path} holds no readable run; give another folder") from error


def _difference(stored: Config, wanted: Config) -> str:
    pairs = zip(stored.flat().items(), wanted.flat().values())
    changed = [f"{name} {old!r} there, {new!r} here" for (name, old), new in pairs if old != new]
    return "; ".join(changed[:3]) + (f"; and {len(changed) - 3} more" if len(changed) > 3 else "")


def create(path: Path, config: Config) -> Path | None:
    """Makes the folder and writes `config.json`. An unfinished run in it is set aside.

    Returns:
        Where the unfinished run went, or None.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        moved = None
        if path.exists() and any(path.iterdir()):
            number = 1
            while (moved := path.with_name(f"{path.name}.unfinished-{number}")).exists():
                number += 1
            path.rename(moved)
        path.mkdir(parents=True, exist_ok=True)
        _write_json(path / "config.json", config.to_json())
        return moved
    except OSError as error:
        raise UserError(
            f"--out: cannot write to {path} ({error.strerror or error}); give a folder that can be written"
        ) from error


def write_environment(path: Path) -> None:
    """Writes `environment.json`."""
    environment = {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": devices.num_cores(),
        "devices": [str(device) for device in jax.devices()],
        "fedjax_sel": __version__,
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }
    _write_json(path / "environment.json", environment)


def write_data(path: Path, dataset: Dataset, seeds: tuple[int, ...], partitions: tuple[Partition, ...]) -> None:
    """Writes `data.json`."""
    table = {
        str(seed): {
            "sha256": part.digest(),
            "examples": int(part.sizes.sum()),
            "remainder": len(part.remainder),
            "smallest_client": int(part.sizes.min()),
            "largest_client": int(part.sizes.max()),
        }
        for seed, part in zip(seeds, partitions)
    }
    _write_json(path / "data.json", {"dataset": dataset.name, "source": dataset.source, "partitions": table})


def write_cohorts(path: Path, cohorts: np.ndarray) -> None:
    """Writes `cohorts.npy`, whole or not at all."""
    temporary = path / ".cohorts.npy.tmp"
    with temporary.open("wb") as file:
        np.save(file, cohorts, allow_pickle=False)
    temporary.replace(path / "cohorts.npy")


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    temporary.replace(path)
