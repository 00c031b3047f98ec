"""A run's folder: what is written, when, and what happens if it is there already.

    config.json        the resolved configuration
    environment.json   versions, the commit, devices, the command
    data.json          where the images come from; SHA-256 of them and of every replicate's partition
    metrics.csv        one row a replicate and round, appended after every chunk
    cohorts.npy        client ids, int32 [seeds, rounds, K]
    checkpoints/       the newest states, from which the run goes on (runs/checkpoint.py)
    params.npz         weights of a run that ended (runs/weights.py)
    best.npz           each seed's best weights, where a callback keeps them (callbacks.EarlyStopping)
    result.json        SHA-256 of the rows, the cohorts, the data and the weights; the configuration
    curves.png         accuracy, loss and GEMD over rounds and over megabytes

A run ends with `result.json`: one without it that has run all its rounds is unfinished, and the next start writes what
is missing. A finished run with the same configuration is reported, an unfinished one goes on, and what cannot go on is
set aside.
Nothing is believed unread: rows and cohorts must be those that the newest manifest tells of, `result.json` or a
checkpoint's, which also brings back a configuration that was lost.
"""

import contextlib
import io
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel import devices
from fedjax_sel.config import Config
from fedjax_sel.core import commit, files, jax_settings, whole_files
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import Problem
from fedjax_sel.runs import checkpoint, manifest, provenance, rows, run_files, told
from fedjax_sel.runs.manifest import Manifest
from fedjax_sel.runs.provenance import Digests
from fedjax_sel.runs.run_files import CHECKPOINTS, COHORTS, CONFIG, CURVES, DATA, ENVIRONMENT, METRICS, PARAMS, RESULT
from fedjax_sel.version import __version__

SECONDS_TO_LOSE = 60.0
_ASIDE = ".aside-"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")


def default_path(config: Config) -> Path:
    """Return where a run goes without --out: the name says what it is, the digits tell configurations apart."""
    scheme = {
        "shards": f"{config.partition.shards_per_client}spc",
        "skewness": f"xi{config.partition.skewness}",
        "dirichlet_qp": f"dir{config.partition.alpha:g}",
    }.get(config.partition.partition, config.partition.partition)
    dataset = config.data.dataset.split(":")[0].replace("/", "-")
    algo = config.selection.algo.replace(":", "-")
    return Path("runs") / f"{dataset}-{scheme}-{algo}-{config.fingerprint()}"


def refuse_other_data(path: Path, now: Digests) -> None:
    """Refuse a folder whose run, finished or not, was made from other data than those that are given.

    Raises:
        UserError: it was.
    """
    made_from = told.made_from(path, told.newest(path))
    if made_from is not None:
        provenance.refuse_others(path, made_from, now)


def made_from(path: Path) -> provenance.Digests | None:
    """Return digests of the data of the run in a folder; None where nothing tells."""
    return told.made_from(path, told.newest(path))


def is_empty(path: Path) -> bool:
    """Return whether nothing is in a folder but what a process may have left that died as it began."""
    return all(entry.name.startswith(".") for entry in path.iterdir())


def holds_run(path: Path) -> bool:
    """Return whether a run was begun in a folder."""
    return (path / CONFIG).exists() or told.newest(path) is not None


def holds_rounds(path: Path) -> bool:
    """Return whether a folder holds rounds."""
    return any((path / name).exists() for name in (METRICS, COHORTS, CHECKPOINTS))


def shows_nothing(path: Path) -> bool:
    """Return whether a run has no whole round to show: it has just begun, or ended in its first."""
    known = told.newest(path)
    return has_saved_nothing(path) if known is None else not known["rounds"]


def has_saved_nothing(path: Path) -> bool:
    """Return whether a run was begun in a folder and has not saved its first rounds yet."""
    return (path / CONFIG).exists() and not (path / COHORTS).exists() and told.newest(path) is None


def is_worth_keeping(path: Path) -> bool:
    """Return whether a folder holds rounds that were saved, or took longer than a killed process may lose anyway."""
    if any((path / CHECKPOINTS).glob("*")) or ((path / RESULT).exists() and _is_finished(path)):
        return True
    try:
        return rows.seconds_of(files.read_text(path / METRICS, run_files.MOST_BYTES)) > SECONDS_TO_LOSE
    except FileNotFoundError:
        return (path / COHORTS).exists()
    except told.UNREADABLE:
        return True


def _is_finished(path: Path) -> bool:
    """Return whether a run tells of all its rounds, or of nothing that can be read."""
    known = told.newest(path)
    return known is None or "config" not in known or known["rounds"] >= Config.from_json(known["config"]).run.rounds


def stored_config(path: Path) -> Config:
    """Return the configuration of a run: of `config.json`, or of a manifest where that was lost or changed.

    Raises:
        UserError: there is no readable run.
    """
    own, known = _own_config(path), told.newest(path)
    if known is not None and "config" in known:
        written = Config.from_json(known["config"])
        if own is None or own.fingerprint() != written.fingerprint() or own.run.rounds < known["rounds"]:
            return written
    if own is not None:
        return own
    if known is not None:
        raise UserError(
            f"{path}: {CONFIG} is lost or damaged, and its checkpoints, of an earlier version, hold no copy; bring it "
            "back, or give another folder"
        )
    raise UserError(f"{path} holds no readable run; give another folder")


def _own_config(path: Path) -> Config | None:
    try:
        return Config.from_json(files.read_json(path / CONFIG))
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def config_was_lost(path: Path) -> bool:
    """Return whether `config.json` does not say what it was, and a manifest does."""
    return _own_config(path) != stored_config(path)


def restore_config(path: Path) -> None:
    """Write `config.json` again where it was lost or changed, and where the folder can be written."""
    if config_was_lost(path):
        with contextlib.suppress(OSError):
            run_files.write_json(path / CONFIG, stored_config(path).to_json())


def make(path: Path) -> None:
    """Make a run's folder.

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


def set_aside(path: Path) -> Path:
    """Rename a folder, and make it anew.

    What is set aside stays until its owner removes it.

    Returns:
        Its new name.

    Raises:
        UserError: it cannot be renamed, or this process works in it: what it writes later would follow the old name.
    """
    path = path.resolve()  # a link stays, and what it leads to is set aside; `.` has a name
    with contextlib.suppress(FileNotFoundError):  # of a process whose own folder was removed
        if Path.cwd().is_relative_to(path):
            raise UserError(
                f"--out: the run in {path} would be set aside, and this process works there; start it from another "
                "folder"
            )
    number = 1
    while (moved := path.with_name(f"{path.name}{_ASIDE}{number}")).exists():
        number += 1
    try:
        path.rename(moved)
    except OSError as error:
        raise _cannot_write(path, error) from error
    make(path)
    return moved


def is_aside(path: Path) -> bool:
    """Return whether a folder, or one that it lies in, has the name of what was set aside."""
    return any(re.search(rf"{re.escape(_ASIDE)}\d+$", part) for part in path.parts)


def remove_unfinished(path: Path) -> None:
    """Remove what processes left that died while they were writing; nobody may be writing there."""
    checkpoint.remove_unfinished(path / CHECKPOINTS)
    for file in whole_files.unfinished(path):
        file.unlink(missing_ok=True)


def begin(path: Path, problem: Problem) -> None:
    """Write what is known before the first round, and remove rows of a process that died before its first save.

    Raises:
        UserError: it cannot be written.
    """
    config = problem.config
    try:
        for early in (METRICS, COHORTS):
            (path / early).unlink(missing_ok=True)
        run_files.write_json(path / CONFIG, config.to_json())
        run_files.write_json(path / DATA, provenance.description(problem.given, config.run.seeds))
        run_files.write_json(path / ENVIRONMENT, environment())
    except OSError as error:
        raise _cannot_write(path, error) from error


def go_on(path: Path, known: Manifest, problem: Problem) -> None:
    """Remove the rows that were written after a checkpoint, whose rounds come again, and note who goes on.

    What only tells of the run (`data.json`, `environment.json`) is written anew where it was lost or damaged.

    Args:
        path: the folder.
        known: the checkpoint's manifest.
        problem: what goes on; its `rounds` may be more than before.

    Raises:
        UserError: the folder cannot be written.
    """
    config = problem.config
    about = run_files.read_json(path / ENVIRONMENT)
    about = about if isinstance(about, dict) else {}
    before = about.get("resumed")
    resumed = [*(before if isinstance(before, list) else []), {"after_round": known["rounds"]} | environment()]
    data = provenance.description(problem.given, config.run.seeds)
    try:
        with (path / METRICS).open("r+b") as file:
            for outdated in (RESULT, CURVES, PARAMS):  # of other rounds than the folder will hold
                (path / outdated).unlink(missing_ok=True)
            file.truncate(known["metrics"]["bytes"])
        run_files.write_json(path / CONFIG, config.to_json())
        run_files.write_json(path / DATA, data)
        run_files.write_json(path / ENVIRONMENT, {**about, "resumed": resumed})
    except OSError as error:
        raise _cannot_write(path, error) from error


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
        **commit.current()._asdict(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def write_cohorts(path: Path, cohorts: np.ndarray) -> None:
    """Write `cohorts.npy`, whole or not at all."""
    content = io.BytesIO()
    np.save(content, cohorts, allow_pickle=False)
    whole_files.write(path / COHORTS, content.getvalue(), sync=True)


def write_result(path: Path, about: Manifest) -> None:
    """Write what the files hold now, for whoever reads them later: `result.json`, whole or not at all."""
    manifest.write(path / RESULT, about)
    checkpoint.sync(path)
