"""Files that are there whole or not at all: they are written under another name, and renamed."""

import os
from pathlib import Path


def temporary(path: Path) -> Path:
    """Return the name under which a file is written before it is renamed."""
    return path.with_name(f".{path.name}.tmp")


def write(path: Path, content: bytes, sync: bool = False) -> None:
    """Write a file, whole or not at all.

    Args:
        path: the file.
        content: of it.
        sync: whether to wait until the disk has it.

    Raises:
        OSError: it cannot be written.
    """
    unfinished = temporary(path)
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
