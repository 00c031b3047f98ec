"""The result in a run's folder, read again: nothing is believed that its manifests do not vouch for."""

import warnings
from collections.abc import Callable
from pathlib import Path

from fedjax_sel.config import NOT_OF_THE_TRAJECTORY, Config
from fedjax_sel.errors import UserError
from fedjax_sel.runs import folder, provenance, rows, told, verdict
from fedjax_sel.runs.manifest import Manifest
from fedjax_sel.runs.provenance import Digests
from fedjax_sel.runs.records import Result
from fedjax_sel.runs.run_files import COHORTS, METRICS, RESULT


def finished_result(path: Path, config: Config, digests_now: Callable[[float | None], Digests]) -> Result | None:
    """Return the result of a finished run, once its files and its data are found to be what they were.

    Args:
        path: the folder.
        config: what is to be run.
        digests_now: the share of the training set that the server keeps (None: as the strategy needs it) -> digests of
            the data that are given now; asked only of a finished run.

    Returns:
        The result, or None where the folder is absent, empty, or holds an unfinished run of this configuration. A run
        whose process died between its last round and its last file, `result.json`, is unfinished.

    Raises:
        UserError: the folder holds something else, or a run of other data, is damaged, or cannot be used.
    """
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"--out: {path} is a file; give a folder")
        if not path.exists() or folder.is_empty(path):
            return None
    except OSError as error:
        raise UserError(f"--out: cannot use {path} ({error.strerror or error}); give another folder") from error
    stored = folder.stored_config(path)
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
    known = told.newest(path)
    done = stored.run.rounds if known is None else known["rounds"]
    if done < config.run.rounds or not (path / METRICS).exists() or not (path / COHORTS).exists():
        return None
    try:
        result = _read(path, config, known)
    except told.CutError:  # there may be a checkpoint before the rounds that are missing
        return None
    except told.UNREADABLE as error:
        raise _damaged(path, error) from error
    if not result.finished or not told.is_sealed(path, known):
        return None
    verdict.refuse_what_was_skipped(result, config.replace(out=str(path)))
    made_from = told.made_from(path, known)
    if made_from is not None:
        try:
            now = digests_now(None if known is None else known.get("server_validation"))
        except UserError as error:
            raise UserError(
                f"{error}; the run in {path} is finished, and fedjax-sel report shows it without its data"
            ) from error
        provenance.refuse_others(path, made_from, now)
    return result


def load(path: Path) -> Result:
    """Return the result in a run folder, finished or not, of the rounds that the run told of.

    Raises:
        UserError: there is no readable run, or it is damaged.
    """
    config = _config(path)
    try:
        return _read(path, config, told.newest(path))
    except told.UNREADABLE as error:
        raise _damaged(path, error) from error


def load_whole(path: Path) -> Result | None:
    """Return the result in a run folder, as `load` does; None where rounds are missing that the run told of.

    Such a run can go on from a checkpoint before them.

    Raises:
        UserError: there is no readable run, or it is damaged in another way.
    """
    config = _config(path)
    try:
        return _read(path, config, told.newest(path))
    except told.CutError:
        return None
    except told.UNREADABLE as error:
        raise _damaged(path, error) from error


def _config(path: Path) -> Config:
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give the --out of a run")
    return folder.stored_config(path)


def _read(path: Path, config: Config, known: Manifest | None) -> Result:
    """Read the rounds that a manifest tells of; without one, all; raise one of UNREADABLE where they are damaged."""
    if known is None:
        warnings.warn(
            f"{path}: nothing tells whether its rows are what they were, since {RESULT} and the checkpoints are lost "
            "or damaged",
            stacklevel=3,
        )
    whole = known is not None and known["rounds"] == config.run.rounds
    text, cohorts = told.rows_and_cohorts(path, config, known, whole)
    return rows.parse(config, told.source(path, known), text, cohorts, told.higher_is_better(known))


def rounds_so_far(path: Path, config: Config, known: Manifest) -> Result:
    """Return the rounds before a checkpoint.

    Args:
        path: the folder.
        config: of the run.
        known: the checkpoint's manifest.

    Raises:
        ValueError: they are not what the checkpoint says.
        OSError: they cannot be read.
    """
    text, cohorts = told.rows_and_cohorts(path, config, known, whole=False)
    return rows.parse(config, told.source(path, known), text, cohorts, told.higher_is_better(known))


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path}: the run is damaged or has no rounds ({error}); bring the file back, or run it again in another "
        "folder or with --resume never, which sets this one aside"
    )


def _difference(stored: Config, wanted: Config) -> str:
    pairs = zip(stored.effective().flat().items(), wanted.effective().flat().values())
    changed = [
        f"{name} {old!r} there, {new!r} here"
        for (name, old), new in pairs
        if old != new and name not in NOT_OF_THE_TRAJECTORY
    ]
    return "; ".join(changed[:3]) + (f"; and {len(changed) - 3} more" if len(changed) > 3 else "")
