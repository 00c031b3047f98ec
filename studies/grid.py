"""Independent runs: one after another in this process, or on Dask workers on this machine or other machines.

A worker locks a run's folder, resumes from its checkpoint, and leaves the result there. A worker that dies loses only
the rounds since its run's last checkpoint. The results equal the results of a single process.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel import Config, DamagedRunError, Experiment, NonFiniteUpdateError, Result, UserError, devices
from fedjax_sel.core import files
from fedjax_sel.runs import checkpoint, folder, reading, run_files
from fedjax_sel.runs.experiment import finished, run_experiment
from fedjax_sel.runs.terminal import Interruption

Enough = Callable[[Result], bool]
"""A monotone predicate: True once the rounds so far suffice, and True for every longer result."""


class Until:
    """A callback that ends a run once its rounds suffice, including the rounds before it was resumed."""

    def __init__(self, path: Path, enough: Enough):
        """Create the callback for a run folder, which receives every chunk before the callbacks are called."""
        self._path, self._enough = path, enough

    def resume(self, earlier: Result) -> bool:
        """Return whether the rounds before the resumption suffice."""
        return self._enough(earlier)

    def chunk(self, rounds: Result, first: int) -> bool:
        """Return whether the run may end."""
        del rounds, first
        return self._enough(_so_far(self._path))


def _so_far(path: Path) -> Result:
    """Return all rounds with rows; rounds after the newest checkpoint have no cohorts yet, and -1 in their place."""
    config, about = folder.stored_config(path), checkpoint.newest(path)
    seeds, text = len(config.run.seeds), (path / run_files.METRICS).read_text(encoding="utf-8")
    cohorts = np.zeros((seeds, 0, config.cohort_size), np.int32)
    with contextlib.suppress(FileNotFoundError):
        cohorts = files.read_array(path / run_files.COHORTS)
    missing = max((text.count("\n") - 1) // seeds - cohorts.shape[1], 0)
    cohorts = np.pad(cohorts, ((0, 0), (0, missing), (0, 0)), constant_values=-1)
    return run_files.parse(config, "", text, cohorts, about is None or about["higher_is_better"])


def result_of(path: Path, config: Config, enough: Enough) -> Result | None:
    """Return the result of an unfinished run if its rounds suffice, else None.

    Args:
        path: the folder of a run with this configuration.
        config: the configuration to run.
        enough: the predicate on the rounds.

    Raises:
        UserError: the run is damaged, used different data, or skipped updates at which this run would stop.
    """
    newest = checkpoint.newest(path) if (path / run_files.METRICS).exists() else None
    if newest is None or not checkpoint.is_sealed(path, newest):
        return None  # no manifest covers its rows, or files are missing
    result = load_whole(path)
    if result is None or not result.num_rounds or not enough(result):
        return None
    result = dataclasses.replace(result, config=config)
    data = folder.current_digests(Experiment(config), newest["server_validation"])
    folder.reject_other_digests(path, folder.made_from(path), data)
    reading.reject_skipped_updates(result, config)
    return result


def load_whole(path: Path) -> Result | None:
    """Return the result in a run folder, as `reading.load` does; None if rounds that a manifest covers are missing.

    Such a run can be resumed from an earlier checkpoint.
    """
    try:
        return reading.load(path)
    except UserError as error:
        if isinstance(error.__cause__, checkpoint.CutError):
            return None
        raise


Afterwards = Callable[[Result], Iterator[str]]
"""Post-processing of a finished run, kept in its folder; yields after each step a message for the user, or ""."""

FAILURES = (NonFiniteUpdateError, DamagedRunError, UserError, MemoryError, jax.errors.JaxRuntimeError)


class Failure(NamedTuple):
    """The reason for a missing result."""

    why: str
    for_good: bool  # whether the same configuration would fail again, because of non-finite values

    def __str__(self) -> str:
        return self.why


class Done(NamedTuple):
    """The outcome of a run, or the notice that all runs were stopped."""

    config: Config
    result: Result | None  # None if the run failed or was stopped
    failure: Failure | None = None
    before: bool = False  # whether the run was already finished
    stopped_by: int | None = None  # signal that stopped all runs, 0 for an immediate Ctrl-C; None if none did


class Workers(NamedTuple):
    """The Dask workers that execute the runs."""

    jobs: int = 0  # processes on this machine, which share its cores
    scheduler: str | None = None  # the address of a Dask scheduler


MOST_JOBS = 1024


def workers(jobs: int, scheduler: str | None) -> Workers | None:
    """Return the workers for these flags; None to run in this process.

    Raises:
        UserError: the number of processes is out of range, or both flags are given.
    """
    if jobs < 0:
        raise UserError(f"--jobs: {jobs} is below 0; give the number of processes")
    if jobs > MOST_JOBS:
        raise UserError(f"--jobs: {jobs} exceeds {MOST_JOBS} processes; give about the number of this machine's cores")
    if jobs and scheduler:
        raise UserError("--jobs and --scheduler exclude each other; give one of them")
    return Workers(jobs, scheduler) if jobs or scheduler else None


def run_all(
    runs: Sequence[tuple[str, Config]],
    say: Callable[[str], None],
    workers: Workers | None = None,
    afterwards: Afterwards | None = None,
    progress: bool = True,
    enough: Enough | None = None,
) -> Iterator[Done]:
    """Run independent configurations; finished runs are read from their folders.

    Args:
        runs: the name and the configuration of each run; each configuration has its own folder.
        say: a function that shows a message to the user, called before each run.
        workers: the Dask workers; None to run in this process, in order.
        afterwards: resumable post-processing of each finished run, in the process that ran it; importable by workers.
        progress: whether each run in this process shows its progress.
        enough: the predicate that ends a run early; None to run all rounds; importable by workers.

    Yields:
        The outcome of each run; if a signal stopped the runs, the last item says so.
    """
    if workers is not None:
        yield from _on_workers(runs, say, workers, afterwards, enough)
        return
    devices.use_every_core()
    for number, (name, config) in enumerate(runs, start=1):
        try:
            result = done_before(config, enough)
            before = result is not None
            say(f"run {number} of {len(runs)}: {name}{' (finished before)' if before else ''}")
            if result is None:
                result = run_experiment(config, progress, _until(config, enough))
            ended = _came_to_its_end(result, enough)
            stopped_by = None if ended and not result.stopped_by else result.stopped_by
            if afterwards is not None and stopped_by is None:
                stopped_by = _do(afterwards(result), say)
        except FAILURES as error:
            say(f"failed: {error}")
            yield Done(config, None, _failure(error))
            continue
        if ended and (afterwards is None or stopped_by is None):
            yield Done(config, result, before=before)
        if stopped_by is not None:
            yield Done(config, None, stopped_by=stopped_by)
            return


def done_before(config: Config, enough: Enough | None = None) -> Result | None:
    """Return the result of a run that needs no further rounds, else None.

    Args:
        config: a configuration with a folder.
        enough: the predicate that ends a run early; None to require all rounds.

    Raises:
        UserError: the folder has other content, or is damaged; see `runs.experiment.finished`.
    """
    path = _path(config)
    result = finished(path, config)
    return result_of(path, config, enough) if result is None and enough is not None else result


def _until(config: Config, enough: Enough | None) -> tuple[Until, ...]:
    return () if enough is None else (Until(_path(config), enough),)


def _came_to_its_end(result: Result, enough: Enough | None) -> bool:
    return result.finished or (enough is not None and not result.stopped_by and enough(result))


def _do(work: Iterator[str], say: Callable[[str], None]) -> int | None:
    """Run the steps until a signal arrives; return its number, or None after the last step."""
    with Interruption(shown=True) as interruption:
        for line in work:
            if line:
                say(line)
            if interruption.asked:
                return interruption.asked
    return None


def _on_workers(
    runs: Sequence[tuple[str, Config]],
    say: Callable[[str], None],
    workers: Workers,
    afterwards: Afterwards | None,
    enough: Enough | None,
) -> Iterator[Done]:
    distributed = _dask()
    with contextlib.ExitStack() as stack:
        if workers.scheduler is None:
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=workers.jobs, threads_per_worker=1, processes=True, dashboard_address=None
                )
            )
            client = stack.enter_context(distributed.Client(cluster))
            client.register_plugin(_share(distributed, workers.jobs))
        else:
            client = stack.enter_context(_connected(distributed, workers.scheduler))
        submitted = {}
        for name, config in runs:
            # pure=False: Dask must not reuse a cached result, since the folder may have changed.
            nested = _for_any_folder(config).to_json()
            submitted[client.submit(run_one, nested, afterwards, enough, pure=False)] = (name, config)
        for number, future in enumerate(distributed.as_completed(list(submitted)), start=1):
            name, config = submitted[future]
            error = future.exception()
            failure = _failure(error) if error is not None else future.result()
            say(f"run {number} of {len(runs)}: {name}{'' if failure is None else f' failed: {failure}'}")
            result = dataclasses.replace(reading.load(_path(config)), config=config) if failure is None else None
            yield Done(config, result, failure)


def _for_any_folder(config: Config) -> Config:
    """Return a configuration with absolute paths; a worker may have another working directory."""
    data_dir = config.data.data_dir
    paths: dict[str, Any] = {} if data_dir is None else {"data_dir": os.path.abspath(data_dir)}
    return config.replace(out=os.path.abspath(_path(config)), **paths)


def _connected(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise UserError(
            f"--scheduler: no answer from {address}; start `dask scheduler` there, or give --jobs for this machine"
        ) from error


def _share(distributed: Any, workers: int) -> Any:
    """Return a plugin that pins each local worker to its share of the cores, also after a restart."""

    class Share(distributed.WorkerPlugin):
        def setup(self, worker: Any) -> None:
            keep_to_share(workers, int(worker.name))

    return Share()


def keep_to_share(workers: int, number: int) -> None:
    """Pin a local worker to its share of the cores, before it starts JAX.

    Args:
        workers: number of workers.
        number: index of this worker.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cores[number % len(cores) :: workers])


def run_one(
    nested: dict[str, Any], afterwards: Afterwards | None = None, enough: Enough | None = None
) -> Failure | None:
    """Run one configuration on a worker, unless it is finished.

    Args:
        nested: the configuration from `Config.to_json`.
        afterwards: post-processing, see `run_all`.
        enough: the predicate that ends a run early, see `run_all`.

    Returns:
        None, or the reason for the missing result.
    """
    devices.use_every_core()
    config = Config.from_json(nested)
    try:
        result = done_before(config, enough) or run_experiment(config, watching=_until(config, enough))
        ended = _came_to_its_end(result, enough)
        if afterwards is not None and ended:
            for _ in afterwards(result):
                pass
    except FAILURES as error:
        return _failure(error)
    stopped = f"stopped after round {result.num_rounds}; the same command resumes it"
    return None if ended else Failure(stopped, for_good=False)


def _failure(error: BaseException) -> Failure:
    return Failure(str(error), isinstance(error, NonFiniteUpdateError))


def _path(config: Config) -> Path:
    assert config.run.out is not None, "a run of a grid has a folder"
    return Path(config.run.out)


def _dask() -> Any:
    try:
        import distributed  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(
            '--jobs: the package distributed is missing; run pip install "fedjax-sel[dask]", or omit --jobs'
        ) from error
    return distributed
