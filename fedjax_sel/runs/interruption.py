"""Signals that end a run, after the rounds that are being computed or at once, and what becomes of it then."""

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
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what schedulers and preemptible machines send


class Interruption(contextlib.AbstractContextManager):
    """Turns the first signal into a wish to stop; the second one interrupts at once. Use as a context.

    A closed terminal is never the second: the system, the shell and the session each tell of it.

    Args:
        shown: whether the first signal is answered on stderr.
        at_once: whether it listens from the start; else from `listen` on, and until then signals have the effect that
            they had.

    Attributes:
        asked: the number of the first signal that came; 0 without.
    """

    def __init__(self, shown: bool, at_once: bool = True):
        self.asked = 0
        self._at_once = at_once
        self._shown = shown
        self._insisted = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        if self._at_once:
            self.listen()
        return self

    def listen(self) -> None:
        """Take signals from now on."""
        if not self._previous and threading.current_thread() is threading.main_thread():  # others may not set handlers
            self._previous = {number: signal.signal(number, self._on_signal) for number in self._numbers()}

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def take(self) -> None:
        """Take the KeyboardInterrupt that a callback raised as the first signal; raise it again if it is the second."""
        if self._insisted:
            raise  # the one that is being handled
        self.asked = self.asked or signal.SIGINT

    @staticmethod
    def _numbers() -> tuple[int, ...]:
        """Return the signals that ask a run to stop; under `nohup` a closed terminal does not."""
        if HANGUP is None or signal.getsignal(HANGUP) == signal.SIG_IGN:
            return SIGNALS
        return (*SIGNALS, HANGUP)

    def _on_signal(self, number: int, frame: object) -> None:
        if number != HANGUP and self._insisted:
            raise KeyboardInterrupt
        self._insisted = self._insisted or number != HANGUP
        self.asked = self.asked or number
        if self._shown and number != HANGUP:
            again = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
            text = f"\nstopping after the rounds that are being computed; {again} stops at once\n"
            # Not through what may be in the middle of printing; and Ctrl-C has ended the reader of a pipe as well.
            with contextlib.suppress(OSError):
                os.write(2, text.encode())


def how_to_go_on(run: RunConfig, out: Path | str, again: str = "the same command", where: str = "there") -> str:
    """Say in half a sentence what becomes of a run that ended early.

    Args:
        run: its settings.
        out: its folder.
        again: what starts it again.
        where: it goes on from, if it does.
    """
    if run.resume == "never":
        again = f"without --resume never {again}"
    if run.keep > 0:
        return f"{again} goes on from {where} ({out})"
    earlier = checkpoint.list_all(Path(out) / run_files.CHECKPOINTS)  # of a start that saved some
    if not earlier:
        return f"--keep 0 left no checkpoint, so {again} begins anew ({out})"
    rounds = checkpoint.rounds_of(earlier[0])
    return f"--keep 0 saved none of these rounds, so {again} goes on after round {rounds} ({out})"


@contextlib.contextmanager
def with_result() -> Iterator[None]:
    """Give a KeyboardInterrupt that leaves the block an attribute `result`, as `end_script` does: None."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.result = None  # pyright: ignore[reportAttributeAccessIssue]
        raise


def end_script(result: Any, number: int, shown: bool) -> None:
    """Raise what ends a script after a signal, with its result until then; a cell of a notebook has said so.

    Args:
        result: of the call that ended early; becomes the attribute `result` of what is raised.
        number: of the signal; 0: none came, and nothing is raised.
        shown: whether progress is shown.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        SystemExit: another signal; its code is the shells' 128 + number.
    """
    if not number or (shown and Console().is_jupyter):
        return
    error = KeyboardInterrupt("the run was interrupted; the error's `result` is what was done until then")
    if number != signal.SIGINT:
        error = SystemExit(128 + number)
    error.result = result  # pyright: ignore[reportAttributeAccessIssue]
    raise error


def exit_code(number: int) -> int:
    """Return what a command answers that was stopped before its end.

    Args:
        number: of the signal; 0 where Ctrl-C interrupted it at once.

    Returns:
        0 if a scheduler asked for it (SIGTERM), else the shells' 128 + number: 130 after Ctrl-C, 129 if the terminal
        was closed.
    """
    return 0 if number == signal.SIGTERM else 128 + (number or signal.SIGINT)
