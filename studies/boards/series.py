"""Committed record of the runs: accuracy, bytes and simulated seconds per round and seed.

A setting's folder contains

    curves.csv.gz   one line per table row, seed and round; with the simulated seconds if the runs have a clock,
                    and the accuracy on the clients' own tests if they have any
    about.json      provenance: commands, data source, and the commit, versions and seconds of each row

All other files in the folder are generated from these two.
"""

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import Result, UserError
from fedjax_sel.core import files
from fedjax_sel.runs import run_files

CURVES, ABOUT = "curves.csv.gz", "about.json"
_COLUMNS = ("row", "seed", "round", "test_accuracy", "worst_decile_accuracy", "bytes_down", "bytes_up")
_ACCURACIES, _BYTES = _COLUMNS[3:5], _COLUMNS[5:]
_CLOCK = "seconds"  # next column, in a setting with simulated time
CLIENTS = tuple(
    f"{kind}_test_{name}" for kind in ("client", "unseen") for name in ("accuracy", "worst_decile_accuracy")
)
"""Last columns, in a setting with clients' own tests: mean and worst decile over training and unseen clients."""


class Series(NamedTuple):
    """Runs of a row. Arrays are [seeds, rounds], NaN in rounds without evaluation."""

    seeds: tuple[int, ...]
    test_accuracy: np.ndarray
    worst_decile_accuracy: np.ndarray  # training accuracy of the worst tenth of the clients
    bytes_down: np.ndarray  # per round, int64
    bytes_up: np.ndarray
    seconds: np.ndarray | None = None  # simulated, per round, float32; None without a clock
    clients: Mapping[str, np.ndarray] = MappingProxyType({})  # by column of CLIENTS; empty without clients' tests

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.test_accuracy.shape[1]

    @property
    def megabytes(self) -> np.ndarray:
        """Cumulative communication after each round, download and upload, MB [seeds, rounds]."""
        return (self.bytes_down + self.bytes_up).cumsum(axis=1) / 1e6

    @property
    def time(self) -> np.ndarray:
        """Simulated seconds from the start to the end of each round, float64 [seeds, rounds]."""
        assert self.seconds is not None, "only in a setting with simulated time"
        return self.seconds.cumsum(axis=1, dtype=np.float64)


class Setting(NamedTuple):
    """Content of a setting's folder."""

    rows: dict[str, Series]  # by name, in table order
    about: dict[str, Any]


def of_result(result: Result) -> Series:
    """Return the series of a finished run."""
    return Series(
        result.seeds,
        np.asarray(result.test_accuracy, np.float32),
        np.asarray(result.worst_decile_accuracy, np.float32),
        np.asarray(result.ledger.bytes_down, np.int64),
        np.asarray(result.ledger.bytes_up, np.int64),
        np.asarray(result.measured[_CLOCK], np.float32) if result.has_clock else None,
        {name: np.asarray(result.measured[name], np.float32) for name in CLIENTS if name in result.measured},
    )


def write(folder: Path, rows: Mapping[str, Series], about: Mapping[str, Any]) -> None:
    """Write a setting's two files atomically; equal content yields equal bytes.

    Args:
        folder: folder of the setting; created if missing.
        rows: series by row name, in table order.
        about: JSON-serializable provenance.

    Raises:
        UserError: a file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    timed = any(series.seconds is not None for series in rows.values())
    clients = [name for name in CLIENTS if any(name in series.clients for series in rows.values())]
    writer.writerow((*_COLUMNS, *([_CLOCK] if timed else []), *clients))
    for name, series in rows.items():
        for place, seed in enumerate(series.seeds):
            for index in range(series.rounds):
                accuracies = (_cell(getattr(series, column)[place, index]) for column in _ACCURACIES)
                counts = (int(getattr(series, column)[place, index]) for column in _BYTES)
                seconds = () if series.seconds is None else (_cell(series.seconds[place, index]),)
                of_clients = (_cell(series.clients[column][place, index]) for column in clients)
                writer.writerow((name, seed, index + 1, *accuracies, *counts, *seconds, *of_clients))
    with run_files.writing(folder):
        run_files.write_json(folder / ABOUT, dict(about))
        files.write(folder / CURVES, gzip.compress(text.getvalue().encode(), mtime=0))


def read(folder: Path) -> Setting | None:
    """Return the content of a setting's folder; None if the folder has no curves.

    Raises:
        UserError: a file is damaged.
    """
    if not (folder / CURVES).exists():
        return None
    try:
        text = gzip.decompress((folder / CURVES).read_bytes()).decode()
        rows, about = _parse(text), files.read_json(folder / ABOUT)
        # A process killed between the two writes leaves a row in one file only. Its run folder still exists.
        about["rows"] = {name: details for name, details in about["rows"].items() if name in rows}
        return Setting({name: one for name, one in rows.items() if name in about["rows"]}, about)
    except (OSError, ValueError, KeyError, IndexError, EOFError) as error:
        raise UserError(
            f"{folder}: {CURVES} or {ABOUT} is not as it was written ({error}); remove the folder, and repeat its part"
        ) from error


def _parse(text: str) -> dict[str, Series]:
    lines: dict[str, dict[int, list[list[str]]]] = {}
    reader = csv.reader(io.StringIO(text))
    header = tuple(next(reader, ()))
    more = header[len(_COLUMNS) :]
    if header[: len(_COLUMNS)] != _COLUMNS or not {*more} <= {_CLOCK, *CLIENTS}:
        raise ValueError("its columns have other names")
    for name, seed, _, *values in reader:
        lines.setdefault(name, {}).setdefault(int(seed), []).append(values)
    return {name: _series(by_seed, more) for name, by_seed in lines.items()}


def _series(by_seed: dict[int, list[list[str]]], more: Sequence[str]) -> Series:
    table = np.array([[[value or "nan" for value in line] for line in lines] for lines in by_seed.values()])
    accuracies = (table[..., place].astype(np.float32) for place in range(2))
    counts = (table[..., place].astype(np.int64) for place in range(2, 4))
    others = {name: table[..., place].astype(np.float32) for place, name in enumerate(more, 4)}
    return Series(tuple(by_seed), *accuracies, *counts, seconds=others.pop(_CLOCK, None), clients=others)


def _cell(value: float) -> str:
    return "" if np.isnan(value) else str(np.float32(value))  # shortest text that parses to the same number


def plain(value: object) -> str:
    """Return a CSV cell: a number with seven digits; empty for None and NaN."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    return f"{value:.7g}" if isinstance(value, float | np.floating) else str(value)
