"""What is kept of runs: accuracy and bytes of every round and seed, in files small enough to be committed.

A setting's folder holds

    curves.csv.gz   one line a row of the table, seed and round
    about.json      what made it: commands, the data's source, and of each row its commit, versions and seconds

and everything else that lies there is made of these two.
"""

import csv
import gzip
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core import files, whole_files
from fedjax_sel.errors import UserError
from fedjax_sel.runs import out_folder, run_files
from fedjax_sel.runs.records import Result

CURVES, ABOUT = "curves.csv.gz", "about.json"
_COLUMNS = ("row", "seed", "round", "test_accuracy", "worst_decile_accuracy", "bytes_down", "bytes_up")
_ACCURACIES, _BYTES = _COLUMNS[3:5], _COLUMNS[5:]


class Series(NamedTuple):
    """A row's runs. Arrays are [seeds, rounds]; NaN where nothing was measured."""

    seeds: tuple[int, ...]
    test_accuracy: np.ndarray
    worst_decile_accuracy: np.ndarray  # of the tenth of clients with the lowest accuracy on their training data
    bytes_down: np.ndarray  # sent in a round, int64
    bytes_up: np.ndarray

    @property
    def rounds(self) -> int:
        """Rounds that were run."""
        return self.test_accuracy.shape[1]

    @property
    def megabytes(self) -> np.ndarray:
        """What was sent down and up until a round's end, [seeds, rounds]."""
        return (self.bytes_down + self.bytes_up).cumsum(axis=1) / 1e6


class Setting(NamedTuple):
    """What a folder holds."""

    rows: dict[str, Series]  # by name, in the order of the table
    about: dict[str, Any]


def of_result(result: Result) -> Series:
    """Return what is kept of a finished run."""
    return Series(
        result.seeds,
        np.asarray(result.test_accuracy, np.float32),
        np.asarray(result.worst_decile_accuracy, np.float32),
        np.asarray(result.ledger.bytes_down, np.int64),
        np.asarray(result.ledger.bytes_up, np.int64),
    )


def write(folder: Path, rows: Mapping[str, Series], about: Mapping[str, Any]) -> None:
    """Write a setting's two files, each whole or not at all; equal contents are equal bytes.

    Args:
        folder: is made where it is missing.
        rows: by name, in the order of the table.
        about: plain values.

    Raises:
        UserError: they cannot be written there.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for name, series in rows.items():
        for place, seed in enumerate(series.seeds):
            for index in range(series.rounds):
                accuracies = (_cell(getattr(series, column)[place, index]) for column in _ACCURACIES)
                counts = (int(getattr(series, column)[place, index]) for column in _BYTES)
                writer.writerow((name, seed, index + 1, *accuracies, *counts))
    with out_folder.writing(folder):
        run_files.write_json(folder / ABOUT, dict(about))
        whole_files.write(folder / CURVES, gzip.compress(text.getvalue().encode(), mtime=0))


def read(folder: Path) -> Setting | None:
    """Return what a setting's folder holds; None where it holds nothing.

    Raises:
        UserError: its files are damaged.
    """
    if not (folder / CURVES).exists():
        return None
    try:
        text = gzip.decompress((folder / CURVES).read_bytes()).decode()
        rows, about = _parse(text), files.read_json(folder / ABOUT)
        # A process that was killed between the two files left a row that is in one alone; its run has a folder.
        about["rows"] = {name: told for name, told in about["rows"].items() if name in rows}
        return Setting({name: one for name, one in rows.items() if name in about["rows"]}, about)
    except (OSError, ValueError, KeyError, IndexError, EOFError) as error:
        raise UserError(
            f"{folder}: {CURVES} or {ABOUT} is not as it was written ({error}); remove the folder, and repeat its part"
        ) from error


def _parse(text: str) -> dict[str, Series]:
    lines: dict[str, dict[int, list[list[str]]]] = {}
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != _COLUMNS:
        raise ValueError("its columns have other names")
    for name, seed, _, *values in reader:
        lines.setdefault(name, {}).setdefault(int(seed), []).append(values)
    return {name: _series(by_seed) for name, by_seed in lines.items()}


def _series(by_seed: dict[int, list[list[str]]]) -> Series:
    table = np.array([[[value or "nan" for value in line] for line in lines] for lines in by_seed.values()])
    accuracies = (table[..., place].astype(np.float32) for place in range(2))
    counts = (table[..., place].astype(np.int64) for place in range(2, 4))
    return Series(tuple(by_seed), *accuracies, *counts)


def _cell(value: float) -> str:
    return "" if np.isnan(value) else str(np.float32(value))  # the shortest text that reads back to the same number
