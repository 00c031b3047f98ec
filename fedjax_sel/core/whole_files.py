"""Atomic file writes: a temporary file is written, then renamed.

A rename would replace a device, a pipe or a symbolic link by a file. Devices and pipes are therefore rejected, and for
a link its target is written.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


def temporary(path: Path, own: str = "") -> Path:
    """Return the temporary name of a file or folder that is being written.

    Args:
        path: the final path.
        own: a suffix that separates concurrent writers.
    """
    return path.with_name(f".{path.name}{own and f'.{own}'}.tmp")


def unfinished(folder: Path) -> Iterator[Path]:
    """Yield the temporary files in a folder, left by a killed process or still being written."""
    yield from (path for path in folder.glob(".*.tmp") if path.is_file())


def not_a_file(mode: int) -> str | None:
    """Return a message fragment if a mode is not that of a regular file; None otherwise.

    Args:
        mode: the path's `st_mode`.
    """
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"it is {kinds.get(stat.S_IFMT(mode), 'something else')} and not a file"


def write(path: Path, content: bytes, sync: bool = False) -> None:
    """Write a file atomically; of several concurrent writers, the last one wins.

    Args:
        path: the file; a symbolic link is followed and kept.
        content: the file's content.
        sync: whether to wait until the content is on disk (fsync).

    Raises:
        OSError: If the file cannot be written, or is a folder, a pipe or a device.
    """
    path = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if (wrong := not_a_file(path.stat().st_mode)) is not None:
            raise OSError(errno.EINVAL, wrong, str(path))
    written = temporary(path, secrets.token_hex(4))
    try:
        with written.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
