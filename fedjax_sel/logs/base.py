"""Base class of the callbacks, which converts chunks of rounds to named metrics per step."""

import contextlib
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.errors import UserError

PROJECT = "fedjax_sel"  # default project name in the tools

Step = tuple[int, dict[str, float]]
"""A round, from 1, and its metrics by name."""


class Log:
    """Callback that logs a run to one tool. Subclasses implement `begin`, `write` and `finish`.

    Attributes:
        tool: name of the tool in `--log` and of the extra.
        package: package to import; empty: none.
        rewrites: whether a resumed run is logged again from its first round.
    """

    tool = package = ""
    rewrites = False

    def __init__(self, folder: str | Path, name: str | None = None):
        """Create the callback.

        Args:
            folder: folder for the tool's own files; created if missing.
            name: name of the tool run; None: the folder's name without `-log`.

        Raises:
            UserError: the tool's package is missing.
        """
        self.folder = Path(folder)
        self.name = name or self.folder.name.removesuffix("-log")
        self._is_open = False
        try:
            self._module: Any = importlib.import_module(self.package) if self.package else None
        except ImportError as error:
            raise UserError(
                f'--log {self.tool}: the package {self.package} is missing; pip install "fedjax-sel[{self.tool}]", or '
                "leave --log out"
            ) from error

    def start(self, config: Any, rounds: int) -> None:
        """Open a tool run, or continue the one of the earlier rounds.

        Raises:
            UserError: the tool is not usable.
        """
        note = self._read_note() if rounds else {}
        before = note.get("run")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            identity = self.begin(_plain(config.flat()), before)
            written = note.get("rounds", rounds) if note else 0  # notes of older versions have no `rounds`
            self._written = written if isinstance(written, int) and not self.rewrites else 0
            self._identity = identity
            self._write_note()
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"--log {self.tool}: {self.folder} cannot be written ({reason}); choose another --out"
            ) from error
        self._is_open = True

    def resume(self, earlier: Any) -> None:
        """Log the earlier rounds that are missing in the tool."""
        self._add(steps(earlier, 0))

    def chunk(self, rounds: Any, first: int) -> None:
        """Log the rounds of a chunk."""
        self._add(steps(rounds, first))

    def _add(self, found: list[Step]) -> None:
        new = [step for step in found if step[0] > self._written]
        if new:
            self.write(new)
            self._written = new[-1][0]
            with contextlib.suppress(OSError):  # without the note, a resumed run logs these rounds twice
                self._write_note()

    def end(self, result: Any) -> None:
        """Close the tool run, if one is open."""
        if self._is_open:
            self._is_open = False
            self.finish(result.finished)

    def fail(self, error: BaseException) -> None:
        """Close the tool run as interrupted, because an open one would receive the next run's metrics."""
        del error
        if self._is_open:
            self._is_open = False
            self.finish(False)

    def begin(self, config: dict[str, Any], before: str | None) -> str | None:
        """Open a tool run.

        Args:
            config: plain values by flat name.
            before: ID of the tool run to continue; None: a new one.

        Returns:
            ID of the tool run; None if the tool has no IDs.
        """
        raise NotImplementedError

    def write(self, found: list[Step]) -> None:
        """Log rounds in order."""
        raise NotImplementedError

    def finish(self, finished: bool) -> None:
        """Close the tool run.

        Args:
            finished: whether all rounds are complete.
        """
        raise NotImplementedError

    @property
    def _note(self) -> Path:
        return self.folder / f"{self.tool}.json"

    def _write_note(self) -> None:
        text = json.dumps({"run": self._identity, "rounds": self._written})
        self._note.write_text(f"{text}\n", encoding="utf-8")

    def _read_note(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            note = json.loads(self._note.read_text(encoding="utf-8"))
            if isinstance(note, dict):
                return note
        return {}


def steps(rounds: Any, first: int) -> list[Step]:
    """Return the metrics of each round of a chunk.

    Args:
        rounds: the chunk, a `Result`.
        first: number of earlier rounds.

    Returns:
        Metrics by name: `METRIC/seed_S`, `METRIC/mean` if there are several seeds, and `round_seconds`. The first chunk
        of a process has no `round_seconds`, because it includes compilation.
    """
    moved = {"megabytes_down": rounds.ledger.bytes_down / 1e6, "megabytes_up": rounds.ledger.bytes_up / 1e6}
    found = []
    for index in range(rounds.num_rounds):
        values: dict[str, float] = {}
        for name, table in {**rounds.measured, **moved}.items():
            column = np.asarray(table)[:, index]
            values |= {
                f"{name}/seed_{seed}": float(one) for seed, one in zip(rounds.seeds, column) if not np.isnan(one)
            }
            if len(column) > 1 and not np.isnan(column).any():
                values[f"{name}/mean"] = float(column.mean())
        if not np.isnan(rounds.round_seconds[index]):
            values["round_seconds"] = float(rounds.round_seconds[index])
        found.append((first + index + 1, values))
    return found


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with only numbers, Booleans and strings, the types that the tools accept."""
    return {name: value if isinstance(value, bool | int | float) else str(value) for name, value in values.items()}
