"""Several runs in sequence: jobs of a comparison and their execution."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from fedjax_sel import devices
from fedjax_sel.config import Config
from fedjax_sel.core import parsing, plugins
from fedjax_sel.errors import DamagedRunError, NonFiniteUpdateError, UserError
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.checking import check as check_alone
from fedjax_sel.experiment.checking import server_validation
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.runs import checkpoint, folder, reading
from fedjax_sel.runs.experiment import run_experiment
from fedjax_sel.runs.reading import with_this_model
from fedjax_sel.runs.resume import edited_plugins
from fedjax_sel.runs.run_files import Result
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.training.optimizers import FederatedOptimizer


class Job(NamedTuple):
    """One run of a comparison; `config.run.out` is its folder."""

    setting: str  # the preset
    algo: str  # display name of the strategy with its parameters
    experiment: Experiment
    optimizer: str = ""  # display name of the federated optimizer with its parameters, if several are compared

    @property
    def config(self) -> Config:
        """The experiment's configuration."""
        return self.experiment.config

    @property
    def conditions(self) -> str:
        """The setting and the optimizer; jobs under equal conditions differ only in strategy and folder."""
        return conditions(self.setting, self.optimizer)


def conditions(setting: str, optimizer: str) -> str:
    """Return the heading of a setting and an optimizer; the latter is empty if only one is compared."""
    return f"{setting}, {optimizer}" if optimizer else setting


KINDS = {"--algos": Strategy, "--optimizers": FederatedOptimizer}
_EXAMPLES = {"--algos": 'e.g. "fl_dp3s[profile=gradient]"', "--optimizers": 'e.g. "fedprox[mu=0.1]"'}


def parse_algo(text: str, flag: str = "--algos") -> tuple[str, dict[str, str]]:
    """Parse an item of the flag, `name` or `name[key=value,key=value]`, into the name and the sorted parameters."""
    return parsing.name_and_parameters(flag, text, _EXAMPLES[flag])


def label(name: str, values: dict[str, str]) -> str:
    """Format a name and its parameters in the syntax of `parse_algo`."""
    return f"{name}[{','.join(f'{key}={value}' for key, value in values.items())}]" if values else name


def make_jobs(
    settings: Mapping[str, Experiment],
    algos: Sequence[str | Strategy],
    out: Path,
    subfolders: bool,
    optimizers: Sequence[str | FederatedOptimizer] | None = None,
) -> list[Job]:
    """Create one job for each combination of setting, optimizer and strategy.

    The strategy and the folder of the settings are replaced. Strategies and optimizers may be items in the syntax of
    `parse_algo`; None keeps the optimizers of the settings. With `subfolders`, each setting has its own folder.
    """
    strategies = _items("--algos", algos)
    chosen = [_Item("", "", {})] if optimizers is None else _items("--optimizers", optimizers)
    folders = {setting: setting.replace("/", "-") if subfolders else "" for setting in settings}
    jobs = []
    for setting, experiment in settings.items():
        for optimizer in chosen:
            place = out / folders[setting] / optimizer.folder
            for strategy in strategies:
                changed = {**optimizer.changes, **strategy.changes, "out": str(place / strategy.folder)}
                jobs.append(Job(setting, strategy.label, experiment.replace(**changed), optimizer.label))
    return jobs


class _Item(NamedTuple):
    """One of the compared strategies or optimizers."""

    label: str  # display name
    folder: str  # folder name
    changes: dict[str, Any]  # changes to the experiment


def _items(flag: str, given: Sequence[Any]) -> list[_Item]:
    """Return the items of a flag, given as names with parameters or as objects."""
    field = {"--algos": "algo", "--optimizers": "optimizer"}[flag]
    items: list[_Item] = []
    for one in given:
        if isinstance(one, str):
            name, values = parse_algo(one, flag)
            shown, change = label(name, values), {field: name, f"{field}_args": values}
            folder = shown
        else:
            if not isinstance(one, KINDS[flag]):
                wanted = {"--algos": "strategy", "--optimizers": "optimizer"}[flag]
                raise UserError(
                    f"{flag}: a value of type {type(one).__name__} is no {wanted}; give names, as on the command line, "
                    f"or {wanted} objects of fedjax_sel"
                )
            shown, change = one.name, {field: one, f"{field}_args": {}}
            folder = f"{shown}-{plugins.parameter_digest(one)}"  # unique among equal names
        items.append(_Item(shown, re.sub(r"[^\w.=-]+", "-", folder).strip("-"), change))
    labels = [item.label for item in items]
    named = [item._replace(label=item.folder) if labels.count(item.label) > 1 else item for item in items]
    for item in named:
        first = next(one for one in named if one.folder == item.folder)
        if first is not item:
            raise UserError(f"{flag}: {item.label!r} and {first.label!r} are the same; give it once")
    return named


FAILURES = (NonFiniteUpdateError, DamagedRunError, UserError, MemoryError, jax.errors.JaxRuntimeError)

_T = TypeVar("_T")


class Checked(NamedTuple):
    """A job that can run."""

    job: Job
    problem: Problem
    finished: Result | None  # result of the whole run, if its folder holds it already


class Done(NamedTuple):
    """The outcome of a job."""

    job: Job
    result: Result | None  # None if the job failed; `finished` is False if a signal or a callback ended it
    error: str | None = None
    stopped_by: int | None = None  # signal that stopped all jobs, 0 for an immediate Ctrl-C; None if none did


def check(jobs: Sequence[Job]) -> list[Checked]:
    """Check the configuration, data, strategy and folder of all jobs, without running or writing anything.

    If one strategy needs data on the server, the server keeps the same share in all jobs under equal conditions.
    Otherwise their partitions would differ.
    """
    if any(job.config.run.deterministic for job in jobs):
        devices.be_deterministic()  # before JAX starts
    devices.use_every_core()
    for job in jobs:
        _blame(job, lambda job=job: check_alone(job.experiment))
    # The random strategy first, so that errors that do not depend on the strategy are not blamed on one.
    common = {job.conditions: pose(_with_random(job)) for job in jobs}
    one_seed = [job.experiment.replace(seeds=job.config.run.seeds[:1], seeds_at_once=None, mesh=None) for job in jobs]
    strategies = [_blame(job, lambda one=one: pose(one).strategy) for job, one in zip(jobs, one_seed)]
    # Data sets whose server holds examples already keep this share.
    own = {key for key, one in common.items() if one.dataset.held_by_server and not one.config.data.server_validation}
    shares: dict[str, float] = {}
    for job, strategy in zip(jobs, strategies):
        shares[job.conditions] = max(shares.get(job.conditions, 0.0), server_validation(job.config, strategy))
    ready = []
    for job, strategy in zip(jobs, strategies):
        share = shares[job.conditions]
        if job.conditions not in own and share != server_validation(job.config, common[job.conditions].strategy):
            job = job._replace(experiment=job.experiment.replace(server_validation=share))
            if common[job.conditions].config.data.server_validation != share:
                common[job.conditions] = pose(_with_random(job))
        problem = dataclasses.replace(common[job.conditions], config=job.config, strategy=strategy)
        ready.append((job, problem))
    data = {name: folder.digests(one, one.config.run.seeds) for name, one in common.items()}
    checked = []
    for job, problem in ready:
        path, digests, done = _path(job), data[job.conditions], None
        if job.config.run.resume != "never":
            done = reading.finished_result(path, job.config, lambda _, digests=digests: digests)
            if path.is_dir():
                folder.reject_other_digests(path, folder.made_from(path), digests)
        checked.append(Checked(job, problem, done))
    return checked


def run_all(
    checked: Sequence[Checked],
    say: Callable[[str], None],
    progress: bool = True,
    watching: Callable[[Job], Sequence[Any]] = lambda job: (),
) -> Iterator[Done]:
    """Run the jobs in order, and yield each outcome; a failed job does not stop the others, an interrupted one is last.

    `say` shows a message to the user before each job, and `watching` returns the callbacks of a job's run.
    """
    for number, (job, problem, result) in enumerate(checked, start=1):
        heading = f"run {number} of {len(checked)}: {job.algo}, {job.conditions}"
        try:
            say(heading if result is None else f"{heading} (finished before)")
            for edited in [] if result is None else edited_plugins(_path(job), job.config):
                say(f"{edited}: some or all rounds are from the earlier code; to run it again, remove {_path(job)}")
            if result is None:
                later = [one.job.config.run for one in checked[number:] if one.finished is None]
                further = [run.rounds * len(run.seeds) for run in later]
                result = run_experiment(job.experiment, progress, watching(job), further)
            else:
                result = dataclasses.replace(result, weights=checkpoint.read_weights(_path(job)))
                result = with_this_model(result, problem.model)
        except FAILURES as error:
            yield Done(job, None, str(error))
            continue
        if result.stopped_by and (not result.finished or number < len(checked)):
            yield Done(job, result, stopped_by=result.stopped_by)
            return
        yield Done(job, result)


def _path(job: Job) -> Path:
    assert job.config.run.out is not None, "a job has a folder"
    return Path(job.config.run.out)


def _with_random(job: Job) -> Experiment:
    return job.experiment.replace(algo="random", algo_args=())


def _blame(job: Job, action: Callable[[], _T]) -> _T:
    """Run an action for a job; add the strategy's name to its UserError."""
    try:
        return action()
    except UserError as error:
        message = str(error).removeprefix("--algo: ").removeprefix(f"--algo {job.config.selection.algo}: ")
        raise UserError(f"--algos {job.algo}: {message}") from error
