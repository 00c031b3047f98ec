"""Folders that a writer fills and then renames, and what is left of them where the writer was killed.

A writer at work holds a lock on its folder, which the system lets go of when the process ends, however it ends. Folders
whose name says so and that nobody holds can therefore be removed at once. Where there are no locks (Windows, some file
systems) only age tells.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PREFIX = ".writing-"
_HELD_PREFIX = ".writing-held-"
_ABANDONED_AFTER_SECONDS = 24 * 3600.0


@contextlib.contextmanager
def folder(parent: Path) -> Iterator[Path]:
    """Make a temporary folder, and remove it in the end if it is still there.

    Args:
        parent: an existing folder.

    Yields:
        The folder, which may be renamed.

    Raises:
        OSError: it cannot be made.
    """
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    handle = _hold(made)
    try:
        if handle is not None:  # only now: whoever sees the new name may try the lock
            made = made.rename(made.with_name(made.name.replace(_PREFIX, _HELD_PREFIX, 1)))
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def sweep(parent: Path) -> None:
    """Remove the temporary folders of writers that died.

    Args:
        parent: where they may lie; need not exist.
    """
    for entry in parent.glob(f"{_PREFIX}*"):
        if not entry.name.startswith(_HELD_PREFIX):
            with contextlib.suppress(OSError):
                if time.time() - entry.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                    shutil.rmtree(entry, ignore_errors=True)
        elif (handle := _hold(entry)) is not None:
            shutil.rmtree(entry, ignore_errors=True)
            os.close(handle)


def _hold(path: Path) -> int | None:
    """Take the lock on a folder; None where somebody has it or there are no locks."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
