"""A complete comparison: its runs, its tables and plots, and the returned `ComparisonResult`."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedjax_sel import callbacks, logs
from fedjax_sel.config import Config
from fedjax_sel.core import files
from fedjax_sel.core.files import FolderLock
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment, experiment_of
from fedjax_sel.papers import preset
from fedjax_sel.reporting import comparison, plots, sweeps
from fedjax_sel.reporting.comparison import Pair, Row
from fedjax_sel.runs import folder, run_files, sweep
from fedjax_sel.runs.resume import edited_plugins
from fedjax_sel.runs.run_files import Result
from fedjax_sel.runs.sweep import Job, make_jobs

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]

TABLE, PAIRS, PAGE = "comparison", "comparison_pairs", "comparison.md"


@dataclasses.dataclass(frozen=True)
class ComparisonResult:
    """The results of a comparison, with the same tables as the CSV files in its folder.

    Attributes:
        out: the folder.
        planned: number of planned runs.
        rows: table rows of the runs that reached their last round or were ended by a callback.
        results: results in the order of the rows.
        pairs: each strategy against the baseline under the same conditions.
        titles: descriptions by conditions, with the origin of the data.
        failed: name and error of each failed run.
        stopped: whether a signal stopped it before its last run; the same call resumes it.
        stopped_by: the number of that signal; 0 after an immediate Ctrl-C.
        edited: a sentence per run and plug-in with rounds of earlier code.
    """

    out: Path
    planned: int
    rows: tuple[Row, ...] = ()
    results: tuple[Result, ...] = ()
    pairs: tuple[Pair, ...] = ()
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failed: tuple[str, ...] = ()
    stopped: bool = False
    stopped_by: int = 0
    edited: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether all runs ended without failure."""
        return len(self.rows) == self.planned

    @property
    def tables(self) -> "dict[str, pandas.DataFrame]":
        """The pandas DataFrames `comparison`, with one row per run, and `comparison_pairs`."""
        return {name: files.parse_csv(text) for name, text in self.as_csv().items()}

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table of `comparison.csv`, one row per run."""
        return self.tables[TABLE]

    def result(self, algo: str, setting: str | None = None, optimizer: str = "") -> Result:
        """Return a run's result.

        Args:
            algo: the strategy's name in the table.
            setting: the setting's name; None for the first match.
            optimizer: the optimizer's name in the table; empty if only one is compared.

        Raises:
            UserError: there is no such run, or it is not finished.
        """
        for row, result in zip(self.rows, self.results):
            if row.algo == algo and row.optimizer == optimizer and setting in (None, row.setting):
                return result
        finished = ", ".join(f"{row.algo} in {row.conditions}" for row in self.rows) or "none"
        raise UserError(f"result: no finished run of {algo!r}; finished runs: {finished}")

    def as_csv(self) -> dict[str, str]:
        """Return the CSV tables as text, by file name without suffix."""
        return {TABLE: comparison.as_csv(self.rows), PAIRS: comparison.pairs_as_csv(self.pairs)}

    def as_markdown(self) -> str:
        """Return the Markdown tables, each followed by its paired differences."""
        return comparison.tables(self.rows, self.titles, comparison.by_conditions(self.pairs))


def run(
    jobs: Sequence[Job],
    out: Path,
    command: str,
    say: Callable[[str], None],
    progress: bool = True,
    watching: Sequence[Any] = (),
    log: str | Sequence[str] = (),
    look: plots.Look = plots.SCREEN,
    grid: sweeps.Grid = MappingProxyType({}),
) -> ComparisonResult:
    """Check the jobs, run them in order, and write tables and plots; the tables are updated after each run.

    `command` is shown on the page, and `say` shows a message to the user. `watching` are the callbacks of all runs, and
    `log` names the loggers of each. `look` is that of the plots. The settings of a `grid` also get a sweep's table.
    """
    logs.make(log, out)  # fails before the first run if a package is missing

    def callbacks_of(job: Job) -> Sequence[Any]:
        return [*watching, *logs.make(log, Path(str(job.config.run.out)))]

    with FolderLock() as lock:
        checked = sweep.check(jobs)
        folder.make(out)
        if any(one.finished is None for one in checked):
            sizes = Counter(job.conditions for job in jobs)
            few = {comparison.too_few(len(job.config.run.seeds)) for job in jobs if sizes[job.conditions] > 1}
            for text in sorted(few - {""}):
                say(f"{text}; --seeds {comparison.RECOMMENDED_SEEDS} is a good start")
        lock.take(out)  # two comparisons in one folder would overwrite each other's tables
        found = ComparisonResult(out, len(jobs))
        try:
            for done in sweep.run_all(checked, say, progress, callbacks_of):
                found = _with(found, done, say)
                if done.result is not None:
                    picture = Path(str(done.job.config.run.out)) / run_files.CURVES
                    plots.curves_if_lost({done.job.algo: done.result}, picture)
                differences = comparison.by_conditions(found.pairs)  # after each run, so that they can be read early
                made = found.rows, found.titles, found.failed
                page = comparison.document(*made, len(jobs), command, differences, found.edited)
                if grid and found.rows:
                    page += f"\n{sweeps.as_markdown(found.rows, grid)}\n"
                with run_files.writing(out):
                    files.write(out / PAGE, page.encode())
                    for name, text in found.as_csv().items():
                        files.write(out / f"{name}.csv", text.encode())
        except KeyboardInterrupt:
            return dataclasses.replace(found, stopped=True)
        if found.rows and not found.stopped:
            plots.draw_comparison(found.rows, found.results, out, look)
            if grid:
                sweeps.draw(found.rows, out, look)
        return found


def compare(
    algos: Any,
    settings: Any,
    out: str | Path,
    optimizers: Any,
    watching: Any,
    log: str | Sequence[str],
    progress: bool,
    grid: sweeps.Grid = MappingProxyType({}),
) -> ComparisonResult:
    """Run a comparison from Python; see `fedjax_sel.run_comparison` and `fedjax_sel.sweep`."""
    chosen, named = _several("algos", algos, (str, sweep.KINDS["--algos"])), _named(settings, (Config, Experiment))
    servers = None if optimizers is None else _several("optimizers", optimizers, (str, sweep.KINDS["--optimizers"]))
    folder = Path(out).expanduser()
    if not chosen or not named:
        raise UserError(f"{'settings' if chosen else 'algos'}: the list is empty; give at least one")
    watching = callbacks.check(watching)
    experiments = {name: experiment_of(one) for name, one in named.items()}
    jobs = make_jobs(experiments, chosen, folder, len(named) > 1, servers)
    sweeps.reject_ineffective(grid, (job.config for job in jobs))
    names = list(dict.fromkeys(job.algo for job in jobs))
    command = f"fedjax_sel.{'sweep' if grid else 'run_comparison'}({names!r}, ..., out={str(out)!r})"

    def say(line: str) -> None:
        if progress:
            print(line, file=sys.stderr, flush=True)

    return run(jobs, folder, command, say, progress, watching, log, grid=grid)


def _several(field: str, given: Any, kind: tuple[type, ...]) -> list[Any]:
    """Return a list from one item or a sequence of items."""
    if isinstance(given, kind):  # checked first, because a strategy is a tuple
        return [given]
    if not isinstance(given, Sequence):
        raise UserError(f"{field}: {shown(given)} is not a list; give names, or objects of fedjax_sel")
    return list(given)


def _named(settings: Any, kind: tuple[type, ...]) -> dict[str, Any]:
    """Return settings by name; a single one is named "setting"."""
    if isinstance(settings, kind):
        return {"setting": settings}
    if isinstance(settings, Mapping):
        for name, one in settings.items():
            if not isinstance(name, str) or not isinstance(one, kind):
                raise UserError(f"settings: {shown(name)}: {shown(one)} is not a configuration; map names to Configs")
        return dict(settings)
    presets = _several("settings", settings, (str,))
    for one in presets:
        if not isinstance(one, str):
            raise UserError(
                f"settings: a value of type {type(one).__name__} is not the name of a preset; give configurations and "
                'experiments by name, as in {"mine": config}'
            )
    return {name: preset(name) for name in presets}


def _with(found: ComparisonResult, done: sweep.Done, say: Callable[[str], None]) -> ComparisonResult:
    job, result = done.job, done.result
    if result is None:
        say(f"failed: {done.error}")
        return dataclasses.replace(found, failed=(*found.failed, f"{job.algo}, {job.conditions}: {done.error}"))
    if done.stopped_by is not None:
        found = dataclasses.replace(found, stopped=True, stopped_by=done.stopped_by)
    if done.stopped_by is not None and not result.finished:
        return found
    row = comparison.row(job.setting, job.algo, result, optimizer=job.optimizer)
    old_code = edited_plugins(Path(str(job.config.run.out)), job.config)
    edited = [f"{job.algo}, {job.conditions}: {sentence}" for sentence in old_code]
    results = (*found.results, result)
    rows = tuple(comparison.with_equal_seconds((*found.rows, row), results))
    titles = {**found.titles, job.conditions: plots.title(result.config, result.data_source)}
    pairs = tuple(comparison.pairs(rows, results))
    return dataclasses.replace(
        found, rows=rows, results=results, titles=titles, pairs=pairs, edited=(*found.edited, *edited)
    )
