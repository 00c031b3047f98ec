"""The files of a run folder by name, and how small ones are read and written."""

import json
import os
from pathlib import Path
from typing import Any

from fedjax_sel.core import files

CONFIG, DATA, ENVIRONMENT = "config.json", "data.json", "environment.json"
METRICS, COHORTS, RESULT, CURVES = "metrics.csv", "cohorts.npy", "result.json", "curves.png"
PARAMS = "params.npz"
CHECKPOINTS = "checkpoints"
MOST_BYTES = 2**36  # of rows or cohorts


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


def write_json(path: Path, value: Any) -> None:
    """Write plain values, whole or not at all."""
    write(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read plain values that a run can do without; None where the file is lost or damaged."""
    try:
        return files.read_json(path)
    except (OSError, ValueError):
        return None
