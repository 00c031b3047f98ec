"""The terminal or notebook of a run: its progress bar, and the signals that end it."""

import contextlib
import datetime
import errno
import html
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedjax_sel.config import Config, RunConfig
from fedjax_sel.core.files import Unbroken
from fedjax_sel.experiment.values import VALUE
from fedjax_sel.runs import checkpoint, run_files

SECONDS_BETWEEN = 0.2  # limits the load on the browser


class NotebookOutput:
    """A cell's output for one run: its messages, and below them a status line with a progress bar."""

    def __init__(self, about: str):
        """Create an output that is empty at first; `about` is the run's name, which starts each line."""
        self._about, self._line = about, ""
        self._messages: list[str] = []
        self._share: float | None = None
        self._handle: Any = None
        self._shown = 0.0  # time.monotonic() of the last update

    def say(self, message: str) -> None:
        """Add a permanent message."""
        self._messages.append(message)
        self._show()

    def update(self, line: str, share: float) -> None:
        """Replace the status line; `share` is the completed fraction of the run, in [0, 1], and 1 removes the bar."""
        self._line, self._share = line, share
        if share >= 1 or time.monotonic() - self._shown > SECONDS_BETWEEN:
            self._show()

    def close(self) -> None:
        """Show the last status line and remove the bar."""
        self._share = None
        if self._handle is not None:
            self._show()

    def _show(self) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports] (a notebook has it)

        self._shown = time.monotonic()
        text = "\n".join(f"{self._about}: {text}" for text in (*self._messages, self._line) if text)
        bundle = {"text/plain": text, "text/html": self._html()}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def _html(self) -> str:
        moving = self._share is not None and self._share < 1
        bar = f'<progress value="{self._share:.3f}" max="1"></progress> ' if moving else ""
        name = f"<b>{html.escape(self._about)}</b>: "
        lines = [name + html.escape(message) for message in self._messages]
        lines += [name + bar + html.escape(self._line)] if self._line else []
        return "<div>" + "<br>".join(lines) + "</div>"


SECONDS_BETWEEN_LINES = 10.0


def rate(speed: float) -> str:
    """Format a speed in seed-rounds per second; below 1, as seconds per seed-round."""
    return f"{speed:.1f} seed-rounds/s" if speed >= 1 else f"{1 / max(speed, 1e-9):.1f} s per seed-round"


class Reporter:
    """A context that shows progress on stderr or in a notebook's output."""

    def __init__(self, config: Config, started: float, shown: bool = True, further: Sequence[int] = ()):
        self._started = started  # time.monotonic() at the start
        self._further, self._compiling = further, 0.0  # seed-rounds of later runs; seconds of the first chunk
        self._num_rounds, self._num_seeds, self._shown = config.run.rounds, len(config.run.seeds), shown
        self._stream: Any = Unbroken(sys.stderr, errno.ENOSPC)  # neither a broken pipe nor a full disk ends the run
        self._console = Console(file=self._stream, emoji=False)
        self._bar: Progress | None = None
        self.in_notebook = shown and self._console.is_jupyter
        self._notebook = NotebookOutput(config.selection.algo.removeprefix(VALUE)) if self.in_notebook else None
        self._last_line = self._steady_since = time.monotonic()
        self._first = self._steady_from = 0
        self._text = ""

    @property
    def on_stderr(self) -> bool:
        """Whether progress is shown on stderr."""
        return self._shown and not self.in_notebook

    def __enter__(self) -> "Reporter":
        if self._notebook is not None:
            self._notebook.update("reading data and compiling", 0.0)
        elif self._shown and self._console.is_terminal:
            columns = TextColumn("round {task.completed}/{task.total}"), BarColumn(bar_width=None)
            self._bar = Progress(*columns, TextColumn("{task.description}"), TimeElapsedColumn(), console=self._console)
            self._bar.start()
            self._task = self._bar.add_task("preparing", total=self._num_rounds)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._notebook is not None:
            self._notebook.close()

    def resume_after(self, rounds: int) -> None:
        """Start the count at the rounds of an earlier process."""
        self._first = self._steady_from = rounds
        if self._bar is not None:
            self._bar.update(self._task, completed=rounds, description="compiling")

    def chunk(self, done: int, accuracy: np.ndarray, loss: np.ndarray, words: str = "accuracy") -> None:
        """Report a chunk after `done` rounds.

        `accuracy` is the test accuracy, or another task's measure named `words`, and `loss` the test loss. Both are
        [seeds, rounds of the chunk]; NaN if not measured.
        """
        now, left = time.monotonic(), ""
        if self._steady_from == self._first:
            self._steady_from, self._steady_since = done, now  # the first chunk includes compilation
            count, self._compiling = done - self._first, now - self._started
            rounds = "the first round" if count == 1 else f"the first {count} rounds"
            if self._notebook is None and count:
                self.say(f"{rounds} took {now - self._started:.1f} s, including data loading and compilation")
        else:
            speed = (done - self._steady_from) * self._num_seeds / max(now - self._steady_since, 1e-9)
            left = f"  {rate(speed)}  {self._left(done, speed)}"
        measured = ~np.isnan(accuracy).any(axis=0)
        if measured.any():
            last = np.flatnonzero(measured)[-1]
            self._text = f"{words} {accuracy[:, last].mean():.3f}  loss {loss[:, last].mean():.3f}"
        line = f"round {done}/{self._num_rounds}  {self._text}"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=self._text + left)
        elif self._notebook is not None:
            after = f"  {now - self._started:.1f} s" if done == self._num_rounds else left or "  compiled"
            self._notebook.update(line + after, done / self._num_rounds)
        elif self._shown and (now - self._last_line > SECONDS_BETWEEN_LINES or done == self._num_rounds):
            self._last_line = now
            print(line + left, file=self._stream, flush=True)

    def _left(self, done: int, speed: float) -> str:
        """Return the time left of this run and the later ones, in words."""
        rounds = (self._num_rounds - done) * self._num_seeds + sum(self._further)
        seconds = rounds / max(speed, 1e-9) + len(self._further) * self._compiling
        return f"{datetime.timedelta(seconds=int(seconds))} left" + (" for all runs" if self._further else "")

    def say(self, text: str) -> None:
        """Show one message to the user, without disturbing the bar."""
        if self._notebook is not None:
            self._notebook.say(text)
        elif self._shown:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


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
        ended: whether a callback ended the run.
    """

    def __init__(self, shown: bool, at_once: bool = True):
        self.asked, self.ended, self._at_once, self._shown = 0, False, at_once, shown
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
