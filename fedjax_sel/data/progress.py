"""A progress bar on stderr for work that may take seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE_SECONDS = 1.0


@contextlib.contextmanager
def bar(title: str, total: int, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal once the work has taken a second.

    Args:
        title: label of the bar.
        total: number of steps (examples or bytes).
        in_bytes: True to print amounts as bytes.

    Yields:
        ``advance(steps)``, to call after each piece of work.
    """
    started, shown, done = time.monotonic(), None, 0

    def advance(steps: int) -> None:
        nonlocal shown, done
        done += steps
        if shown is None and sys.stderr.isatty() and time.monotonic() - started > _PATIENCE_SECONDS:
            shown = _start(title, total, in_bytes)
        if shown is not None:
            shown.update(shown.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if shown is not None:
            shown.stop()


def _start(title: str, total: int, in_bytes: bool) -> Progress:
    from rich import progress  # deferred, since the import takes 0.1 s
    from rich.console import Console

    amount = progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn()
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), amount, progress.TimeRemainingColumn())
    shown = progress.Progress(*columns, console=Console(stderr=True), transient=True)
    shown.add_task(title, total=total)
    shown.start()
    return shown
