"""Temporary folders that a writer fills and then renames, and the removal of folders that killed writers left.

A writer locks its folder, and the system releases the lock when the process ends for any reason. Unlocked folders with
the prefix `.writing-held-` can therefore be removed at once. Without file locks (Windows, some file systems) folders
are removed after a day.
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
    """Create a temporary folder, and remove it on exit unless it was renamed.

    Args:
        parent: an existing folder.

    Yields:
        The folder, which may be renamed.

    Raises:
        OSError: the folder cannot be created.
    """
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    handle = _hold(made)
    try:
        if handle is not None:  # rename only after locking, since `sweep` removes unlocked folders of this name
            made = made.rename(made.with_name(made.name.replace(_PREFIX, _HELD_PREFIX, 1)))
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def sweep(parent: Path) -> None:
    """Remove the temporary folders of dead writers.

    Args:
        parent: folder to search; need not exist.
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
    """Lock a folder and return the handle; None if another process holds the lock or locks are not supported."""
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
