"""What a run calls between its chunks of rounds, on the host: to watch it, to log it, to end it."""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError


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

    def end(self, result: Any) -> None:
        """Take the run's result, finished or not."""

    def fail(self, error: BaseException) -> None:
        """Let go of what is held: an error ended the run, perhaps before it began, and `end` is not called.

        What this raises is not heard.
        """


METHODS = ("start", "resume", "chunk", "snapshot", "end", "fail")
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


def _is_true(callback: Any, method: str, answer: Any) -> bool:
    try:
        return bool(answer)
    except Exception as error:  # of an array of several numbers, for example
        raise UserError(
            f"callbacks: {type(callback).__name__}.{method} answers a value of type {type(answer).__name__}, which is "
            "neither true nor false; return True to end the run, or nothing"
        ) from error


@contextlib.contextmanager
def told_of_errors(callbacks: tuple[Any, ...]) -> Iterator[None]:
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


def __getattr__(name: str) -> Any:
    """Return TensorBoard, WandB, MLflow or Trackio: they stand in `fedjax_sel.logs`."""
    from fedjax_sel import logs

    if name in logs.NAMES.values():
        return getattr(logs, name)
    raise AttributeError(f"module 'fedjax_sel.callbacks' has no attribute {name!r}")
