"""Callbacks that a run calls on the host between chunks of rounds, for logging, inspection and early stopping."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fedjax_sel.core import files
from fedjax_sel.core.parsing import one_of, shown
from fedjax_sel.errors import UserError

BEST_WEIGHTS = "best.npz"


class Known(NamedTuple):
    """The server's knowledge between two rounds; leaves [seeds, ...] in host memory."""

    state: Any  # the strategy's state
    info: Any  # the bought facts, e.g. `info.profile.value`


class Callback(Protocol):
    """The methods of a callback, all of them optional.

    A run gives the same bits with and without callbacks. An exception from a callback ends the run. The device is one
    chunk ahead: when `chunk` is called, the device already computes the next chunk.
    """

    def start(self, config: Any, rounds: int) -> None:
        """Prepare for a run, before its first chunk; `rounds` is the number of completed rounds, 0 for a new run."""

    def resume(self, earlier: Any) -> bool | None:
        """Process the earlier rounds of a resumed run, a `Result`; called after `start`.

        Return a true value to end the run there.
        """

    def chunk(self, rounds: Any, first: int) -> bool | None:
        """Process the records of a chunk, a `Result`, when they are fetched; `first` is the number of rounds before it.

        Return a true value to end the run after the chunk that is being computed. As after Ctrl-C, it can be resumed.
        """

    def snapshot(self, rounds: int, known: Known) -> None:
        """Process the strategy's state and information; called before the first chunk and after each one.

        If a callback has this method, they are copied from the devices for each call.

        Args:
            rounds: number of completed rounds.
            known: the strategy's state and its facts.
        """

    def weights(self, rounds: int, weights: Any) -> Any:
        """Process the models' weights, [seeds, ...] in host memory, before the first chunk and after each `chunk`.

        If a callback has this method, they are copied from the devices for each call.

        Returns:
            Weights for the result and the run's folder if the run ends here; None to keep the run's own.
        """

    def end(self, result: Any) -> None:
        """Process the run's result, finished or not."""

    def fail(self, error: BaseException) -> None:
        """Release resources after an error that ended the run, perhaps before its start; `end` is not called.

        Exceptions from this method are ignored.
        """


METHODS = ("start", "resume", "chunk", "snapshot", "end", "fail", "weights")


def check(callbacks: Any) -> tuple[Any, ...]:
    """Return callbacks as a tuple; reject classes, and values with none of the methods."""
    found = tuple(callbacks) if isinstance(callbacks, list | tuple) else (callbacks,)
    for callback in found:
        if isinstance(callback, type):
            raise UserError(f"callbacks: {callback.__name__} is a class; give an instance, {callback.__name__}(...)")
        if not any(callable(getattr(callback, name, None)) for name in METHODS):
            raise UserError(
                f"callbacks: a value of type {type(callback).__name__} has none of the methods {', '.join(METHODS)}; "
                "add one, or omit the value"
            )
    return found


def call(callbacks: tuple[Any, ...], method: str, *arguments: Any) -> bool:
    """Call a method of all callbacks that have it, and return whether any of them ends the run."""
    having = [callback for callback in callbacks if hasattr(callback, method)]
    # Lists, not generators: `any` would stop at the first true value and skip the remaining callbacks.
    answers = [(callback, getattr(callback, method)(*arguments)) for callback in having]
    ends = method in ("resume", "chunk")
    return ends and any([_is_true(callback, method, answer) for callback, answer in answers])


def kept(callbacks: tuple[Any, ...], rounds: int, weights: Any) -> Any:
    """Call `weights` of all callbacks that have it, and return the last replacement; None without one."""
    answers = [(one, one.weights(rounds, weights)) for one in callbacks if hasattr(one, "weights")]
    chosen = None
    for callback, answer in answers:
        if answer is not None and jax.tree.structure(answer) != jax.tree.structure(weights):
            raise UserError(
                f"callbacks: {type(callback).__name__}.weights returns a value of type {type(answer).__name__}, whose "
                "structure differs from the weights; return weights of the same structure, or None"
            )
        chosen = chosen if answer is None else answer
    return chosen


def _is_true(callback: Any, method: str, answer: Any) -> bool:
    try:
        return bool(answer)
    except Exception as error:  # e.g. an array of several values
        raise UserError(
            f"callbacks: {type(callback).__name__}.{method} returns a value of type {type(answer).__name__}, which is "
            "neither true nor false; return True to end the run, else None"
        ) from error


@contextlib.contextmanager
def report_errors(callbacks: tuple[Any, ...]) -> Iterator[None]:
    """Call `fail` of all callbacks with an error that leaves the block."""
    try:
        yield
    except BaseException as error:
        for callback in callbacks:
            with contextlib.suppress(Exception):
                call((callback,), "fail", error)
        raise


def wanted(callbacks: tuple[Any, ...], method: str) -> bool:
    """Return whether any of the callbacks has a method."""
    return any(hasattr(callback, method) for callback in callbacks)


class Snapshots:
    """A record of the strategy's state and information before the first round and after each chunk.

    `chunk=1` gives a snapshot per round. A finished run that is read from its folder gives no snapshots, and a resumed
    run gives only those from its resumption on.

    Attributes:
        rounds: number of completed rounds at each snapshot, ascending.
        states: the strategy's state at each snapshot, leading axis [seeds].
        facts: the acquired information at each snapshot, leading axis [seeds]; e.g. `facts[-1].profile.value` is
            [seeds, N, Q].
    """

    def __init__(self, every: int = 1):
        """Create the callback; `every` is the minimum number of rounds between two snapshots, at chunk ends."""
        self._every = every
        self.start()

    def start(self, config: Any = None, rounds: int = 0) -> None:
        """Clear the snapshots of an earlier run."""
        del config, rounds
        self.rounds: list[int] = []
        self.states: list[Any] = []
        self.facts: list[Any] = []

    def snapshot(self, rounds: int, known: Known) -> None:
        """Append a snapshot if the last one is at least `every` rounds old."""
        if not self.rounds or rounds - self.rounds[-1] >= self._every:
            self.rounds.append(rounds)
            self.states.append(known.state)
            self.facts.append(known.info)


class StopAtTarget:
    """A callback that ends a run when each seed's test measure has reached a target."""

    def __init__(self, target: float):
        """Create the callback for a target value."""
        self._target = target
        self._reached: np.ndarray | None = None

    def start(self, config: Any, rounds: int) -> None:
        """Reset the seeds that have reached the target, a target accuracy being in (0, 1]."""
        del rounds
        if config.flat()["task"] == "classification" and not 0 < self._target <= 1:
            raise UserError(f"StopAtTarget: {shown(self._target)} is not in (0, 1]; give an accuracy such as 0.62")
        self._reached = None

    def resume(self, earlier: Any) -> bool:
        """Record the seeds that reached the target before the resumption; return whether all have."""
        return self.chunk(earlier, 0)

    def chunk(self, rounds: Any, first: int) -> bool:
        """Return whether all seeds have reached the target."""
        del first
        now = ~np.isnan(rounds.rounds_to_target(self._target))
        self._reached = reached = now if self._reached is None else self._reached | now
        return bool(reached.all())


class EarlyStopping:
    """A callback that ends a run when no seed's measure improves any more, and can keep each seed's best weights.

    Each seed is treated as if it ran alone. A seed is done at the first measured round that is at least `patience`
    rounds after its best round. Later rounds of a seed that is done are ignored. The run ends when all seeds are done.

    Weights are available only at the ends of chunks. The best weights are therefore those after the chunk whose last
    round has the best measure; `chunk=1` with `eval_every=1` compares all rounds. A run with a folder also writes them
    to `best.npz` whenever they change, so that they survive a killed process.

    Attributes:
        best: each seed's best measure, float [seeds]; NaN without a measurement.
        best_rounds: the round of each seed's best measure, from 1, int [seeds].
        kept_rounds: the round of each seed's kept weights, int [seeds]; empty without `restore_best`.
    """

    def __init__(
        self,
        patience: int,
        min_delta: float = 0.0,
        measure: str | None = None,
        higher_is_better: bool | None = None,
        restore_best: bool = False,
    ):
        """Create the callback.

        Args:
            patience: rounds to wait for an improvement, at least 1.
            min_delta: minimum difference from the best value, exclusive, at least 0.
            measure: a column of `Result.measured`, such as "test_loss"; None for the task's test measure.
            higher_is_better: whether larger values of the measure are better; None for False with losses, `gemd`
                and Gini indices, True with Jain indices, and else the task's direction.
            restore_best: whether the result and the folder get each seed's best weights instead of the last ones.
                Checkpoints always have the last ones, so that the run can be resumed.
        """
        if isinstance(patience, bool) or not isinstance(patience, int | np.integer) or patience < 1:
            raise UserError(f"patience: {shown(patience)} is not a positive integer; give a number of rounds")
        if not isinstance(min_delta, int | float | np.number) or not 0 <= min_delta < np.inf:
            raise UserError(f"min_delta: {shown(min_delta)} is not a nonnegative finite number; give a difference")
        self._patience, self._min_delta = int(patience), float(min_delta)
        self._measure, self._higher_is_better = measure, higher_is_better
        if restore_best:
            self.weights = self._keep  # a run copies weights for callbacks that have this method
        self.start()

    def start(self, config: Any = None, rounds: int = 0) -> None:
        """Reset the callback for a new run, which must evaluate the measure."""
        self.best, self.best_rounds, self.kept_rounds = np.zeros(0), np.zeros(0, int), np.zeros(0, int)
        self._done = self._newest = np.zeros(0)  # each seed's final round, infinite while it runs; its newest measure
        self._kept: Any = None
        self._kept_values, self._file = np.zeros(0), None
        if config is None:
            return
        if str(self._measure).startswith(("train_", "worst_", "gini_", "jain_")) and not config.run.train_metrics_every:
            raise UserError(
                f"measure: {self._measure} is not measured with train_metrics_every=0; set it to the number of rounds "
                "between evaluations"
            )
        if config.run.out is not None:
            self._file = Path(config.run.out) / BEST_WEIGHTS
            if not rounds:
                self._file.unlink(missing_ok=True)

    def resume(self, earlier: Any) -> bool:
        """Process the rounds before the resumption; return whether all seeds are done."""
        return self.chunk(earlier, 0)

    def chunk(self, rounds: Any, first: int) -> bool:
        """Update each seed's best measure; return whether all seeds are done."""
        self._name = one_of("measure", self._measure or rounds.test_measure, rounds.measured)
        falls = self._name.endswith("_loss") or self._name.startswith("gini_") or self._name == "gemd"
        grows = self._name.startswith("jain_") or (rounds.higher_is_better and not falls)
        self._sign = 1 if (grows if self._higher_is_better is None else self._higher_is_better) else -1
        values = self._sign * np.asarray(rounds.measured[self._name], float)
        if not len(self.best):
            self.best, self.best_rounds = np.full(len(values), np.nan), np.zeros(len(values), int)
            self._done = np.full(len(values), np.inf)
        best = self._sign * self.best
        for round, now in enumerate(values.T, start=first + 1):
            waiting = np.isinf(self._done) & ~np.isnan(now)
            better = waiting & (np.isnan(best) | (now > best + self._min_delta))
            best, self.best_rounds = np.where(better, now, best), np.where(better, round, self.best_rounds)
            self._done[waiting & (round - self.best_rounds >= self._patience)] = round
        self.best, self._newest = self._sign * best, values[:, -1]
        return bool(np.isfinite(self._done).all())

    def _keep(self, rounds: int, weights: Any) -> Any:
        """Update the kept weights of each seed that improved, and return all kept weights."""
        if self._kept is None:
            seeds = len(jax.tree.leaves(weights)[0])
            self._kept, self._kept_values, self.kept_rounds = weights, np.full(seeds, -np.inf), np.zeros(seeds, int)
            self._read()
        if not len(self._newest):
            return None  # before the first round
        better = (self._newest > self._kept_values) & (rounds <= self._done)
        new = better | (self.kept_rounds == 0)

        def chosen(leaf: Any, kept: Any) -> np.ndarray:
            return np.where(new.reshape(-1, *(1,) * (np.ndim(leaf) - 1)), leaf, kept)

        self._kept = jax.tree.map(chosen, weights, self._kept)
        if better.any():
            self._kept_values = np.where(better, self._newest, self._kept_values)
            self.kept_rounds = np.where(better, rounds, self.kept_rounds)
            self._write()
        return self._kept

    def _write(self) -> None:
        if self._file is None:
            return
        about = {"measure": np.array(self._name), "values": self._kept_values, "rounds": self.kept_rounds}
        content = io.BytesIO()
        np.savez(content, **about, **{f"leaf_{place}": leaf for place, leaf in enumerate(jax.tree.leaves(self._kept))})
        try:
            files.write(self._file, content.getvalue())
        except OSError as error:
            why = f"cannot write {self._file} ({error.strerror or error})"
            raise UserError(f"--out: {why}; free disk space, or omit restore_best") from error

    def _read(self) -> None:
        """Load the kept weights of a killed process; ignore weights kept for another measure."""
        if self._file is None or not self._file.exists() or not len(self._newest):
            return
        try:
            found = files.read_arrays(self._file)
            if str(found["measure"]) != self._name:
                return
            leaves, structure = jax.tree.flatten(self._kept)
            kept = [found[f"leaf_{place}"] for place in range(len(leaves))]
            if [leaf.shape for leaf in kept] != [leaf.shape for leaf in leaves]:
                raise ValueError("it belongs to a different model")
            self._kept_values, self.kept_rounds = found["values"], found["rounds"]
        except Exception as error:  # a damaged archive raises many types of errors
            raise UserError(
                f"{self._file}: cannot read the best weights ({error}); remove the file to keep only the best weights "
                "from now on"
            ) from error
        self._kept = jax.tree.unflatten(structure, kept)


def __getattr__(name: str) -> Any:
    """Return TensorBoard, WandB, MLflow or Trackio from `fedjax_sel.logs`, which is imported lazily."""
    from fedjax_sel import logs

    classes = {kind.__name__: kind for kind in logs.NAMES.values()}
    if name in classes:
        return classes[name]
    raise AttributeError(f"module 'fedjax_sel.callbacks' has no attribute {name!r}")
