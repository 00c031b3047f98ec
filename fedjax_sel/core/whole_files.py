"""Files that are there whole or not at all: they are written under another name, and renamed."""

import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def temporary(path: Path, own: str = "") -> Path:
    """Return the name under which a file or a folder is written before it is renamed.

    Args:
        path: where it is wanted.
        own: tells the name from that of others who write there.

    Raises:
        OSError: the path has no name, as that of the working folder.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path.with_name(f".{path.name}{own and f'.{own}'}.tmp")


def unfinished(folder: Path) -> Iterator[Path]:
    """Yield what was not renamed: that of a process which died, or which is writing now.

    Args:
        folder: of the files.
    """
    yield from (path for path in folder.glob(".*.tmp") if path.is_file())


def write(path: Path, content: bytes, sync: bool = False) -> None:
    """Write a file, whole or not at all; of several who write it at once one is the last.

    Args:
        path: the file.
        content: of it.
        sync: whether to wait until the disk has it.

    Raises:
        OSError: it cannot be written.
    """
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
