"""What all tools have in common: from chunks of rounds to numbers with names and steps."""

import contextlib
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.errors import UserError

PROJECT = "fedjax_sel"  # what runs are filed under, unless the tool's own settings say otherwise

Step = tuple[int, dict[str, float]]
"""A round, from 1, and what was measured in it."""


class Log:
    """Follows a run in a tool. A tool says what it needs, and how a run begins, goes on and ends there.

    Attributes:
        tool: its name, as `--log` and the extra have it.
        package: that is imported; empty: none.
        writes_anew: whether a run that goes on is written from its first round.
    """

    tool = package = ""
    writes_anew = False

    def __init__(self, folder: str | Path, name: str | None = None):
        """Make the callback.

        Args:
            folder: for what has to be kept beside runs; is made where it is missing.
            name: of the run there; None: that of the folder.

        Raises:
            UserError: the tool's package is missing.
        """
        self.folder = Path(folder)
        self.name = name or self.folder.name.removesuffix("-log")
        self._begun = False
        try:
            self._module: Any = importlib.import_module(self.package) if self.package else None
        except ImportError as error:
            raise UserError(
                f'--log {self.tool}: the package {self.package} is missing; pip install "fedjax-sel[{self.tool}]", or '
                "leave --log out"
            ) from error

    def start(self, config: Any, rounds: int) -> None:
        """Begin a run there, or go on with the one of the rounds before.

        Raises:
            UserError: the tool cannot be used.
        """
        note = self._noted() if rounds else {}
        before = note.get("run")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            identity = self.begin(_plain(config.flat()), before)
            written = note.get("rounds", rounds) if note else 0  # an older note does not say how many
            self._written = written if isinstance(written, int) and not self.writes_anew else 0
            self._identity = identity
            self._remember()
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"--log {self.tool}: {self.folder} cannot be written ({reason}); give another --out"
            ) from error
        self._begun = True

    def resume(self, earlier: Any) -> None:
        """Write the rounds that are behind and were not written there."""
        self._add(steps(earlier, 0))

    def chunk(self, rounds: Any, first: int) -> None:
        """Write a chunk's rounds."""
        self._add(steps(rounds, first))

    def _add(self, found: list[Step]) -> None:
        new = [step for step in found if step[0] > self._written]
        if new:
            self.write(new)
            self._written = new[-1][0]
            with contextlib.suppress(OSError):  # then they come again
                self._remember()

    def end(self, result: Any) -> None:
        """End the run there; nothing where it was only read here."""
        if self._begun:
            self._begun = False
            self.finish(result.finished)

    def fail(self, error: BaseException) -> None:
        """End the run there as one that was interrupted: a tool with a run in hand would take the next one for it."""
        del error
        if self._begun:
            self._begun = False
            self.finish(False)

    def begin(self, config: dict[str, Any], before: str | None) -> str | None:
        """Begin a run there.

        Args:
            config: plain values by flat name.
            before: what identifies the run there that this one goes on with; None: a new one.

        Returns:
            What identifies it; None where a tool does not need that.
        """
        raise NotImplementedError

    def write(self, found: list[Step]) -> None:
        """Write rounds, in their order."""
        raise NotImplementedError

    def finish(self, finished: bool) -> None:
        """End the run there.

        Args:
            finished: whether all rounds were run.
        """
        raise NotImplementedError

    @property
    def _note(self) -> Path:
        return self.folder / f"{self.tool}.json"

    def _remember(self) -> None:
        text = json.dumps({"run": self._identity, "rounds": self._written})
        self._note.write_text(f"{text}\n", encoding="utf-8")

    def _noted(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            note = json.loads(self._note.read_text(encoding="utf-8"))
            if isinstance(note, dict):
                return note
        return {}


def steps(rounds: Any, first: int) -> list[Step]:
    """Return what was measured in each round of a chunk.

    Args:
        rounds: the chunk, a `Result`.
        first: rounds before it.

    Returns:
        By name: `MEASURE/seed_S`, with several seeds `MEASURE/mean`, and `round_seconds` where it is known, which it is
        not in the first chunk of a process, that compiles.
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
    """Return a configuration as tools take it: numbers, truth values and texts."""
    return {name: value if isinstance(value, bool | int | float) else str(value) for name, value in values.items()}
