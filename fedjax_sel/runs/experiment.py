"""Execution of an experiment in a run folder, with its files written after every chunk."""

import contextlib
import dataclasses
import hashlib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel import callbacks, devices, tasks
from fedjax_sel.config import Config, RunConfig
from fedjax_sel.core import files
from fedjax_sel.core.files import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment, experiment_of
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint, faults, folder, reading, resume, run_files
from fedjax_sel.runs.run_files import Manifest, Result
from fedjax_sel.runs.terminal import Interruption, Reporter, resume_advice
from fedjax_sel.simulation import layout, ledger, run, seed_groups
from fedjax_sel.simulation.layout import Layout
from fedjax_sel.simulation.ledger import Ledger, settle
from fedjax_sel.simulation.run import Chunk, State
from fedjax_sel.simulation.state import Records
from fedjax_sel.strategies.from_numpy import own_errors


class Writer:
    """Writes to a run folder that this process has locked.

    Before each write the lock is checked, because a second run may have replaced the folder by another one.
    """

    def __init__(
        self, out: Path, run: RunConfig, about: Manifest, rounds: int, lock: FolderLock, say: Callable[[str], None]
    ):
        """Create the writer of a run with `rounds` completed rounds, whose rows and no others are in the folder."""
        self._out, self._run, self._about, self._rounds = out, run, about, rounds
        self._lock, self._say = lock, say
        self._metrics = out / run_files.METRICS
        self._rows = bytearray(self._metrics.read_bytes() if rounds else b"")

    def chunk(self, chunk: Result) -> None:
        """Append the rows of the next rounds."""
        text = run_files.csv_text(chunk, self._rounds, header=not self._rows)
        self._rounds += chunk.num_rounds
        self._write_rows(text.encode())

    def _write_rows(self, more: bytes = b"") -> None:
        """Append rows to `metrics.csv`; rewrite the whole file if another process changed its size."""
        self._lock.check(self._out)
        before = len(self._rows)
        self._rows += more
        with self._writing("metrics"):
            if (self._metrics.stat().st_size if self._metrics.exists() else 0) != before:
                files.write(self._metrics, bytes(self._rows))
                self._say(f"{self._metrics} was removed or changed by another process, and has been rewritten")
            elif more:
                with self._metrics.open("ab") as file:
                    file.write(more)

    def end(self, weights: Weights, result: Result) -> None:
        """Write the final models' weights, leading axis [seeds], and then `result.json`, which completes the run."""
        self._lock.check(self._out)
        content = checkpoint.to_bytes(weights)
        with self._writing("weights"):
            files.write(self._out / run_files.PARAMS, content)
        self._about = {**self._about, checkpoint.DIGEST_KEY: hashlib.sha256(content).hexdigest()}
        self._seal(result)

    def _seal(self, result: Result) -> None:
        self._lock.check(self._out)
        with self._writing(run_files.RESULT):
            checkpoint.sync(self._metrics)
            run_files.write(self._out / run_files.RESULT, {**self._manifest(result), "rounds": result.num_rounds})
            checkpoint.sync(self._out)

    def _manifest(self, result: Result) -> Manifest:
        """Return the manifest of the rows and cohorts in the folder."""
        metrics = {"bytes": len(self._rows), "sha256": hashlib.sha256(self._rows).hexdigest()}
        about = {**self._about, "metrics": metrics, "cohorts": checkpoint.digest_of_array(result.cohorts)}
        spent = result.epsilons
        return about if spent is None else {**about, "epsilons": checkpoint.digest_of_array(spent)}

    def checkpoint(self, state: State | None, result: Result, ends: bool) -> None:
        """Save the cohorts of all rounds, and the state, in host memory; the rows must already be written.

        If `end` follows (`ends`), it writes `result.json`: the run must not count as finished before its weights exist.
        """
        self._write_rows()
        with self._writing("cohorts"):
            folder.write_array(self._out / run_files.COHORTS, result.cohorts)
            if result.epsilons is not None:
                folder.write_array(self._out / run_files.EPSILONS, result.epsilons)
        if state is not None and self._run.keep > 0:
            about = self._manifest(result)
            self._lock.check(self._out)
            with self._writing("a checkpoint", ValueError, RuntimeError):  # orbax raises each of them for a full disk
                checkpoint.sync(self._metrics)
                checkpoint.save(self._out / run_files.CHECKPOINTS, state.rounds, about, state.carry, self._run.keep)
        if not ends:
            self._seal(result)  # last, because it describes the other files

    @contextlib.contextmanager
    def _writing(self, what: str, *kinds: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (OSError, *kinds) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            of_system = re.search(r"([^:]+) \[os_error_code", first)  # at the end of TensorStore's long message
            reason = getattr(error, "strerror", None) or (of_system[1].strip() if of_system else first)
            raise UserError(
                f"--out: cannot write {what} to {self._out} ({reason}); free disk space or fix the permissions: "
                + resume_advice(self._run, self._out, where="the last checkpoint")
            ) from error


class Collector:
    """Gathers the chunks of a run into a Result."""

    def __init__(self, problem: Problem, earlier: Result | None):
        """Create a collector for one process, whose first chunk includes the compilation; `earlier` is prepended."""
        self._problem = problem
        self._parts = [] if earlier is None else [earlier]
        self._before = 0.0 if earlier is None else float(earlier.elapsed_seconds[-1])
        self._compiled = False

    def add(self, records: Records, elapsed_seconds: float) -> Result:
        """Add a chunk of records, [rounds, seeds], and the process's seconds so far; return the chunk's Result."""
        last = self._parts[-1].elapsed_seconds[-1] if self._parts else 0.0
        rounds = records.cohort.shape[0]
        # The host measures whole chunks only, so a chunk's time is spread evenly over its rounds.
        taken = self._before + elapsed_seconds - last
        seconds = last + taken * np.arange(1, rounds + 1) / rounds
        steady = np.full(rounds, taken / max(rounds, 1) if self._compiled else np.nan)
        self._compiled = True
        by_seed = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), records)
        problem, model = self._problem, self._problem.model
        lengths = ledger.floats_per_answer(problem.strategy, model, problem.dataset.num_classes)
        measure = problem.task.measure.name
        own_tests = (name for kind in ("client", "unseen") for name in tasks.client_columns(kind, measure))
        names = (*tasks.names(problem.task), *own_tests, tasks.SECONDS, tasks.STALENESS, *tasks.EPSILONS)
        self._parts.append(
            Result(
                config=problem.config,
                data_source=problem.dataset.source,
                seeds=problem.config.run.seeds,
                cohorts=by_seed.cohort,
                epsilons=by_seed.epsilons,
                ledger=settle(by_seed.events, model.num_params, lengths, model.num_carried),
                elapsed_seconds=seconds,
                round_seconds=steady,
                measured={name: by_seed.measured[name] for name in names if name in by_seed.measured},
                higher_is_better=problem.task.measure.higher_is_better,
            )
        )
        return self._parts[-1]

    def result(self) -> Result:
        """Return all rounds so far as a Result."""
        parts = self._parts

        def joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
            return np.concatenate(list(arrays), axis=-1)

        spent = [part.epsilons for part in parts if part.epsilons is not None]
        whole = dataclasses.replace(
            parts[-1],
            cohorts=np.concatenate([part.cohorts for part in parts], axis=1),
            epsilons=np.concatenate(spent, axis=1) if spent else None,
            ledger=Ledger(*map(joined, zip(*(part.ledger for part in parts)))),
            elapsed_seconds=joined(part.elapsed_seconds for part in parts),
            round_seconds=joined(part.round_seconds for part in parts),
            measured={name: joined(part.measured[name] for part in parts) for name in parts[0].measured},
        )
        self._parts = [whole]
        return whole


POLL_SECONDS = 0.002
SLOW = 1.0  # seconds per chunk from which the host may wait for it: the pause between two chunks is much shorter


def run_experiment(
    experiment_or_config: Experiment | Config, progress: bool = False, watching: Any = (), further: Sequence[int] = ()
) -> Result:
    """Run all seeds and rounds of an experiment.

    Ctrl-C, SIGTERM and a closed terminal end the run after the current chunk; a second Ctrl-C or SIGTERM ends it
    immediately. Before the first chunk is computed, signals keep their usual effect, since no round can be lost.

    Args:
        experiment_or_config: the experiment to run.
        progress: whether to show progress on stderr or in the notebook's output.
        watching: callbacks, see `fedjax_sel.callbacks`.
        further: seed-rounds of each run that follows this one; the time left includes them.

    Returns:
        The result; `finished` is False if the run was interrupted before its last round.
    """
    started, experiment, watching = time.monotonic(), experiment_of(experiment_or_config), callbacks.check(watching)
    config = experiment.config
    with own_errors():
        start_jax(config)
        done = None if config.run.out is None else finished(Path(config.run.out), experiment)
        if done is None:
            return _run(pose(experiment), Reporter(config, started, progress, further), watching)
        out, reporter = Path(str(config.run.out)), Reporter(config, started, progress)
        reporter.say(f"all {done.num_rounds} rounds are finished; result read from {config.run.out}")
        for edited in resume.edited_plugins(out, config):
            reporter.say(f"{edited}: some or all rounds are from the earlier code")
        done = dataclasses.replace(done, weights=checkpoint.read_weights(out))
        callbacks.call(watching, "end", done)
        return done


def _run(problem: Problem, reporter: Reporter, watching: tuple[Any, ...]) -> Result:
    """Run the rounds that a run's folder does not have yet, and return the result of all rounds."""
    with (
        callbacks.report_errors(watching),
        reporter,
        Interruption(reporter.on_stderr, at_once=False) as interruption,
        FolderLock() as lock,
    ):
        together, messages = _seeds_at_once(problem)
        laid_out = layout.lay_out(problem, together)
        start, writer = _open(problem, laid_out, lock, reporter)
        for message in (f"devices: {devices.in_words(laid_out.plan.mesh)}", *messages, *start.messages):
            reporter.say(message)
        reporter.resume_after(start.rounds)
        resumed = None if start.carry is None else State(start.rounds, start.carry)
        process = _Process(problem, writer, reporter, interruption, watching, start.earlier)
        programs = run.prepare_groups(problem, laid_out, resumed)
        process.begin(programs, start.rounds, resumed)
        process.compute(programs)
        return process.end()


class _Process:
    """The rounds of one process: fetches chunks, and hands them to the folder, the user and the callbacks."""

    def __init__(
        self,
        problem: Problem,
        writer: Writer | None,
        reporter: Reporter,
        interruption: Interruption,
        watching: tuple[Any, ...],
        earlier: Result | None,
    ):
        self._problem, self._config, self._earlier = problem, problem.config, earlier
        self._writer, self._reporter, self._interruption, self._watching = writer, reporter, interruption, watching
        self._collector, self._view = Collector(problem, earlier), _view(watching)
        self._final: State | None = None  # the newest state in host memory

    def begin(self, programs: list[Any], rounds: int, resumed: State | None) -> None:
        """Call the callbacks before the first chunk."""
        callbacks.call(self._watching, "start", self._config, rounds)
        if self._earlier is not None:
            self._interruption.ended = callbacks.call(self._watching, "resume", self._earlier)
            if self._interruption.ended or self._earlier.finished:  # no round is left, files may be missing
                self._final = resumed
        if self._view is not None:
            self._call_view_callbacks(rounds, run.seen_at_first(programs, self._view))

    def compute(self, programs: list[Any]) -> None:
        """Compute the remaining chunks, until the last round, a signal, a callback or a fatal error ends them."""
        started = time.monotonic()
        is_over = self._interruption.ended or (self._earlier is not None and self._earlier.finished)
        chunks = iter(()) if is_over else run.chunks(*programs)
        last = _seconds_are_over(self._config, self._earlier)
        for done in _one_ahead(chunks, self._config.run, self._view, self._interruption, last):
            self._interruption.listen()  # from here on, an immediate end would lose rounds
            fault = faults.find(self._config, done.first, done.records, self._problem.optimizers.federated)
            good = done.records if fault is None else jax.tree.map(itemgetter(slice(fault.good)), done.records)
            chunk = self._collector.add(good, time.monotonic() - started)
            self._save(done, chunk, fault is not None)
            measured, rounds = chunk.measured[chunk.test_measure], done.first + chunk.num_rounds
            self._reporter.chunk(rounds, measured, chunk.test_loss, chunk.measure_in_words)
            if fault is not None:
                raise fault.error
            self._call_callbacks(done, chunk)
            self._final = done.state or self._final

    def _save(self, done: "_Done", chunk: Result, faulty: bool) -> None:
        if self._writer is None:
            return
        self._writer.chunk(chunk)
        if faulty:
            self._writer.checkpoint(None, self._collector.result(), False)
        elif done.state is not None:
            result = self._collector.result()
            self._writer.checkpoint(done.state, result, self._interruption.ended or result.finished)

    def _call_callbacks(self, done: "_Done", chunk: Result) -> None:
        try:
            self._interruption.ended |= callbacks.call(self._watching, "chunk", chunk, done.first)
            if done.seen is not None:
                self._call_view_callbacks(done.first + chunk.num_rounds, done.seen)
        except KeyboardInterrupt:
            self._interruption.take()

    def _call_view_callbacks(self, rounds: int, seen: tuple[callbacks.Known | None, Weights | None]) -> None:
        """Call `snapshot` and `weights` of the callbacks."""
        known, weights = seen
        if known is not None:
            callbacks.call(self._watching, "snapshot", rounds, known)
        if weights is not None:
            callbacks.call(self._watching, "weights", rounds, weights)

    def end(self) -> Result:
        """Write the final weights if the run ends here, and return the result of all rounds."""
        result, config, interruption = self._collector.result(), self._config, self._interruption
        ended = result.finished or interruption.ended
        if self._final is not None:
            weights = self._final.carry.params
            result = dataclasses.replace(result, weights=weights, model=self._problem.model)
            if self._writer is not None and ended:
                self._writer.end(weights, result)
        result = dataclasses.replace(result, stopped_by=interruption.asked)
        synchronous = config.timing.concurrency is None  # others have rounds that only dispatch
        if synchronous and result.has_clock and (idle := int((result.measured[tasks.SECONDS] == 0).sum())):
            self._reporter.say(
                f"{idle} of {result.cohorts[..., 0].size} seed-rounds have no client and last 0 simulated seconds, so "
                f"equal seconds are short: check --available and a deadline of {config.selection.algo} itself"
            )
        if not result.finished and self._reporter.in_notebook:  # a command prints this itself
            out = config.run.out
            then = "" if out is None else f"; {resume_advice(config.run, out, 'the same cell')}"
            self._reporter.say(f"stopped after round {result.num_rounds} of {config.run.rounds}{then}")
        callbacks.call(self._watching, "end", result)
        return result


def _view(watching: tuple[Any, ...]) -> run.View | None:
    """Return a function that extracts the state that callbacks need from the carry; None if they need none."""
    inside, weights = callbacks.wanted(watching, "snapshot"), callbacks.wanted(watching, "weights")
    if not inside and not weights:
        return None
    return lambda carry: (
        callbacks.Known(carry.strategy, carry.info) if inside else None,
        carry.params if weights else None,
    )


def start_jax(config: Config) -> None:
    """Set the JAX options that must be set before the devices are initialized."""
    if config.run.deterministic:
        devices.be_deterministic()
    devices.use_every_core()


def finished(out: Path, experiment_or_config: Experiment | Config) -> Result | None:
    """Return the result of a finished run in a folder; see `reading.finished_result`."""
    experiment = experiment_of(experiment_or_config)
    config = experiment.config
    if config.run.resume == "never":
        return None
    done = reading.finished_result(out, config, lambda share: folder.current_digests(experiment, share))
    if done is not None:
        checkpoint.read_weights(out)  # raises UserError if the file is damaged
    return done


def _open(
    problem: Problem, laid_out: Layout, lock: FolderLock, reporter: Reporter
) -> tuple[resume.Start, Writer | None]:
    """Return the run's start and its writer."""
    if problem.config.run.out is None:
        return resume.Start([]), None
    out = Path(problem.config.run.out)
    ours = resume.about(problem, laid_out)
    state = run.shapes_of_state(problem, laid_out)
    start = resume.open_run(out, problem, ours, state, lock)
    return start, Writer(out, problem.config.run, ours, start.rounds, lock, reporter.say)


def _seeds_at_once(problem: Problem) -> tuple[int, list[str]]:
    """Return the number of seeds per program, as configured or as the devices' memory allows, and messages."""
    if problem.config.run.seeds_at_once is not None:
        return problem.config.run.seeds_at_once, []
    together, needed, everything = seed_groups.seeds_that_fit(problem)
    if together == (seeds := len(problem.config.run.seeds)):
        return together, []
    needs = f"{seeds} seeds need about {everything / 1e9:.1f} GB per device"
    return together, [f"{needs}; running {together} at a time ({needed / 1e9:.1f} GB)"]


class _Done(NamedTuple):
    """A chunk in host memory."""

    first: int  # rounds before the chunk
    records: Records
    state: State | None  # state after the chunk, if it is to be saved
    seen: Any  # view of the state after the chunk, if a callback needs it


def _seconds_are_over(config: Config, earlier: Result | None) -> Callable[[Chunk], bool]:
    """Return the function of each next chunk: whether it ends `max_seconds` of all seeds. It waits for the chunk."""
    limit, spent = config.seconds_limit, np.zeros(len(config.run.seeds))
    if limit is not None and earlier is not None:
        spent = earlier.seconds_spent[:, -1]

    def are_over(chunk: Chunk) -> bool:
        nonlocal spent
        if limit is None:
            return False
        _wait(chunk)
        for seconds in jax.device_get(chunk.records.measured[tasks.SECONDS]):  # in the order of `seconds_spent`
            spent = spent + seconds.astype(np.float64)
        return bool((spent >= limit).all())

    return are_over


def _one_ahead(
    chunks: Iterator[Chunk],
    config: RunConfig,
    view: run.View | None,
    interruption: Interruption,
    is_last: Callable[[Chunk], bool] = lambda chunk: False,
) -> Iterator[_Done]:
    """Fetch each chunk while the device computes the next one, up to the last round or the first chunk that `is_last`.

    A state is due for saving by rounds or seconds since the last one, whichever comes first.
    A chunk is fetched before the next chunk's state is copied: on a CPU, the copy waits until that chunk is computed.
    """
    waiting, saved, since, begun = None, None, time.monotonic(), -math.inf  # the first chunk may be slow
    every = math.inf if config.checkpoint_every is None else config.checkpoint_every
    for chunk in chunks:
        if waiting is not None:
            yield _fetch(*waiting)
        saved = chunk.first if saved is None else saved
        rounds = chunk.first + len(chunk.records.cohort)
        was_slow, begun = time.monotonic() - begun > SLOW, time.monotonic()
        if view is not None or was_slow:
            _wait(chunk)  # copies would block signals, and an interruption wait for the next chunk, too
        due = config.keep > 0 and (rounds - saved >= every or time.monotonic() - since >= config.checkpoint_seconds)
        due = rounds == config.rounds or (config.out is not None and due)
        if due:
            _wait(chunk)
        last = interruption.asked > 0 or interruption.ended or is_last(chunk)
        state = None
        if due or last:
            state, saved, since = State(rounds, chunk.copy(lambda carry: carry)), rounds, time.monotonic()
        waiting = (chunk, state, chunk.copy(view) if view else None)
        if last:
            break
    if waiting is not None:
        yield _fetch(*waiting)


def _wait(chunk: Chunk) -> None:
    # Polling lets the interpreter handle signals; a wait inside JAX would block them.
    while not chunk.records.cohort.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(POLL_SECONDS)


def _fetch(chunk: Chunk, state: State | None, seen: Any) -> _Done:
    _wait(chunk)
    if state is not None:
        state = state._replace(carry=jax.device_get(state.carry))
    return _Done(chunk.first, jax.device_get(chunk.records), state, None if seen is None else jax.device_get(seen))
