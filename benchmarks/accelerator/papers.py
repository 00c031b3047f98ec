"""The papers' runs that wait for a GPU, by `python -m studies reproduce`, for what is left of the minutes.

A run that the minutes end saves its state; the same command continues it. Pages and runs are in a folder beside the
file.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerator.children import Child
from accelerator.day import Case, Part, alone

ENTRIES = (
    ("fl_dp3s/fig1", "--columns", "mnist-xi1"),
    ("fedcor/table1", "--columns", "cifar10", "--seeds", "2"),
)
SMALL = (("fedgp/fig1",),)
FIRST_SECONDS = 60.0  # below which starting a piece brings nothing
SECONDS_TO_SAVE = 15.0


def part(small: bool, folder: Path, data_dir: Path | None) -> Part:
    """Return the part; it runs after all other parts.

    Args:
        small: whether what runs trains nothing.
        folder: of pages and runs.
        data_dir: of prepared data; None: the cache.
    """

    def case(arguments: tuple[str, ...]) -> Case:
        more = () if data_dir is None or small else ("--data-dir", str(data_dir.resolve()))
        command = [*arguments, "--out", str(folder.resolve()), *more]
        work = alone(Child("accelerator.papers:reproduce", {"arguments": command}))
        return Case(" ".join(arguments), 5 if small else FIRST_SECONDS, work, tier=9, takes_the_rest=True)

    return Part(
        "papers",
        "python -m studies reproduce",
        [case(arguments) for arguments in (SMALL if small else ENTRIES)],
        describe,
    )


def describe(record: dict[str, Any]) -> str:
    """Describe a record in a line."""
    return "finished" if record["finished"] else "saved; the same command continues it"


def reproduce(seconds: float, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Run the command, and end it with SIGTERM when the time is over (in a child process)."""
    from studies.papers import command as reproduce

    ended = threading.Event()

    def end() -> None:
        ended.set()
        os.kill(os.getpid(), signal.SIGTERM)

    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # between two runs
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
