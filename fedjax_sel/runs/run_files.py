"""Files of a run folder: names, digests, and the rows of metrics.csv."""

import contextlib
import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.core import files
from fedjax_sel.errors import UserError
from fedjax_sel.runs.records import CLOCK, STEADY_CLOCK, Result
from fedjax_sel.simulation.state import Ledger


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Create a folder if it is missing, and turn write errors inside the block into a UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        why = f"cannot write to {folder} ({error.strerror or error})"
        raise UserError(f"--out: {why}; free disk space or give another folder") from error


def make_out_folder(folder: Path) -> None:
    """Create a folder if it is missing."""
    with writing(folder):
        pass


CONFIG, DATA, ENVIRONMENT = "config.json", "data.json", "environment.json"
METRICS, COHORTS, RESULT, CURVES = "metrics.csv", "cohorts.npy", "result.json", "curves.png"
PARAMS = "params.npz"
CHECKPOINTS = "checkpoints"
MOST_BYTES = 2**36  # limit for the files of rows and cohorts


def write_json(path: Path, value: Any) -> None:
    """Write plain values to a JSON file atomically."""
    files.write(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read an optional JSON object from a file; empty if it is lost or damaged."""
    with contextlib.suppress(OSError, ValueError):
        found = files.read_json(path)
        return found if isinstance(found, dict) else {}
    return {}


FORMAT = 1
_KINDS = {"rounds": int, "metrics": dict, "cohorts": str, "config": dict, "data": dict, "source": str}

Manifest = dict[str, Any]


class DamagedError(Exception):
    """An error in a manifest or in the files that it describes."""


def write(path: Path, about: Manifest) -> None:
    """Write a manifest of plain values atomically."""
    content = {**about, "format": FORMAT}
    text = json.dumps({**content, "digest": _digest(content)}, indent=1) + "\n"
    files.write(path, text.encode(), sync=True)


def read(path: Path) -> Manifest:
    """Return the entries of a manifest.

    Raises DamagedError if the file is missing, changed or unreadable, or has another format or values of wrong types.
    """
    try:
        content = files.read_json(path)
        if content.pop("digest") != _digest(content):
            raise DamagedError(f"{path.name} was changed")
        if content["format"] != FORMAT:
            raise DamagedError(f"its format is {content['format']}, but this version reads format {FORMAT}")
        for name, kind in _KINDS.items():
            if not isinstance(content.get(name, kind()), kind):
                raise DamagedError(f"its {name} is of type {type(content[name]).__name__}, not {kind.__name__}")
        if not isinstance(content.get("metrics", {"bytes": 0})["bytes"], int):
            raise DamagedError("its number of bytes is not an integer")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise DamagedError(f"{path.name} cannot be read ({message})") from error
    return content


def _digest(content: Manifest) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# `metrics.csv` has one row per replicate and round; rounds count from 1; an empty cell marks a missing measurement. Two
# runs of one configuration may differ only in columns that end in `_seconds`.
def columns(measured: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of `metrics.csv` for the given measures."""
    return ("seed", "round", *measured, *Ledger._fields, CLOCK, STEADY_CLOCK)


def csv_text(chunk: Result, first_round: int, header: bool, names: Sequence[str] | None = None) -> str:
    """Return the rows of `metrics.csv` for a chunk that starts with round first_round + 1.

    The table's columns `names`, fewer in a table of an earlier version, come first if `header`; None for all columns.
    """
    text = io.StringIO()
    names = columns(chunk.measured) if names is None else names
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    for index in range(chunk.num_rounds):
        for position, seed in enumerate(chunk.seeds):
            numbers = {name: np.float32(values[position, index]) for name, values in chunk.measured.items()}
            # The shortest text that parses to the same float32.
            measured = {name: "" if np.isnan(number) else str(number) for name, number in numbers.items()}
            counted = {name: int(column[position, index]) for name, column in chunk.ledger._asdict().items()}
            steady = chunk.round_seconds[index]
            clocks = {CLOCK: f"{chunk.elapsed_seconds[index]:.3f}"}
            clocks[STEADY_CLOCK] = "" if np.isnan(steady) else f"{steady:.6g}"
            writer.writerow({"seed": seed, "round": first_round + index + 1, **measured, **counted, **clocks})
    return text.getvalue()


def parse(
    config: Config, data_source: str, rows_text: str, cohorts: np.ndarray, higher_is_better: bool = True
) -> Result:
    """Return the Result from the content of a run folder's files, without rounds that lack a replicate's row.

    An incomplete last row is ignored. Cohorts are int32 [seeds, rounds, K]. An invalid `metrics.csv` raises ValueError.
    """
    try:
        return _parse(config, data_source, rows_text, cohorts, higher_is_better)
    except (TypeError, KeyError, IndexError, OverflowError, csv.Error) as error:
        raise ValueError(f"metrics.csv has an invalid row ({type(error).__name__}: {error})") from error


def _parse(config: Config, data_source: str, rows_text: str, cohorts: np.ndarray, higher_is_better: bool) -> Result:
    reader = csv.DictReader(io.StringIO(rows_text[: rows_text.rfind("\n") + 1]))
    rows, seeds = list(reader), config.run.seeds
    if not seeds:
        raise ValueError("its configuration has no seeds")
    # A killed run may have written more metrics than cohorts.
    num_rounds = min(len(rows) // len(seeds), cohorts.shape[1])
    order = {seed: position for position, seed in enumerate(seeds)}
    kept = [row for row in rows if int(row["round"]) <= num_rounds]

    def table(name: str, kind: type) -> np.ndarray:
        values = np.zeros((len(seeds), num_rounds), np.float32 if kind is float else np.int64)
        for row in kept:
            value = kind(row[name]) if row[name] else np.nan
            values[order[int(row["seed"])], int(row["round"]) - 1] = value
        return values

    once = [row for row in kept if int(row["seed"]) == seeds[0]]
    names = tuple(reader.fieldnames or ())
    if names[:2] != ("seed", "round") or Ledger._fields[0] not in names:
        raise ValueError("metrics.csv does not start with its column names")
    measured = {name: table(name, float) for name in names[2 : names.index(Ledger._fields[0])]}
    return Result(
        config=config,
        data_source=data_source,
        seeds=seeds,
        cohorts=cohorts[:, :num_rounds],
        ledger=Ledger(*(table(name, int) for name in Ledger._fields)),
        elapsed_seconds=np.array([float(row[CLOCK]) for row in once]),
        round_seconds=np.array([float(row.get(STEADY_CLOCK) or np.nan) for row in once]),
        measured=measured,
        higher_is_better=higher_is_better,
    )


def seconds_of(rows_text: str) -> float:
    """Return the total seconds of the rounds in the text of a `metrics.csv`; ValueError if it has no clock."""
    rows = list(csv.DictReader(io.StringIO(rows_text[: rows_text.rfind("\n") + 1])))
    if rows and rows[-1].get(CLOCK) is None:
        raise ValueError(f"it has no column {CLOCK}")
    return float(rows[-1][CLOCK]) if rows else 0.0


Digests = dict[str, Any]
