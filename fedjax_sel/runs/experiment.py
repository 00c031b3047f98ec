"""A whole run: from a configuration to a Result, with a folder and a progress bar on the way."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import jax
import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.errors import NonFiniteUpdateError
from fedjax_sel.runs import folder
from fedjax_sel.runs.progress import Reporter
from fedjax_sel.runs.records import Collector, Result, append_csv
from fedjax_sel.simulation import devices, fitting, information, machines, run
from fedjax_sel.simulation.plan import Records
from fedjax_sel.simulation.problem import Problem, pose

POLL_SECONDS = 0.002
SECONDS_BETWEEN_COHORTS = 5.0  # `cohorts.npy` is written whole


def run_experiment(config: Config, progress: bool = False) -> Result:
    """Runs an experiment: all its seeds, all its rounds.

    With `config.run.out` the run is written to that folder, chunk by chunk; a finished run of the same configuration
    there is read instead of repeated. Ctrl-C ends the run after the chunk that is being computed (a second one at
    once); what was done until then is on disk and returned.

    Args:
        config: what to run.
        progress: whether to show a bar on stderr.

    Returns:
        The result; `finished` is False if the run was interrupted.

    Raises:
        UserError: something in the configuration, the data or the folder that the user can mend.
        NonFiniteUpdateError: an update with NaN or infinity, unless `on_nonfinite` is "skip".
    """
    begun = time.monotonic()
    if config.run.distributed:
        machines.start()
    devices.use_every_core()
    out = None if config.run.out is None else Path(config.run.out)
    if out is not None:
        done = machines.on_first(lambda: folder.finished_result(out, config))
        if done is not None:
            return done
    problem = pose(config)
    with (
        Reporter(config.run.rounds, len(config.run.seeds), begun, progress and machines.is_first()) as reporter,
        _Interruption(reporter) as interrupted,
    ):
        if out is not None:
            moved = machines.on_first(lambda: _open(out, problem))
            if moved is not None:
                reporter.say(f"an unfinished run in {out} was set aside as {moved}")
        own = out if machines.is_first() else None  # the first machine writes for all
        programs = run.prepare_groups(problem, _seeds_at_once(problem, reporter))
        lengths = information.floats_per_answer(problem.strategy, problem.model, problem.dataset.num_classes)
        collector = Collector(config, problem.dataset.source, problem.model.num_params, lengths)
        started = saved = time.monotonic()
        for first, records in _one_ahead(run.chunks(*programs), interrupted):
            problem_found = config.run.on_nonfinite == "stop" and records.nonfinite.any()
            good = int(np.argmax(records.nonfinite.any(axis=(1, 2)))) if problem_found else len(records.gemd)
            chunk = collector.add(jax.tree.map(itemgetter(slice(good)), records), time.monotonic() - started)
            if own is not None:
                append_csv(own / "metrics.csv", chunk, first)
                if problem_found or time.monotonic() - saved > SECONDS_BETWEEN_COHORTS:
                    folder.write_cohorts(own, collector.result().cohorts)
                    saved = time.monotonic()
            reporter.chunk(first + chunk.num_rounds, chunk.test_accuracy, chunk.test_loss)
            if problem_found:
                raise NonFiniteUpdateError(_describe(config, first, records))
        result = collector.result()
        if own is not None:
            folder.write_cohorts(own, result.cohorts)
    return result


def _open(out: Path, problem: Problem) -> Path | None:
    """Makes the folder and writes what is known before the first round; where an unfinished run in it went."""
    config = problem.config
    moved = folder.create(out, config)
    folder.write_data(out, problem.dataset, config.run.seeds, problem.partitions)
    folder.write_environment(out)
    return moved


def _seeds_at_once(problem: Problem, reporter: Reporter) -> int:
    """What the configuration says, or as many as the devices' memory holds."""
    if problem.config.run.seeds_at_once is not None:
        return problem.config.run.seeds_at_once
    together, needed, everything = fitting.seeds_that_fit(problem)
    if together < len(problem.config.run.seeds):
        reporter.say(
            f"{len(problem.config.run.seeds)} seeds would need about {everything / 1e9:.1f} GB of each device: "
            f"they take turns, {together} at once ({needed / 1e9:.1f} GB)"
        )
    return together


def _one_ahead(chunks: Iterator[tuple[int, Records]], interrupted: "_Interruption") -> Iterator[tuple[int, Records]]:
    """Fetches each chunk while the device already computes the next."""
    waiting = None
    for first, records in chunks:
        if waiting is not None:
            yield _fetch(*waiting)
        waiting = (first, records)
        if machines.anybody(interrupted.asked):
            break
    if waiting is not None:
        yield _fetch(*waiting)


def _fetch(first: int, records: Records) -> tuple[int, Records]:
    # Polling leaves the interpreter free to take signals, which waiting inside JAX would not.
    while not records.gemd.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(POLL_SECONDS)
    return first, jax.device_get(records)


def _describe(config: Config, first: int, records: Records) -> str:
    rounds, seeds, places = np.nonzero(records.nonfinite)
    round, seed = rounds[0], seeds[0]
    same = (rounds == round) & (seeds == seed)
    clients = ", ".join(str(records.cohort[round, seed, place]) for place in places[same])
    return (
        f"round {first + round + 1}, seed {config.run.seeds[seed]}: the update of client {clients} is not finite "
        f"(algo {config.selection.algo}, learning rate {config.training.learning_rate:g}); lower --learning-rate, or "
        "leave such updates out with --on-nonfinite skip"
    )


class _Interruption(contextlib.AbstractContextManager):
    """Turns the first Ctrl-C into a wish to stop; the second one interrupts at once."""

    def __init__(self, reporter: Reporter):
        self.asked = False
        self._reporter = reporter
        self._previous = None

    def __enter__(self) -> "_Interruption":
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._reporter.say("stopping after the rounds that are being computed; Ctrl-C again stops at once")
