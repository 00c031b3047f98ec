"""Signals that end a run, after the rounds that are being computed or at once, and what becomes of it then."""

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import TracebackType

from fedjax_sel.config import RunConfig
from fedjax_sel.runs import checkpoint, run_files

HANGUP = getattr(signal, "SIGHUP", None)  # the terminal was closed; Windows has no such signal
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what schedulers and preemptible machines send


class Interruption(contextlib.AbstractContextManager):
    """Turns the first signal into a wish to stop; the second one interrupts at once. Use as a context.

    A closed terminal is never the second: the system, the shell and the session each tell of it.

    Attributes:
        asked: the number of the first signal that came; 0 without.
    """

    def __init__(self, shown: bool):
        self.asked = 0
        self._shown = shown
        self._insisted = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            self._previous = {number: signal.signal(number, self._on_signal) for number in self._numbers()}
        return self

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


def exit_code(number: int) -> int:
    """Return what a command answers that was stopped before its end.

    Args:
        number: of the signal; 0 where Ctrl-C interrupted it at once.

    Returns:
        0 if a scheduler asked for it (SIGTERM), else the shells' 128 + number: 130 after Ctrl-C, 129 if the terminal
        was closed.
    """
    return 0 if number == signal.SIGTERM else 128 + (number or signal.SIGINT)
