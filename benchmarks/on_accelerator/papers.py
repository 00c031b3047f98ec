"""Reproductions that need a GPU, run by `python -m studies reproduce` in the remaining time.

At the end of the time, a run saves its state; the same command resumes it. Pages and runs are in a folder next to the
report.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from on_accelerator.children import Child
from on_accelerator.day import Case, Part, alone

ENTRIES = (
    ("fl_dp3s/fig1", "--columns", "mnist-xi1"),
    ("fedcor/table1", "--columns", "cifar10", "--seeds", "2"),
)
SMALL = (("fedgp/fig1",),)
FIRST_SECONDS = 60.0  # minimum useful time for a case
SECONDS_TO_SAVE = 15.0


def part(small: bool, folder: Path, data_dir: Path | None) -> Part:
    """Return the part; it runs after all other parts.

    Args:
        small: whether to run only an entry without training.
        folder: the folder of pages and runs.
        data_dir: the folder with prepared data; None uses the cache.
    """

    def case(arguments: tuple[str, ...]) -> Case:
        more = () if data_dir is None or small else ("--data-dir", str(data_dir.resolve()))
        command = [*arguments, "--out", str(folder.resolve()), *more]
        work = alone(Child("on_accelerator.papers:reproduce", {"arguments": command}))
        return Case(" ".join(arguments), 5 if small else FIRST_SECONDS, work, tier=9, takes_the_rest=True)

    return Part(
        "papers",
        "python -m studies reproduce",
        [case(arguments) for arguments in (SMALL if small else ENTRIES)],
        describe,
    )


def describe(record: dict[str, Any]) -> str:
    """Format a record in one line."""
    return "finished" if record["finished"] else "saved; the same command resumes it"


def reproduce(seconds: float, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Run the command, and stop it with SIGTERM when the time is over (in a child process)."""
    from studies.papers import command as reproduce

    ended = threading.Event()

    def end() -> None:
        ended.set()
        os.kill(os.getpid(), signal.SIGTERM)

    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # during a run, the run's own handler applies
    timer = threading.Timer(max(seconds - SECONDS_TO_SAVE, 1.0), end)
    timer.daemon = True
    timer.start()
    try:
        code = reproduce.main(arguments)
    except KeyboardInterrupt:
        code = 0
    timer.cancel()
    if code:
        raise RuntimeError(f"python -m studies reproduce ended with exit code {code}")
    yield {"finished": not ended.is_set(), "reproduce_seconds": round(time.monotonic() - begun, 1)}
