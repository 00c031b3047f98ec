"""Independent runs: one after another in this process, or handed to Dask's workers on this machine or on others.

The folders decide who runs what: a worker takes the lock of a run's folder, goes on from its checkpoint, and leaves
its result there. So a worker that dies loses what came after one run's last checkpoint, and the tables are those of a
single process.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedjax_sel import devices
from fedjax_sel.config import Config
from fedjax_sel.errors import DamagedRunError, NonFiniteUpdateError, UserError
from fedjax_sel.experiment import experiment_of
from fedjax_sel.runs import folder, following, provenance, reading, run_files, told, verdict
from fedjax_sel.runs.experiment import finished, run_experiment
from fedjax_sel.runs.interruption import Interruption
from fedjax_sel.runs.records import Result

Enough = Callable[[Result], bool]
"""Whether the rounds so far are enough; what it says must stay so as rounds are added."""


class Until:
    """A callback that ends a run once its rounds are enough, those before it went on included."""

    def __init__(self, path: Path, enough: Enough):
        """Take the folder of the run, to which every chunk is written before a callback hears of it."""
        self._path, self._enough = path, enough

    def resume(self, earlier: Result) -> bool:
        """Return whether the run may end where it was left."""
        return self._enough(earlier)

    def chunk(self, rounds: Result, first: int) -> bool:
        """Return whether the run may end."""
        del rounds, first
        return self._enough(following.so_far(self._path)[0])


def result_of(path: Path, config: Config, enough: Enough) -> Result | None:
    """Return what an unfinished run has, if that is enough; None where it has to go on, or begin.

    Args:
        path: the folder, whose run is of this configuration.
        config: what is to be run.
        enough: whether the rounds of a result are.

    Raises:
        UserError: the run is damaged, was made from other data, or left out updates at which this one would end.
    """
    known = told.newest(path) if (path / run_files.METRICS).exists() else None
    if known is None or not told.is_sealed(path, known):
        return None  # nothing vouches for its rows, or files are missing
    result = reading.load_whole(path)
    if result is None or not result.num_rounds or not enough(result):
        return None
    result = dataclasses.replace(result, config=config)
    data = provenance.of_experiment(experiment_of(config), known.get("server_validation"))
    folder.refuse_other_data(path, data)
    verdict.refuse_what_was_skipped(result, config)
    return result


Afterwards = Callable[[Result], Iterator[str]]
"""What is done on a finished run, and kept in its folder: after every piece of work a line for the person, or none."""

FAILURES = (NonFiniteUpdateError, DamagedRunError, UserError, MemoryError, jax.errors.JaxRuntimeError)


class Failure(NamedTuple):
    """Why there is no result."""

    why: str
    for_good: bool  # whether the same configuration would fail again: its numbers were no longer finite

    def __str__(self) -> str:
        return self.why


class Done(NamedTuple):
    """What became of a run, or that nothing more is run."""

    config: Config
    result: Result | None  # None where it failed or was stopped
    failure: Failure | None = None
    before: bool = False  # whether it was finished when it was asked for
    stopped_by: int | None = None  # the signal that ended all of it, 0 where Ctrl-C did at once; None: it goes on


class Workers(NamedTuple):
    """Who takes the runs."""

    jobs: int = 0  # processes on this machine, which share its cores
    scheduler: str | None = None  # the address of a Dask scheduler


MOST_JOBS = 1024


def workers(jobs: int, scheduler: str | None) -> Workers | None:
    """Return who takes the runs; None: this process.

    Raises:
        UserError: there cannot be so many.
    """
    if jobs < 0:
        raise UserError(f"--jobs: {jobs} is below 0; give the number of processes")
    if jobs > MOST_JOBS:
        raise UserError(f"--jobs: {jobs} exceeds {MOST_JOBS} processes; give about as many as this machine has cores")
    if jobs and scheduler:
        raise UserError("--jobs and --scheduler: each says who takes the runs; give one of them")
    return Workers(jobs, scheduler) if jobs or scheduler else None


def run_all(
    runs: Sequence[tuple[str, Config]],
    say: Callable[[str], None],
    workers: Workers | None = None,
    afterwards: Afterwards | None = None,
    progress: bool = True,
    enough: Enough | None = None,
) -> Iterator[Done]:
    """Run configurations that have nothing to do with each other; finished ones are read.

    Args:
        runs: what each is called, and its configuration with its folder.
        say: takes a line for the person before each run.
        workers: that take them; None: this process, in order.
        afterwards: what is done on each that is finished, where it runs; finds what it did before. Workers import it.
        progress: whether each run in this process shows its bar.
        enough: when a run may end before its last round; None: never. Workers import it.

    Yields:
        What became of each; and last, where they were stopped, that they were.
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
    """Return the result of a run that needs nothing more; None where it does.

    Args:
        config: with its folder.
        enough: when a run may end before its last round; None: never.

    Raises:
        UserError: the folder holds something else, or is damaged; see `runs.experiment.finished`.
    """
    path = _path(config)
    result = finished(path, config)
    return result_of(path, config, enough) if result is None and enough is not None else result


def _until(config: Config, enough: Enough | None) -> tuple[Until, ...]:
    return () if enough is None else (Until(_path(config), enough),)


def _came_to_its_end(result: Result, enough: Enough | None) -> bool:
    return result.finished or (enough is not None and not result.stopped_by and enough(result))


def _do(work: Iterator[str], say: Callable[[str], None]) -> int | None:
    """Do pieces of work until a signal comes: its number, None without."""
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
        places = {}
        for name, config in runs:
            # Not pure: the same configuration run again reads its folder again.
            there = _for_any_folder(config).to_json()
            places[client.submit(run_one, there, afterwards, enough, pure=False)] = (name, config)
        for number, future in enumerate(distributed.as_completed(list(places)), start=1):
            name, config = places[future]
            error = future.exception()
            failure = _failure(error) if error is not None else future.result()
            say(f"run {number} of {len(runs)}: {name}{'' if failure is None else f' failed: {failure}'}")
            result = dataclasses.replace(reading.load(_path(config)), config=config) if failure is None else None
            yield Done(config, result, failure)


def _for_any_folder(config: Config) -> Config:
    """Return a configuration with absolute paths: a worker may have been started in another folder."""
    data_dir = config.data.data_dir
    paths: dict[str, Any] = {} if data_dir is None else {"data_dir": os.path.abspath(data_dir)}
    return config.replace(out=os.path.abspath(_path(config)), **paths)


def _connected(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise UserError(
            f"--scheduler: nobody answers at {address}; start dask scheduler there, or give --jobs for this machine"
        ) from error


def _share(distributed: Any, workers: int) -> Any:
    """Return a plugin that keeps so many workers of this machine to their shares, one that is started anew, too."""

    class Share(distributed.WorkerPlugin):
        def setup(self, worker: Any) -> None:
            keep_to_share(workers, int(worker.name))

    return Share()


def keep_to_share(workers: int, number: int) -> None:
    """Keep a worker of this machine to its share of the cores, before it starts JAX.

    Args:
        workers: how many there are.
        number: of this one.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cores[number % len(cores) :: workers])


def run_one(
    nested: dict[str, Any], afterwards: Afterwards | None = None, enough: Enough | None = None
) -> Failure | None:
    """Run one configuration in this process, or find that it was run: what a worker does.

    Args:
        nested: the configuration, as `Config.to_json` gives it.
        afterwards: see `run_all`.
        enough: see `run_all`.

    Returns:
        None; or why there is no result.
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
    stopped = f"it was stopped after round {result.num_rounds}; the same command goes on"
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
            '--jobs: the package distributed is missing; pip install "fedjax-sel[dask]", or leave --jobs out'
        ) from error
    return distributed
