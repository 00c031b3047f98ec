"""Signals that end a run: after the rounds that are being computed, or at once."""

import contextlib
import os
import signal
import threading
from types import TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what schedulers and preemptible machines send


class Interruption(contextlib.AbstractContextManager):
    """Turns the first signal into a wish to stop; the second one interrupts at once. Use as a context.

    Attributes:
        asked: the number of the signal that came; 0 without.
    """

    def __init__(self, shown: bool):
        self.asked = 0
        self._shown = shown
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            self._previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _on_signal(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = number
        again = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
        if self._shown:  # not through what may be in the middle of printing
            text = f"\nstopping after the rounds that are being computed; {again} stops at once\n"
            os.write(2, text.encode())


def exit_code(number: int) -> int:
    """What a command returns that a signal has stopped: 0 if a scheduler asked for it, 130 after Ctrl-C."""
    return 0 if number == signal.SIGTERM else 130
