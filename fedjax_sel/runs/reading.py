"""Reading of run folders, finished or still growing, and the performance per client of a finished run."""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_sel import devices
from fedjax_sel.config import PAIRS, VALUE, Config, DataConfig, ModelConfig, PartitionConfig, is_value
from fedjax_sel.core import files, jax_settings
from fedjax_sel.core.parsing import shown
from fedjax_sel.data.federation import Federation
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment, experiment_of
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.models import Model
from fedjax_sel.runs import checkpoint, folder, run_files
from fedjax_sel.runs.run_files import COHORTS, EPSILONS, METRICS, RESULT, Digests, Manifest, Result
from fedjax_sel.simulation import evaluation, layout
from fedjax_sel.simulation.run import SPECS


def finished_result(path: Path, config: Config, digests_now: Callable[[float], Digests]) -> Result | None:
    """Return the result of a finished run, after verifying its files and its data.

    None if the folder is missing or empty, or has an unfinished run of this configuration. A run whose process died
    after its last round and before it wrote `result.json` is unfinished. Other folders raise UserError.

    `digests_now` returns the digests of the current data; it is called only for a finished run. Its argument is the
    server's fraction of the training set.
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
    limit, before = config.seconds_limit, stored.seconds_limit or math.inf
    if limit is not None and before > limit:
        advice = "leave it out" if before == math.inf else f"give at least {before:g}"
        raise UserError(
            f"--max-seconds: {limit:g} is below the limit of the run in {path}; {advice}, or another folder"
        )
    newest = checkpoint.newest(path)
    if newest is None or not (path / METRICS).exists() or not (path / COHORTS).exists():
        return None
    if newest["rounds"] < config.run.rounds and config.seconds_limit is None:
        return None
    try:
        result = _read(path, config, newest)
    except UserError as error:
        if isinstance(error.__cause__, checkpoint.CutError):  # there may be a checkpoint before the missing rounds
            return None
        raise
    if not result.finished or not checkpoint.is_sealed(path, newest):
        return None
    reject_skipped_updates(result, config.replace(out=str(path)))
    try:
        now = digests_now(newest["server_validation"])
    except UserError as error:
        advice = f"the run in {path} is finished, and fedjax-sel report shows it without its data"
        raise UserError(f"{error}; {advice}") from error
    folder.reject_other_digests(path, newest["data"], now)
    return result


def load(path: Path) -> Result:
    """Return the result in a run folder, finished or not, up to the last round that a manifest covers."""
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give the --out of a run")
    config, newest = folder.stored_config(path), checkpoint.newest(path)
    if newest is None:
        raise UserError(
            f"{path}: the run has no intact {RESULT} or checkpoint, which verify its rounds; wait for its first save, "
            "or run it again"
        )
    return _read(path, config, newest)


def _read(path: Path, config: Config, newest: Manifest) -> Result:
    """Return the rounds that a manifest covers; UserError if they are damaged."""
    # Rows may follow a checkpoint: those of more rounds, until their own first checkpoint.
    whole = newest["rounds"] == config.run.rounds and checkpoint.is_sealed(path, newest)
    try:
        return rounds_so_far(path, config, newest, whole)
    except checkpoint.UNREADABLE as error:
        raise UserError(
            f"{path}: the run is damaged or has no rounds ({error}); restore the file, or run it again in another "
            "folder or with --resume never, which sets this folder aside"
        ) from error


def rounds_so_far(path: Path, config: Config, about: Manifest, whole: bool = False) -> Result:
    """Verify and return the rounds that a manifest covers; if `whole`, later rounds are rejected.

    Raises:
        CutError: rows or cohorts are missing at the end.
        ValueError: rows or cohorts do not match the manifest.
        OSError: a file cannot be read.
    """
    rows, cohorts = (path / METRICS).read_bytes(), _cohorts(path, config)
    size, rounds = about["metrics"]["bytes"], about["rounds"]
    for name, length, expected in ((METRICS, len(rows), size), (COHORTS, cohorts.shape[1], rounds)):
        if length < expected:
            raise checkpoint.CutError(f"{name} was truncated")
        if whole and length > expected:
            raise ValueError(f"{name} has more rounds than the run")
    rows, cohorts = rows[:size], cohorts[:, :rounds]
    if hashlib.sha256(rows).hexdigest() != about["metrics"]["sha256"]:
        raise ValueError(f"{METRICS} was changed")
    if checkpoint.digest_of_array(cohorts) != about["cohorts"]:
        raise ValueError(f"{COHORTS} was changed")
    result = run_files.parse(config, about["source"], rows.decode(), cohorts, about["higher_is_better"])
    if "epsilons" not in about:
        return result
    spent = files.read_array(path / EPSILONS)[:, :rounds] if (path / EPSILONS).exists() else None
    if spent is None or checkpoint.digest_of_array(spent) != about["epsilons"]:
        raise ValueError(f"{EPSILONS} was removed or changed")
    return dataclasses.replace(result, epsilons=spent)


def _cohorts(path: Path, config: Config) -> np.ndarray:
    try:
        found = files.read_array(path / COHORTS)
    except ValueError as error:
        raise ValueError(f"{COHORTS}: {error}") from error
    fits = found.ndim == 3 and found.dtype == np.int32 and len(found) == len(config.run.seeds)
    if not fits or found.shape[2] < config.cohort_size:  # a strategy whose cohort size is random has more places than K
        raise ValueError(f"{COHORTS} was changed")
    return found


def _difference(stored: Config, wanted: Config) -> str:
    pairs = zip(stored.effective().flat().items(), wanted.effective().flat().values())

    def text(name: str, value: Any) -> str:
        return ",".join(f"{key}={of}" for key, of in value) or "none" if name in PAIRS else repr(value)

    changed = [
        f"{name} {text(name, old)} in the folder, {text(name, new)} given"
        for (name, old), new in pairs
        if old != new and name not in wanted.free_to_change()
    ]
    return "; ".join(changed[:3]) + (f"; and {len(changed) - 3} more" if len(changed) > 3 else "")


def with_model(result: Result, experiment_or_config: Experiment | Config) -> Result:
    """Return a result from a folder with its model, and with weights in the model's pytree.

    If the experiment's data cannot be read, the result is returned as is.
    """
    if result.weights is None or result.model is not None:
        return result
    try:
        model = pose(experiment_or_config).model
    except UserError:
        return result
    return with_this_model(result, model)


def with_this_model(result: Result, model: Model) -> Result:
    """Return a result with this model and with weights in the model's pytree; a result without weights as is."""
    if result.weights is None:
        return result
    shapes = jax.eval_shape(model.init, jax_settings.key(0))
    weights = checkpoint.like(shapes, result.weights, result.config)
    return dataclasses.replace(result, model=model, weights=weights)


# The settings that determine the clients' data and the measures; training settings do not matter here.
_MATTER = tuple(
    field.name
    for kind in (DataConfig, PartitionConfig, ModelConfig)
    for field in dataclasses.fields(kind)
    if field.name not in ("data_dir", "server_validation")
)


def per_client(
    result: Result, experiment_or_config: Experiment | Config | None = None, on: str = "train"
) -> dict[str, np.ndarray]:
    """Return the task's measures and `loss` of the final models on each client's training or test data.

    The arrays are [seeds, N]. The experiment, with any seeds, can be omitted if the result's configuration is complete.
    """
    problem = problem_of(result, experiment_or_config, "per_client")
    if on == "test" and problem.client_tests is None:
        raise UserError("per_client: the clients have no test data; run with client_test=0.2 or unseen_clients=0.1")
    host, plan, _ = layout.lay_out(problem, len(result.seeds))
    federation = devices.place(plan.mesh, host, SPECS)

    def measure(federation: Federation, weights):
        return evaluation.client_measures(plan, federation, weights, tests=on == "test")

    program = jax.jit(devices.over_seeds(plan.mesh, measure, (SPECS, devices.PER_SEED), devices.PER_SEED))
    shapes = jax.eval_shape(problem.model.init, jax_settings.key(0))
    assert result.weights is not None, "`problem_of` rejects such results"
    weights = checkpoint.like(shapes, result.weights)
    measures, loss = jax.device_get(program(federation, devices.place(plan.mesh, weights, devices.PER_SEED)))
    about: dict[str, np.ndarray] = {}
    if on == "test" and problem.client_tests is not None and host.client_tests is not None:
        about["examples"] = host.client_tests.sizes
        names = [one.natural for one in problem.client_tests if one.natural is not None]
        about |= {"client": np.stack(names)} if names else {}
    return {**measures, "loss": loss, **about}


def problem_of(result: Result, experiment_or_config: Experiment | Config | None, function: str) -> Problem:
    """Return the problem of a result with weights; `function` begins the messages of errors."""
    if result.weights is None:
        raise UserError(
            f"{function}: this result has no weights; fedjax_sel.load(folder) loads them for a run that has ended"
        )
    if experiment_or_config is None:
        if any(isinstance(value, str) and is_value(value) for value in result.config.flat().values()):
            raise UserError(f"{function}: the run has values from Python; give its experiment as the second argument")
        experiment = experiment_of(result.config)
    else:
        experiment = _with_data_of(result, experiment_of(experiment_or_config), function)
    return pose(experiment.replace(mesh=None, seeds_at_once=None))  # the run's devices need not be here


def _with_data_of(result: Result, experiment: Experiment, function: str) -> Experiment:
    """Return the experiment with the seeds and the share of server data of a result of the same clients and model."""
    ran = result.config
    share = ran.data.server_validation
    names = _MATTER if share is not None else (*_MATTER, "algo", "algo_args")  # without a share, the strategy sets it
    recorded, given = ran.meant(), experiment.config.meant()
    for name in names:
        both = recorded[name], given[name]
        # Of two Python objects, at least one may have no name to compare.
        incomparable = VALUE in both and all(isinstance(text, str) and is_value(text) for text in both)
        if recorded[name] != given[name] and not incomparable:
            raise UserError(
                f"{function}: {name} is {shown(given[name])} in the experiment and {shown(recorded[name])} in the "
                f"result; give the experiment of this result (experiment.replace({name}=...))"
            )
    changes = {"data_seed": ran.run.data_seed, "server_validation": share}
    return experiment.replace(seeds=result.seeds, **changes)


def reject_skipped_updates(earlier: Result, config: Config) -> None:
    """Reject a folder's rounds with skipped updates for a run that stops at non-finite updates.

    Rounds before the first skipped update are identical under both settings, because only the host reads
    `on_nonfinite`.
    """
    skipped = earlier.ledger.updates_skipped.any(axis=0)
    if config.run.on_nonfinite == "stop" and skipped.any():
        raise UserError(
            f"--on-nonfinite stop: the run in {config.run.out} skipped an update in round {np.argmax(skipped) + 1}, "
            "where this run would have stopped; give --on-nonfinite skip, or another --out"
        )
