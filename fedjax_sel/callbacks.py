"""Callbacks that a run calls on the host between chunks of rounds, for logging, inspection and early stopping."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError


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

    def weights(self, rounds: int, weights: Any) -> None:
        """Process the models' weights, [seeds, ...] in host memory, before the first chunk and after each `chunk`.

        If a callback has this method, they are copied from the devices for each call.
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
    # A list, not a generator: `any` would stop at the first true value and skip the remaining callbacks.
    answers = [getattr(callback, method)(*arguments) for callback in having]
    return method in ("resume", "chunk") and any(bool(answer) for answer in answers)


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

    def __init__(self) -> None:
        """Create the callback."""
        self.start()

    def start(self, config: Any = None, rounds: int = 0) -> None:
        """Clear the snapshots of an earlier run."""
        del config, rounds
        self.rounds: list[int] = []
        self.states: list[Any] = []
        self.facts: list[Any] = []

    def snapshot(self, rounds: int, known: Known) -> None:
        """Append a snapshot."""
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
        if config.has_accuracy and not 0 < self._target <= 1:
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
