"""Reading of run folders, finished or still growing, and the performance per client of a finished run."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel import devices
from fedjax_sel.config import NOT_OF_THE_TRAJECTORY, Config, DataConfig, ModelConfig, PartitionConfig
from fedjax_sel.core import files, jax_settings, plugins
from fedjax_sel.core.parsing import shown
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import VALUE, Experiment, experiment_of, is_value
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models import Model
from fedjax_sel.runs import checkpoint, folder, run_files, verdict
from fedjax_sel.runs.records import Result
from fedjax_sel.runs.run_files import COHORTS, METRICS, RESULT, Digests, Manifest
from fedjax_sel.simulation import evaluation, layout
from fedjax_sel.simulation.evaluation import evaluator
from fedjax_sel.simulation.run import SPECS


def finished_result(path: Path, config: Config, digests_now: Callable[[float | None], Digests]) -> Result | None:
    """Return the result of a finished run, after verifying its files and its data.

    Args:
        path: the folder.
        config: the configuration to run.
        digests_now: function that returns the digests of the current data, called only for a finished run. Its
            argument is the server's fraction of the training set, or None for the strategy's default.

    Returns:
        The result. None if the folder is missing or empty, or has an unfinished run of this configuration. A run whose
        process died after its last round and before it wrote `result.json` is unfinished.

    Raises:
        UserError: the folder has other content, a damaged run, or a run with different data, or cannot be used.
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
            f"--out: {path} has a run with another configuration ({_difference(stored, config)}); give another "
            "folder, or the values in it"
        )
    if stored.run.rounds > config.run.rounds:
        raise UserError(
            f"--rounds: {config.run.rounds} is less than the {stored.run.rounds} rounds of the run in {path}; give at "
            f"least {stored.run.rounds}, or another folder"
        )
    newest = checkpoint.newest(path)
    done = stored.run.rounds if newest is None else newest["rounds"]
    if done < config.run.rounds or not (path / METRICS).exists() or not (path / COHORTS).exists():
        return None
    try:
        result = _read(path, config, newest)
    except checkpoint.CutError:  # there may be a checkpoint before the missing rounds
        return None
    except checkpoint.UNREADABLE as error:
        raise _damaged(path, error) from error
    if not result.finished or not checkpoint.is_sealed(path, newest):
        return None
    verdict.refuse_what_was_skipped(result, config.replace(out=str(path)))
    made_from = checkpoint.made_from(path, newest)
    if made_from is not None:
        try:
            now = digests_now(None if newest is None else newest.get("server_validation"))
        except UserError as error:
            raise UserError(
                f"{error}; the run in {path} is finished, and fedjax-sel report shows it without its data"
            ) from error
        folder.refuse_others(path, made_from, now)
    return result


def load(path: Path) -> Result:
    """Return the result in a run folder, finished or not, up to the last round that a manifest covers.

    Raises:
        UserError: the folder has no readable run, or the run is damaged.
    """
    config = _config(path)
    try:
        return _read(path, config, checkpoint.newest(path))
    except checkpoint.UNREADABLE as error:
        raise _damaged(path, error) from error


def load_whole(path: Path) -> Result | None:
    """Return the result in a run folder, as `load` does; None if rounds that a manifest covers are missing.

    Such a run can be resumed from an earlier checkpoint.

    Raises:
        UserError: the folder has no readable run, or the run is damaged in another way.
    """
    config = _config(path)
    try:
        return _read(path, config, checkpoint.newest(path))
    except checkpoint.CutError:
        return None
    except checkpoint.UNREADABLE as error:
        raise _damaged(path, error) from error


def _config(path: Path) -> Config:
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give the --out of a run")
    return folder.stored_config(path)


def _read(path: Path, config: Config, newest: Manifest | None) -> Result:
    """Read the rounds that a manifest covers, or all without one; raise one of UNREADABLE if they are damaged."""
    if newest is None:
        warnings.warn(
            f"{path}: the rows cannot be verified, because {RESULT} and the checkpoints are lost or damaged",
            stacklevel=3,
        )
    whole = newest is not None and newest["rounds"] == config.run.rounds
    text, cohorts = checkpoint.rows_and_cohorts(path, config, newest, whole)
    return run_files.parse(config, checkpoint.source(path, newest), text, cohorts, checkpoint.higher_is_better(newest))


def rounds_so_far(path: Path, config: Config, about: Manifest) -> Result:
    """Return the rounds before a checkpoint.

    Args:
        path: the folder.
        config: the run's configuration.
        about: the checkpoint's manifest.

    Raises:
        ValueError: the rounds do not match the checkpoint.
        OSError: the rounds cannot be read.
    """
    text, cohorts = checkpoint.rows_and_cohorts(path, config, about, whole=False)
    return run_files.parse(config, checkpoint.source(path, about), text, cohorts, checkpoint.higher_is_better(about))


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path}: the run is damaged or has no rounds ({error}); restore the file, or run it again in another folder "
        "or with --resume never, which sets this folder aside"
    )


def _difference(stored: Config, wanted: Config) -> str:
    pairs = zip(stored.effective().flat().items(), wanted.effective().flat().values())
    changed = [
        f"{name} {old!r} in the folder, {new!r} given"
        for (name, old), new in pairs
        if old != new and name not in NOT_OF_THE_TRAJECTORY
    ]
    return "; ".join(changed[:3]) + (f"; and {len(changed) - 3} more" if len(changed) > 3 else "")


def so_far(path: Path) -> tuple[Result, int]:
    """Return all rounds with rows, and the number of rounds with cohorts.

    Rows are written after each chunk, cohorts only with a checkpoint. Cohorts after the newest checkpoint are filled
    with -1, as for a round in which no client trained. The last rows have no digest yet, so they are not verified.

    Args:
        path: the folder.

    Returns:
        The result, perhaps of zero rounds, and the number of rounds with cohorts.

    Raises:
        UserError: the folder has no run, or the run is damaged.
    """
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give the --out of a run")
    config = folder.stored_config(path)
    seeds, selected = len(config.run.seeds), config.selection.num_selected
    try:
        text = _read_partial(path / run_files.METRICS)
        try:
            cohorts = files.read_array(path / run_files.COHORTS, run_files.MOST_BYTES)
        except FileNotFoundError:
            cohorts = np.zeros((seeds, 0, selected), np.int32)
        rounds = max((text.count("\n") - 1) // seeds, 0)
        missing = np.full((seeds, max(rounds - cohorts.shape[1], 0), selected), -1, np.int32)
        newest = checkpoint.newest(path)
        padded = np.concatenate([cohorts, missing], axis=1)
        result = run_files.parse(
            config, checkpoint.source(path, newest), text, padded, checkpoint.higher_is_better(newest)
        )
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the run cannot be read ({error}); restore its files, or leave it out") from error
    return result, min(result.num_rounds, cohorts.shape[1])


def _read_partial(path: Path) -> str:
    try:
        return files.read_text(path, run_files.MOST_BYTES)
    except FileNotFoundError:
        return ""


def with_model(result: Result, experiment_or_config: Experiment | Config) -> Result:
    """Return a result with its model and with weights in the model's pytree.

    Args:
        result: a result that was read from a folder.
        experiment_or_config: the experiment of the result; if its data cannot be read, the result is returned as is.

    Raises:
        UserError: the weights belong to a different model with the same name.
    """
    if result.weights is None or result.model is not None:
        return result
    try:
        with plugins.contained(result.config.plugins()):
            model = pose(experiment_or_config).model
    except UserError:
        return result
    return with_this_model(result, model)


def with_this_model(result: Result, model: Model) -> Result:
    """Return a result with this model and with weights in the model's pytree; a result without weights as is.

    Args:
        result: a result that was read from a folder.
        model: the model of the result's experiment.

    Raises:
        UserError: the weights belong to a different model with the same name.
    """
    if result.weights is None:
        return result
    shapes = jax.eval_shape(model.init, jax_settings.key(0))
    if (found := checkpoint.unlike(shapes, result.weights)) is not None:
        raise checkpoint.another_model(result.config, found)
    return dataclasses.replace(result, model=model, weights=checkpoint.like(shapes, result.weights))


# The settings that determine the clients' data and the measures; training settings do not matter here.
_MATTER = tuple(
    field.name
    for kind in (DataConfig, PartitionConfig, ModelConfig)
    for field in dataclasses.fields(kind)
    if field.name not in ("data_dir", "server_validation")
)


def per_client(result: Result, experiment_or_config: Experiment | Config | None = None) -> dict[str, np.ndarray]:
    """Return the task's measures and `loss` of the final models on each client's training data, [seeds, N] each.

    Args:
        result: the run's result, with its weights.
        experiment_or_config: the experiment of the result, with any seeds; None if the result's configuration is
            complete.

    Raises:
        UserError: the result has no weights, its data cannot be read, or it belongs to another experiment.
    """
    if result.weights is None:
        raise UserError(
            "per_client: this result has no weights; fedjax_sel.load(folder) loads them for a run that has ended, "
            'and with weights="latest" from the newest checkpoint'
        )
    problem = pose(result.config if experiment_or_config is None else _of_result(result, experiment_or_config))
    host, plan, _ = layout.lay_out(problem, len(result.seeds))
    shared = {name: getattr(host, name) for name in Federation._fields if name not in fed.PER_REPLICATE}
    own = {name: getattr(host, name) for name in fed.PER_REPLICATE}
    federation = Federation(
        **devices.place(plan.mesh, shared, devices.WHOLE), **devices.place(plan.mesh, own, devices.PER_SEED)
    )

    def measure(federation: Federation, weights):
        return evaluation.of_clients(evaluator(plan, federation.labels), federation, weights)

    program = jax.jit(devices.over_seeds(plan.mesh, measure, (SPECS, devices.PER_SEED), devices.PER_SEED))
    shapes = jax.eval_shape(problem.model.init, jax_settings.key(0))
    weights = checkpoint.like(shapes, result.weights)
    found = devices.fetch(program(federation, devices.place(plan.mesh, weights, devices.PER_SEED)))
    return {**found.measures, "loss": found.loss}


def _of_result(result: Result, experiment_or_config: Experiment | Config) -> Experiment:
    """Return the experiment with the seeds of a result and its share of server data.

    Raises:
        UserError: the experiment has other clients, or another model or task.
    """
    experiment, ran = experiment_of(experiment_or_config), result.config
    # Without a recorded share of server data, the strategy determines it.
    names = _MATTER if ran.data.server_validation is not None else (*_MATTER, "algo", "algo_args")
    recorded, given = ran.meant(), experiment.config.meant()
    for name in names:
        if recorded[name] != given[name] and not _both_values(recorded[name], given[name]):
            raise UserError(
                f"per_client: {name} is {shown(given[name])} in the experiment and {shown(recorded[name])} in the "
                "result; give the experiment of this result"
            )
    return experiment.replace(
        seeds=result.seeds,
        seeds_at_once=None,
        data_seed=ran.run.data_seed,
        server_validation=ran.data.server_validation,
    )


def _both_values(one: Any, other: Any) -> bool:
    """Return whether both stand for Python objects, at least one of which has no name to compare."""
    return VALUE in (one, other) and all(isinstance(text, str) and is_value(text) for text in (one, other))
