"""A whole run: from a configuration to a Result, with a folder and a progress bar on the way."""

import dataclasses
import signal
import time
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedjax_sel import callbacks, devices
from fedjax_sel.config import Config
from fedjax_sel.core import plugins
from fedjax_sel.core.folder_lock import FolderLock
from fedjax_sel.devices import hosts
from fedjax_sel.experiment import Experiment, experiment_of
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.experiment.values import VALUE
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint, folder, provenance, reading, records, resume, weights
from fedjax_sel.runs import interruption as interruptions
from fedjax_sel.runs import verdict as verdicts
from fedjax_sel.runs.collector import Collector
from fedjax_sel.runs.interruption import Interruption
from fedjax_sel.runs.progress import Reporter
from fedjax_sel.runs.provenance import Digests
from fedjax_sel.runs.records import Result
from fedjax_sel.runs.writer import Timer, Writer
from fedjax_sel.simulation import facts, layout, memory_budget, run
from fedjax_sel.simulation.layout import Layout
from fedjax_sel.simulation.run import Chunk, State
from fedjax_sel.simulation.state import Records
from fedjax_sel.strategies.protocol import Known

POLL_SECONDS = 0.002


def run_experiment(experiment_or_config: Experiment | Config, progress: bool = False, watching: Any = ()) -> Result:
    """Run an experiment: all its seeds, all its rounds.

    With `config.run.out` the run is written to that folder, chunk by chunk, with a checkpoint now and then: an
    unfinished run of the same configuration there goes on to the same result, and a finished one is read instead of
    repeated. Ctrl-C, SIGTERM and a closed terminal end the run after the chunk that is being computed (a second Ctrl-C
    or SIGTERM at once); what was done until then is on disk and returned. Before the first chunk of the process is
    computed they have their usual effect: nothing can be lost.

    Args:
        experiment_or_config: what to run.
        progress: whether to show a bar: on stderr, or in a notebook's output.
        watching: callbacks, see `fedjax_sel.callbacks`.

    Returns:
        The result; `finished` is False if the run was interrupted before its last round.

    Raises:
        UserError: something in the configuration, the data or the folder that the user can mend.
        NonFiniteUpdateError: an update with NaN or infinity, unless `on_nonfinite` is "skip"; or a step of the server.
        DamagedRunError: the folder holds checkpoints, and none of them is whole.
    """
    experiment, watching = experiment_of(experiment_or_config), callbacks.check(watching)
    config = experiment.config
    with plugins.contained(config.plugins()):
        return _run(experiment, progress, watching)


def _run(experiment: Experiment, progress: bool, watching: tuple[Any, ...]) -> Result:
    begun, config = time.monotonic(), experiment.config
    start_jax(config)
    out = None if config.run.out is None else Path(config.run.out)
    if out is not None and (done := finished(out, experiment)) is not None:
        _reporter(config, begun, progress).say(f"all {done.num_rounds} rounds were run before; read from {out}")
        done = dataclasses.replace(done, weights=weights.read(out))
        callbacks.call(watching, "end", done)
        return done
    problem = pose(experiment)
    with (
        callbacks.told_of_errors(watching),
        _reporter(config, begun, progress) as reporter,
        Interruption(
            progress and hosts.is_first() and not reporter.in_notebook, at_once=config.run.distributed
        ) as interruption,
        FolderLock() as lock,
    ):
        together, messages = _seeds_at_once(problem)
        laid_out = layout.lay_out(problem, together)
        start, writer = _open(out, problem, laid_out, lock, reporter)
        reporter.say(f"devices: {devices.in_words(laid_out.plan.mesh)}")
        for message in (*messages, *start.messages):
            reporter.say(message)
        reporter.goes_on_after(start.rounds)
        resumed = None
        if start.arrays is not None:
            resumed = State(start.rounds, checkpoint.fill(run.shapes_of_state(problem, laid_out), start.arrays))
        programs = run.prepare_groups(problem, laid_out, resumed)
        lengths = facts.floats_per_answer(problem.strategy, problem.model, problem.dataset.num_classes)
        model, source = problem.model, problem.dataset.source
        collector = Collector(config, source, model.num_params, lengths, start.earlier, model.num_carried, problem.task)
        timer = None if out is None else Timer(config.run, start.rounds)
        ending, final, kept = _Ending(), None, None
        view = _view(watching)
        callbacks.call(watching, "start", config, start.rounds)
        if start.earlier is not None:
            ending.wished = hosts.anybody(callbacks.call(watching, "resume", start.earlier))
            if ending.wished or start.rounds == config.run.rounds:  # no round is left, but its last files may be
                final = resumed
        if view is not None:
            kept = _show(watching, start.rounds, run.seen_at_first(programs, view))
        started = time.monotonic()
        chunks = iter(()) if ending.wished else run.chunks(*programs)
        for first, rounds, state, seen in _one_ahead(chunks, config.run.rounds, timer, view, interruption, ending):
            interruption.listen()  # until now there was nothing to lose
            verdict = verdicts.of_chunk(config, first, rounds, problem.optimizers.federated)
            good = len(rounds.cohort) if verdict is None else verdict.good
            chunk = collector.add(jax.tree.map(itemgetter(slice(good)), rounds), time.monotonic() - started)
            if writer is not None:
                writer.chunk(chunk, collector.result)
                if verdict is not None:
                    writer.results(collector.result())
                elif state is not None:
                    at_its_end = ending.wished or first + chunk.num_rounds == config.run.rounds
                    writer.checkpoint(state, collector.result(), at_its_end)
            measured = chunk.measured[chunk.test_measure]
            reporter.chunk(first + chunk.num_rounds, measured, chunk.test_loss, chunk.measure_in_words)
            if verdict is not None:
                raise verdict.error
            try:
                ending.wished |= callbacks.call(watching, "chunk", chunk, first)
            except KeyboardInterrupt:
                interruption.take()
            if seen is not None:
                kept = _show(watching, first + chunk.num_rounds, seen)
            final = state or final
        result = collector.result()
        ended = result.finished or ending.wished
        if final is not None:
            kept = final.carry.params if kept is None else kept
            result = dataclasses.replace(result, weights=kept, model=problem.model)
            if writer is not None and ended:
                writer.end(kept, result)
        on_another_machine = 0 if ended else signal.SIGINT
        result = dataclasses.replace(result, stopped_by=interruption.asked or int(on_another_machine))
        if not result.finished and reporter.in_notebook:  # a command says so itself
            then = "" if out is None else f"; {interruptions.how_to_go_on(config.run, out, 'the same cell')}"
            reporter.say(f"ended after round {result.num_rounds} of {config.run.rounds}{then}")
        callbacks.call(watching, "end", result)
        return result


def _view(watching: tuple[Any, ...]) -> run.View | None:
    """Return what callbacks see of the devices' state: what the strategy knows, and weights; None where none asks."""
    inside, weights = callbacks.wanted(watching, "snapshot"), callbacks.wanted(watching, "weights")
    if not inside and not weights:
        return None
    return lambda carry: (Known(carry.strategy, carry.info) if inside else None, carry.params if weights else None)


def _show(watching: tuple[Any, ...], rounds: int, seen: tuple[Known | None, Weights | None]) -> Weights | None:
    """Show callbacks what they ask to see, and return the weights that the run keeps if it ends here; None: its own."""
    known, weights = seen
    if known is not None:
        callbacks.call(watching, "snapshot", rounds, known)
    return None if weights is None else callbacks.kept(watching, rounds, weights)


def _reporter(config: Config, begun: float, shown: bool) -> Reporter:
    run = config.run
    about = config.selection.algo.removeprefix(VALUE)
    return Reporter(run.rounds, len(run.seeds), begun, shown and hosts.is_first(), about)


class _Ending:
    """Whether a callback wants the run to end."""

    wished = False


def start_jax(config: Config) -> None:
    """Say to JAX what must be said before it starts its devices.

    Raises:
        UserError: it has started them in a way that does not go with the configuration, or there are no others to join.
    """
    if config.run.deterministic:
        devices.be_deterministic()
    if config.run.distributed:
        hosts.start()
    devices.use_every_core()
    if config.run.deterministic:
        devices.check_that_jax_starts()
        devices.check_deterministic()


def finished(out: Path, experiment_or_config: Experiment | Config, data: Digests | None = None) -> Result | None:
    """Return the result of a finished run in a folder; see `reading.finished_result`. The same on every machine.

    Args:
        out: the folder.
        experiment_or_config: what is to be run.
        data: digests of the data that are given now, if they are known; else they are read where that is needed.
    """
    experiment = experiment_of(experiment_or_config)
    config = experiment.config
    if config.run.resume == "never":
        return None

    def look() -> dict | None:
        done = reading.finished_result(out, config, lambda share: data or provenance.of_experiment(experiment, share))
        if done is None:
            return None
        folder.restore_config(out)
        weights.restore(out)
        return records.to_plain(done)

    plain = hosts.on_first(look)
    return None if plain is None else records.from_plain(plain)


def _open(
    out: Path | None, problem: Problem, laid_out: Layout, lock: FolderLock, reporter: Reporter
) -> tuple[resume.Start, Writer | None]:
    """Return where the run starts, and who writes it; the first machine writes for all."""
    if out is None:
        return resume.Start([]), None
    ours = resume.about(problem, laid_out)
    state = run.shapes_of_state(problem, laid_out)
    plain = hosts.on_first(lambda: resume.to_plain(resume.open_run(out, problem, ours, state, lock)))
    start = resume.from_plain(plain)
    if not hosts.is_first():
        return start, None
    return start, Writer(out, problem.config.run, ours, start.rounds, lock, reporter.say)


def _seeds_at_once(problem: Problem) -> tuple[int, list[str]]:
    """Return how many seeds run together, as configured or as many as the devices' memory holds, and messages."""
    if problem.config.run.seeds_at_once is not None:
        return problem.config.run.seeds_at_once, []
    together, needed, everything = memory_budget.seeds_that_fit(problem)
    if together < len(problem.config.run.seeds):
        seeds = f"{len(problem.config.run.seeds)} seeds would need about {everything / 1e9:.1f} GB of each device"
        return together, [f"{seeds}: they take turns, {together} at once ({needed / 1e9:.1f} GB)"]
    return together, []


class _Done(NamedTuple):
    """A chunk in host memory."""

    first: int  # rounds before it
    records: Records
    state: State | None  # after it, if it is to be saved
    seen: Any  # of the state after it, if a callback wants to


def _one_ahead(
    chunks: Iterator[Chunk],
    num_rounds: int,
    timer: Timer | None,
    view: run.View | None,
    interruption: Interruption,
    ending: _Ending,
) -> Iterator[_Done]:
    """Fetch each chunk while the device already computes the next.

    A chunk is fetched before the state after the next one is copied: a CPU begins the copy when that one is computed,
    and the chunk's time would be that of both.
    """
    waiting = None
    for chunk in chunks:
        if waiting is not None:
            yield _fetch(*waiting)
        rounds = chunk.first + len(chunk.records.cohort)
        # All machines must agree, since all of them take part in fetching a state and in the next chunk.
        ending.wished = hosts.anybody(ending.wished)
        last = hosts.anybody(interruption.asked > 0) or ending.wished
        state = None
        if last or rounds == num_rounds or (timer is not None and hosts.anybody(timer.due(rounds))):
            state = chunk.copy_state()
            if timer is not None:
                timer.saved(rounds)
        waiting = (chunk, state, chunk.copy(view) if view else None)
        if last:
            break
    if waiting is not None:
        yield _fetch(*waiting)


def _fetch(chunk: Chunk, state: State | None, seen: Any) -> _Done:
    # Polling leaves the interpreter free to take signals, which waiting inside JAX would not.
    while not chunk.records.cohort.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(POLL_SECONDS)
    if state is not None:
        state = state._replace(carry=devices.fetch(state.carry))
    return _Done(chunk.first, jax.device_get(chunk.records), state, None if seen is None else devices.fetch(seen))
