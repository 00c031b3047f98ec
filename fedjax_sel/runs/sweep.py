"""Sequential runs under equal conditions, checked before the first one starts, and resumable.

Each run has its own folder. Finished runs are read instead of repeated, so the same call resumes an interrupted
comparison. In addition to the run's files, the folder gets

    selection_cost.json   seconds of selection per round for all replicates, measured separately
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from fedjax_sel import devices
from fedjax_sel.config import Config
from fedjax_sel.core import files
from fedjax_sel.errors import DamagedRunError, NonFiniteUpdateError, UserError
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.checking import check as check_alone
from fedjax_sel.experiment.checking import server_validation
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.runs import folder, provenance, reading, run_files, weights
from fedjax_sel.runs.experiment import finished, run_experiment
from fedjax_sel.runs.jobs import Job
from fedjax_sel.runs.model_again import with_this_model
from fedjax_sel.runs.provenance import Digests
from fedjax_sel.runs.records import Result
from fedjax_sel.runs.resume import edited_plugins
from fedjax_sel.simulation import selection_cost

SELECTION_COST = "selection_cost.json"
FAILURES = (NonFiniteUpdateError, DamagedRunError, UserError, MemoryError, jax.errors.JaxRuntimeError)

_T = TypeVar("_T")


class Checked(NamedTuple):
    """A job that can run."""

    job: Job
    problem: Problem
    data: Digests


class Done(NamedTuple):
    """The outcome of a job."""

    job: Job
    result: Result | None  # None if the job failed; `finished` is False if a signal or a callback ended it
    error: str | None = None
    stopped_by: int | None = None  # signal that stopped all jobs, 0 for an immediate Ctrl-C; None if none did
    selection_seconds: float = math.nan  # per round, all replicates together


def check(jobs: Sequence[Job]) -> list[Checked]:
    """Check the configuration, data, strategy and folder of all jobs, without running or writing anything.

    If one strategy needs data on the server, the server keeps the same share in all jobs under equal conditions.
    Otherwise their partitions would differ.

    Args:
        jobs: the jobs, in the order of execution.

    Returns:
        The checked jobs.

    Raises:
        UserError: a job has an error that the user can fix.
    """
    devices.use_every_core()
    for job in jobs:
        if job.config.run.distributed:
            raise UserError("--distributed: a comparison runs on one machine; run its strategies one by one with train")
        _blame(job, lambda job=job: check_alone(job.experiment))
    # The random strategy first, so that errors that do not depend on the strategy are not blamed on one.
    common = {job.conditions: pose(_with_random(job)) for job in jobs}
    strategies = [
        _blame(job, lambda job=job: pose(_first_seed(job)).strategy) for job in jobs
    ]  # their data stay unused
    shares: dict[str, float] = {}
    for job, strategy in zip(jobs, strategies):
        shares[job.conditions] = max(shares.get(job.conditions, 0.0), server_validation(job.config, strategy))
    ready = []
    for job, strategy in zip(jobs, strategies):
        share = shares[job.conditions]
        if share != server_validation(job.config, common[job.conditions].strategy):
            job = job._replace(experiment=job.experiment.replace(server_validation=share))
            if common[job.conditions].config.data.server_validation != share:
                common[job.conditions] = pose(_with_random(job))
        problem = dataclasses.replace(common[job.conditions], config=job.config, strategy=strategy)
        ready.append((job, problem))
    data = {name: provenance.digests(one.given, one.config.run.seeds) for name, one in common.items()}
    checked = [Checked(job, problem, data[job.conditions]) for job, problem in ready]
    for one in checked:
        _check_folder(one)
    return checked


def _check_folder(one: Checked) -> None:
    """Reject a folder whose run, finished or not, has another configuration or other data than the job."""
    path, config = _path(one.job), one.job.config
    if config.run.resume == "never":
        return
    reading.finished_result(path, config, lambda _: one.data)
    if path.is_dir():
        folder.refuse_other_data(path, one.data)


def run_all(
    checked: Sequence[Checked],
    say: Callable[[str], None],
    progress: bool = True,
    watching: Callable[[Job], Sequence[Any]] = lambda job: (),
) -> Iterator[Done]:
    """Run the jobs in order; a failed job does not stop the others, an interrupted one is the last.

    Args:
        checked: the jobs from `check`.
        say: a function that shows a message to the user, called before each job.
        progress: whether each run shows its progress.
        watching: function from a job to its run's callbacks.

    Yields:
        The outcome of each job as soon as it ends.
    """
    for number, (job, problem, data) in enumerate(checked, start=1):
        heading = f"run {number} of {len(checked)}: {job.algo}, {job.conditions}"
        try:
            result = finished(_path(job), job.experiment, data)
            say(heading if result is None else f"{heading} (finished before)")
            for edited in [] if result is None else edited_plugins(_path(job), job.config):
                say(f"{edited}: these results are from the code before the edit; give another --out to run it again")
            if result is None:
                result = run_experiment(job.experiment, progress, watching(job))
            else:
                result = dataclasses.replace(result, weights=weights.read(_path(job)))
                result = with_this_model(result, problem.model)
        except FAILURES as error:
            yield Done(job, None, str(error))
            continue
        if result.stopped_by and (not result.finished or number < len(checked)):
            yield Done(job, result, stopped_by=result.stopped_by)
            return
        yield Done(job, result, selection_seconds=_selection_seconds(_path(job), problem))


def _selection_seconds(path: Path, problem: Problem) -> float:
    """Return the seconds of selection per round, from the run's folder, or measured and written to it."""
    file = path / SELECTION_COST
    try:
        return float(files.read_json(file)["seconds_per_round"])
    except (OSError, ValueError, KeyError, TypeError):
        cost = selection_cost.measure(selection_cost.of_problem(problem))
    with contextlib.suppress(OSError):  # if the disk is not writable, the next call measures again
        run_files.write_json(file, cost._asdict())
    return cost.seconds_per_round


def _path(job: Job) -> Path:
    assert job.config.run.out is not None, "a job has a folder"
    return Path(job.config.run.out)


def _first_seed(job: Job) -> Experiment | Config:
    return job.experiment.replace(seeds=job.config.run.seeds[:1], seeds_at_once=None, mesh=None)


def _with_random(job: Job) -> Experiment | Config:
    return job.experiment.replace(algo="random", algo_args=())


def _blame(job: Job, action: Callable[[], _T]) -> _T:
    """Run an action for a job; add the strategy's name to its UserError."""
    try:
        return action()
    except UserError as error:
        message = str(error).removeprefix("--algo: ").removeprefix(f"--algo {job.config.selection.algo}: ")
        raise UserError(f"--algos {job.algo}: {message}") from error
