"""Files that exist whole or not at all: they are written under another name, and renamed.

A rename would replace a device, a pipe or a symbolic link by a file: the first two are rejected, and of a link the file
that it leads to is written.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


def temporary(path: Path, own: str = "") -> Path:
    """Return the name under which a file or a folder is written before it is renamed.

    Args:
        path: where it is wanted.
        own: tells the name from that of others who write there.
    """
    return path.with_name(f".{path.name}{own and f'.{own}'}.tmp")


def unfinished(folder: Path) -> Iterator[Path]:
    """Yield what was not renamed: that of a process which died, or which is writing now.

    Args:
        folder: of the files.
    """
    yield from (path for path in folder.glob(".*.tmp") if path.is_file())


def not_a_file(mode: int) -> str | None:
    """Return half a sentence that says what a path is instead of a regular file; None for a regular file.

    Args:
        mode: `st_mode` of its status.
    """
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"it is {kinds.get(stat.S_IFMT(mode), 'something else')} and not a file"


def write(path: Path, content: bytes, sync: bool = False) -> None:
    """Write a file, whole or not at all; of several who write it at once one is the last.

    Args:
        path: the file; a symbolic link is followed, and stays.
        content: of it.
        sync: whether to wait until the disk has it.

    Raises:
        OSError: it cannot be written, or is a folder, a pipe or a device.
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
