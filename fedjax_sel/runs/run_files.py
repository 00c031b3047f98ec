"""The file names of a run folder, and reading and writing of its JSON files."""

import json
from pathlib import Path
from typing import Any

from fedjax_sel.core import files, whole_files

CONFIG, DATA, ENVIRONMENT = "config.json", "data.json", "environment.json"
METRICS, COHORTS, RESULT, CURVES = "metrics.csv", "cohorts.npy", "result.json", "curves.png"
PARAMS = "params.npz"
CHECKPOINTS = "checkpoints"
MOST_BYTES = 2**36  # limit for the files of rows and cohorts


def write_json(path: Path, value: Any) -> None:
    """Write plain values to a JSON file atomically."""
    whole_files.write(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read an optional JSON file; None if it is lost or damaged."""
    try:
        return files.read_json(path)
    except (OSError, ValueError):
        return None
