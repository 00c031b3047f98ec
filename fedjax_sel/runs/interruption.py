"""Signals that end a run, after the current chunk or immediately."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from fedjax_sel.config import RunConfig
from fedjax_sel.runs import checkpoint, run_files

HANGUP = getattr(signal, "SIGHUP", None)  # the terminal was closed; Windows has no such signal
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; the signal of schedulers and preemptible machines


class Interruption(contextlib.AbstractContextManager):
    """A context that turns the first signal into a stop request; the second signal raises KeyboardInterrupt.

    A closed terminal never counts as the second signal, because the system, the shell and the session each send one.

    Args:
        shown: whether the first signal prints a message to stderr.
        at_once: whether signals are handled from the start; else only after `listen`.

    Attributes:
        asked: the number of the first signal; 0 if none arrived.
    """

    def __init__(self, shown: bool, at_once: bool = True):
        self.asked, self._at_once, self._shown = 0, at_once, shown
        self._second_interrupts = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        if self._at_once:
            self.listen()
        return self

    def listen(self) -> None:
        """Handle signals from now on."""
        if not self._previous and threading.current_thread() is threading.main_thread():  # others cannot set handlers
            numbers = list(SIGNALS)
            if HANGUP is not None and signal.getsignal(HANGUP) != signal.SIG_IGN:  # ignored under `nohup`
                numbers.append(HANGUP)
            self._previous = {number: signal.signal(number, self._on_signal) for number in numbers}

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def take(self) -> None:
        """Treat a callback's KeyboardInterrupt as the first signal; raise it again if it is the second."""
        if self._second_interrupts:
            raise  # re-raises the exception that the caller is handling
        self.asked = self.asked or signal.SIGINT

    def _on_signal(self, number: int, frame: object) -> None:
        if number != HANGUP and self._second_interrupts:
            raise KeyboardInterrupt
        self._second_interrupts = self._second_interrupts or number != HANGUP
        self.asked = self.asked or number
        if self._shown and number != HANGUP:
            again = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
            text = f"\nstopping after the current chunk of rounds; {again} stops immediately\n"
            # A handler may interrupt a print, so it bypasses sys.stderr. Ctrl-C may also have ended a pipe's reader.
            with contextlib.suppress(OSError):
                os.write(2, text.encode())


def resume_advice(run: RunConfig, out: Path | str, again: str = "the same command", where: str = "there") -> str:
    """Return a clause that says how to resume a run that ended early.

    `again` is the action that starts the run again, and `where` the point from which it resumes.
    """
    if run.resume == "never":
        again = f"without --resume never {again}"
    if run.keep > 0:
        return f"{again} resumes from {where} ({out})"
    earlier = checkpoint.list_all(Path(out) / run_files.CHECKPOINTS)  # from an earlier start with --keep above 0
    if not earlier:
        return f"--keep 0 left no checkpoint, so {again} starts over ({out})"
    rounds = checkpoint.rounds_of(earlier[0])
    return f"--keep 0 saved none of these rounds, so {again} resumes after round {rounds} ({out})"


@contextlib.contextmanager
def with_result() -> Iterator[None]:
    """Set the attribute `result` of a KeyboardInterrupt from the block to None, for consistency with `end_script`."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.result = None  # pyright: ignore[reportAttributeAccessIssue]
        raise


def end_script(result: Any, number: int, shown: bool) -> None:
    """Raise the exception that ends a script after signal `number`, with the partial result as its attribute `result`.

    No exception is raised without a signal (0), or in notebooks that show progress, which have shown a message instead.

    Raises:
        KeyboardInterrupt: the signal is Ctrl-C.
        SystemExit: another signal, with the shell's exit code 128 + number.
    """
    if not number or (shown and Console().is_jupyter):
        return
    error = KeyboardInterrupt("the run was interrupted; this error's `result` has the completed rounds")
    if number != signal.SIGINT:
        error = SystemExit(128 + number)
    error.result = result  # pyright: ignore[reportAttributeAccessIssue]
    raise error


def exit_code(number: int) -> int:
    """Return the exit code of a command that a signal stopped; `number` is 0 after an immediate Ctrl-C.

    The code is 0 after SIGTERM, which schedulers send; else the shell's 128 + number, i.e. 130 after Ctrl-C and 129 if
    the terminal was closed.
    """
    return 0 if number == signal.SIGTERM else 128 + (number or signal.SIGINT)
