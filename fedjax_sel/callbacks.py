"""What a run calls between its chunks of rounds, on the host: to watch it, to log it, to end it."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from fedjax_sel.core import files, whole_files
from fedjax_sel.core.names import one_of, shown
from fedjax_sel.errors import UserError

BEST_WEIGHTS = "best.npz"


class Callback(Protocol):
    """Any of these methods; a run is the same to the bit with and without. What one raises ends the run.

    The device is one chunk ahead: when `chunk` is called, the next one is being computed.
    """

    def start(self, config: Any, rounds: int) -> None:
        """Prepare for a run; called before its first chunk.

        Args:
            config: of the run.
            rounds: that it has behind it, where it goes on.
        """

    def resume(self, earlier: Any) -> bool | None:
        """Take the rounds that a run has behind it, a `Result`; called after `start` where it goes on.

        Returns:
            True, or what is true, to end it there.
        """

    def chunk(self, rounds: Any, first: int) -> bool | None:
        """Take the records of a chunk; called when they are in.

        Args:
            rounds: the chunk as a `Result`.
            first: rounds before it.

        Returns:
            True, or what is true, to end the run after the rounds that are being computed, as Ctrl-C would: it can go
            on.
        """

    def snapshot(self, rounds: int, known: Any) -> None:
        """Take what the strategy knows; called before the first chunk and after each one.

        Where a callback has this method, it is copied from the devices for each call.

        Args:
            rounds: that were run.
            known: in host memory, leading axis [seeds]: `known.state` is the strategy's state, and `known.info` the
                facts that it bought, `known.info.profile.value` for example.
        """

    def weights(self, rounds: int, weights: Any) -> Any:
        """Take the models' weights; called before the first chunk and after each one, after `chunk`.

        Where a callback has this method, they are copied from the devices for each call.

        Args:
            rounds: that were run.
            weights: in host memory, leading axis [seeds].

        Returns:
            Weights that take their place in the result and in the run's folder if the run ends here; None: no others.
        """

    def end(self, result: Any) -> None:
        """Take the run's result, finished or not."""

    def fail(self, error: BaseException) -> None:
        """Let go of what is held: an error ended the run, perhaps before it began, and `end` is not called.

        What this raises is not heard.
        """


METHODS = ("start", "resume", "chunk", "snapshot", "end", "fail", "weights")
_ASKED = ("resume", "chunk")  # whether the run shall end


def check(callbacks: Any) -> tuple[Any, ...]:
    """Return callbacks as a tuple.

    Raises:
        UserError: one of them has none of the methods.
    """
    found = tuple(callbacks) if isinstance(callbacks, list | tuple) else (callbacks,)
    for callback in found:
        if isinstance(callback, type):
            raise UserError(
                f"callbacks: {callback.__name__} is a class; give an object of it, {callback.__name__}(...)"
            )
        if not any(callable(getattr(callback, name, None)) for name in METHODS):
            raise UserError(
                f"callbacks: a value of type {type(callback).__name__} has none of the methods {', '.join(METHODS)}; "
                "give it one, or leave it out"
            )
    return found


def call(callbacks: tuple[Any, ...], method: str, *arguments: Any) -> bool:
    """Call a method of all callbacks that have it, and return whether any answers that the run shall end.

    Raises:
        UserError: an answer that is neither true nor false.
    """
    there = [callback for callback in callbacks if hasattr(callback, method)]
    answers = [(callback, getattr(callback, method)(*arguments)) for callback in there]  # none of them is left out
    return method in _ASKED and any([_is_true(callback, method, answer) for callback, answer in answers])


def kept(callbacks: tuple[Any, ...], rounds: int, weights: Any) -> Any:
    """Show weights to the callbacks that take them, and return those that the run keeps; None: no others.

    Raises:
        UserError: an answer that is no weights of this model.
    """
    answers = [(one, one.weights(rounds, weights)) for one in callbacks if hasattr(one, "weights")]
    chosen = None
    for callback, answer in answers:
        if answer is not None and jax.tree.structure(answer) != jax.tree.structure(weights):
            raise UserError(
                f"callbacks: {type(callback).__name__}.weights answers a value of type {type(answer).__name__}, which "
                "is not in the structure of the weights; return weights as they were given, or nothing"
            )
        chosen = chosen if answer is None else answer
    return chosen


def _is_true(callback: Any, method: str, answer: Any) -> bool:
    try:
        return bool(answer)
    except Exception as error:  # of an array of several numbers, for example
        raise UserError(
            f"callbacks: {type(callback).__name__}.{method} answers a value of type {type(answer).__name__}, which is "
            "neither true nor false; return True to end the run, or nothing"
        ) from error


@contextlib.contextmanager
def report_errors(callbacks: tuple[Any, ...]) -> Iterator[None]:
    """Tell all callbacks of an error that leaves the block."""
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
    """Keeps what the strategy knew before the first round and after every chunk; `chunk=1` shows it after every round.

    A run that is read from its folder instead of repeated has nothing to show, and one that goes on begins there.

    Attributes:
        rounds: that were run before each snapshot, ascending.
        states: the strategy's state in each, leading axis [seeds].
        facts: what it had bought by then, likewise: `facts[-1].profile.value` is [seeds, N, Q].
    """

    def __init__(self, every: int = 1):
        """Make the callback.

        Args:
            every: rounds between two snapshots, at least; they come at the ends of chunks.
        """
        self._every = every
        self.start()

    def start(self, config: Any = None, rounds: int = 0) -> None:
        """Forget an earlier run."""
        del config, rounds
        self.rounds: list[int] = []
        self.states: list[Any] = []
        self.facts: list[Any] = []

    def snapshot(self, rounds: int, known: Any) -> None:
        """Keep what the strategy knows."""
        if not self.rounds or rounds - self.rounds[-1] >= self._every:
            self.rounds.append(rounds)
            self.states.append(known.state)
            self.facts.append(known.info)


class StopAtTarget:
    """Ends a run when every seed's test measure has reached a target."""

    def __init__(self, target: float):
        """Make the callback for a target."""
        self._target = target
        self._reached: np.ndarray | None = None

    def start(self, config: Any, rounds: int) -> None:
        """Forget the seeds that reached the target in an earlier run.

        Raises:
            UserError: no accuracy reaches the target.
        """
        del rounds
        if config.flat()["task"] == "classification" and not 0 < self._target <= 1:
            raise UserError(f"StopAtTarget: {shown(self._target)} is not a share between 0 and 1, such as 0.62")
        self._reached = None

    def resume(self, earlier: Any) -> bool:
        """Remember the seeds that reached the target before this run went on; return whether all have."""
        return self.chunk(earlier, 0)

    def chunk(self, rounds: Any, first: int) -> bool:
        """Return whether all seeds have reached the target."""
        del first
        now = ~np.isnan(rounds.rounds_to_target(self._target))
        reached = now if self._reached is None else self._reached | now
        self._reached = reached
        return bool(reached.all())


class EarlyStopping:
    """Ends a run when no seed's measure improves any more, and can keep each seed's best weights.

    Each seed waits for itself, as if it ran alone: it is done at the first measured round that is `patience` rounds
    after its best one without an improvement. The run ends when all seeds are done; what later rounds bring to a seed
    that is done does not count.

    A run hands out weights at the ends of chunks alone. The best are therefore those after the chunk whose last round
    has the best measure; `chunk=1` with `eval_every=1` compares every round. In a run's folder they are also written to
    `best.npz` whenever they change, so that a run that is killed and started again still has them.

    Attributes:
        best: the best measure of each seed, float [seeds]; NaN where nothing was measured.
        best_rounds: the round of each, from 1, int [seeds].
        kept_rounds: the rounds behind the weights that are kept, int [seeds]; empty without `restore_best`.
    """

    def __init__(
        self,
        patience: int,
        min_delta: float = 0.0,
        measure: str | None = None,
        higher_is_better: bool | None = None,
        restore_best: bool = False,
    ):
        """Make the callback.

        Args:
            patience: rounds to wait for an improvement, at least 1.
            min_delta: difference from the best that an improvement must exceed, at least 0.
            measure: a column of `Result.measured`, such as "test_loss"; None: the task's test measure.
            higher_is_better: whether the measure grows as it improves; None: as the task says of its test measure, and
                not for losses and `gemd`.
            restore_best: whether the result and the folder get each seed's best weights in place of the last ones.
                Checkpoints hold the last ones, so that the run can still continue.

        Raises:
            UserError: a number out of range.
        """
        if isinstance(patience, bool) or not isinstance(patience, int | np.integer) or patience < 1:
            raise UserError(f"patience: {shown(patience)} is no number of rounds; give a whole number, at least 1")
        if not isinstance(min_delta, int | float | np.number) or not 0 <= min_delta < np.inf:
            raise UserError(f"min_delta: {shown(min_delta)} is no difference; give a finite number, at least 0")
        self._patience, self._min_delta = int(patience), float(min_delta)
        self._measure, self._higher_is_better = measure, higher_is_better
        if restore_best:
            self.weights = self._keep  # a run copies weights for callbacks that have this method
        self.start()

    def start(self, config: Any = None, rounds: int = 0) -> None:
        """Forget an earlier run.

        Raises:
            UserError: the measure is not taken in this run.
        """
        self.best, self.best_rounds, self.kept_rounds = np.zeros(0), np.zeros(0, int), np.zeros(0, int)
        self._done = self._newest = np.zeros(0)  # the round at which each seed was done; the measure of the last round
        self._kept: Any = None
        self._kept_values = np.zeros(0)
        self._file: Path | None = None
        if config is None:
            return
        if str(self._measure).startswith(("train_", "worst_")) and not config.run.train_metrics_every:
            raise UserError(
                f"measure: {self._measure} is not measured with train_metrics_every=0; give the rounds between its "
                "evaluations"
            )
        if config.run.out is not None and jax.process_index() == 0:
            self._file = Path(config.run.out) / BEST_WEIGHTS
            if not rounds:
                self._file.unlink(missing_ok=True)

    def resume(self, earlier: Any) -> bool:
        """Take the rounds before this run went on; return whether all seeds are done."""
        return self.chunk(earlier, 0)

    def chunk(self, rounds: Any, first: int) -> bool:
        """Return whether all seeds are done."""
        self._name = one_of("measure", self._measure or rounds.test_measure, rounds.measured)
        grows = rounds.higher_is_better and not self._name.endswith("_loss") and self._name != "gemd"
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
        """Keep the weights of each seed that has no better ones, and return all kept weights."""
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
            whole_files.write(self._file, content.getvalue())
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"--out: cannot write {self._file} ({reason}); make room, or leave out restore_best"
            ) from error

    def _read(self) -> None:
        """Take what this run kept before it was killed; of another measure it cannot be compared."""
        if self._file is None or not self._file.exists() or not len(self._newest):
            return
        try:
            with np.load(io.BytesIO(files.read_bytes(self._file)), allow_pickle=False) as found:
                if str(found["measure"]) != self._name:
                    return
                leaves, structure = jax.tree.flatten(self._kept)
                kept = [found[f"leaf_{place}"] for place in range(len(leaves))]
                if [leaf.shape for leaf in kept] != [leaf.shape for leaf in leaves]:
                    raise ValueError("it is of another model")
                self._kept_values, self.kept_rounds = found["values"], found["rounds"]
        except Exception as error:  # a damaged archive raises whatever its parts do
            raise UserError(
                f"{self._file}: cannot read the best weights ({error}); remove the file, and the best from here on are "
                "kept"
            ) from error
        self._kept = jax.tree.unflatten(structure, kept)


def __getattr__(name: str) -> Any:
    """Return TensorBoard, WandB, MLflow or Trackio: they stand in `fedjax_sel.logs`."""
    from fedjax_sel import logs

    if name in logs.NAMES.values():
        return getattr(logs, name)
    raise AttributeError(f"module 'fedjax_sel.callbacks' has no attribute {name!r}")
