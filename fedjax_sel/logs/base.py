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
        package: that is imported.
    """

    tool = package = ""

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
            self._module: Any = importlib.import_module(self.package)
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
        before = self._known() if rounds else None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            identity = self.begin(_plain(config.flat()), before)
            if identity is not None:
                self._note.write_text(json.dumps({"run": identity}) + "\n", encoding="utf-8")
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"--log {self.tool}: {self.folder} cannot be written ({reason}); give another --out"
            ) from error
        self._begun = True

    def chunk(self, rounds: Any, first: int) -> None:
        """Write a chunk's rounds."""
        self.write(steps(rounds, first))

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

    def _known(self) -> str | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(self._note.read_text(encoding="utf-8"))["run"])
        return None


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
