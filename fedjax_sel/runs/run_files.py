"""The files of a run folder by name, and how small ones are read and written."""

import json
from pathlib import Path
from typing import Any

from fedjax_sel.core import files, whole_files

CONFIG, DATA, ENVIRONMENT = "config.json", "data.json", "environment.json"
METRICS, COHORTS, RESULT, CURVES = "metrics.csv", "cohorts.npy", "result.json", "curves.png"
PARAMS = "params.npz"
CHECKPOINTS = "checkpoints"
MOST_BYTES = 2**36  # of rows or cohorts


def write_json(path: Path, value: Any) -> None:
    """Write plain values, whole or not at all."""
    whole_files.write(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read plain values that a run can do without; None where the file is lost or damaged."""
    try:
        return files.read_json(path)
    except (OSError, ValueError):
        return None
