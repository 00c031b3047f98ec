"""Loggers for TensorBoard and Weights & Biases, as callbacks."""

import abc
import contextlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedjax_sel.core import files, plugins
from fedjax_sel.core.parsing import one_of
from fedjax_sel.errors import UserError

PROJECT = "fedjax_sel"  # default project name in the tools

Step = tuple[int, dict[str, float]]  # a round, from 1, and its metrics by name


class Log(abc.ABC):
    """Callback that logs a run to one tool.

    Attributes:
        tool: name of the tool in `--log` and of the extra.
        package: package to import; empty: none.
    """

    tool = package = ""

    def __init__(self, folder: str | Path, name: str | None = None):
        """Create the callback.

        Args:
            folder: folder for the tool's own files; created if missing.
            name: name of the tool run; None: the folder's name without `-log`.
        """
        self.folder = Path(folder)
        self.name = name or self.folder.name.removesuffix("-log")
        self._is_open = False
        advice = f'pip install "fedjax-sel[{self.tool}]", or leave --log out'
        self._module: Any = plugins.optional(self.package, f"--log {self.tool}", advice) if self.package else None

    def start(self, config: Any, rounds: int) -> None:
        """Open a tool run, or continue the one of the earlier rounds."""
        note: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):  # a lost or damaged note is empty
            note = files.read_json(self._note) if rounds else {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            plain = {  # the types that the tools accept
                name: value if isinstance(value, bool | int | float) else str(value)
                for name, value in config.flat().items()
            }
            self._identity = self.begin(plain, note.get("run"))
            self._written = note.get("rounds", 0)
            self._write_note()
        except OSError as error:
            why = f"{self.folder} cannot be written ({error.strerror or error})"
            raise UserError(f"--log {self.tool}: {why}; choose another --out") from error
        self._is_open = True

    def resume(self, earlier: Any) -> None:
        """Log the earlier rounds that are missing in the tool."""
        self.chunk(earlier, 0)

    def chunk(self, rounds: Any, first: int) -> None:
        """Log the rounds of a chunk."""
        new = [step for step in steps(rounds, first) if step[0] > self._written]
        if new:
            self.write(new)
            self._written = new[-1][0]
            with contextlib.suppress(OSError):  # without the note, a resumed run logs these rounds twice
                self._write_note()

    def end(self, result: Any) -> None:
        """Close the tool run, if one is open."""
        self._close(result.finished)

    def fail(self, error: BaseException) -> None:
        """Close the tool run as interrupted, because an open one would receive the next run's metrics."""
        del error
        self._close(False)

    def _close(self, finished: bool) -> None:
        if self._is_open:
            self._is_open = False
            self.finish(finished)

    @abc.abstractmethod
    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open a tool run, or continue the one with the ID `before`; return its ID."""

    @abc.abstractmethod
    def write(self, found: list[Step]) -> None:
        """Log rounds in order."""

    @abc.abstractmethod
    def finish(self, finished: bool) -> None:
        """Close the tool run; `finished` is whether all rounds are complete."""

    @property
    def _note(self) -> Path:
        return self.folder / f"{self.tool}.json"

    def _write_note(self) -> None:
        text = json.dumps({"run": self._identity, "rounds": self._written})
        self._note.write_text(f"{text}\n", encoding="utf-8")


def steps(rounds: Any, first: int) -> list[Step]:
    """Return the metrics of each round of a chunk, a `Result`, after `first` earlier rounds.

    Their names are `METRIC/seed_S`, `METRIC/mean` if there are several seeds, and `round_seconds`. The first chunk of a
    process has no `round_seconds`, because it includes compilation.
    """
    moved = {"megabytes_down": rounds.ledger.bytes_down / 1e6, "megabytes_up": rounds.ledger.bytes_up / 1e6}
    found = []
    for index in range(rounds.num_rounds):
        values: dict[str, float] = {}
        for name, table in {**rounds.measured, **moved}.items():
            column = table[:, index]
            by_seed = zip(rounds.seeds, column)
            values |= {f"{name}/seed_{seed}": float(one) for seed, one in by_seed if not math.isnan(one)}
            if len(column) > 1 and not any(map(math.isnan, column)):
                values[f"{name}/mean"] = float(column.mean())
        if not math.isnan(rounds.round_seconds[index]):
            values["round_seconds"] = float(rounds.round_seconds[index])
        found.append((first + index + 1, values))
    return found


class TensorBoard(Log):
    """Callback that logs all metrics of each seed for TensorBoard; requires the package tensorboardX."""

    tool, package = "tensorboard", "tensorboardX"

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open an event file; a resumed run has several, which TensorBoard shows as one run."""
        self._writer = self._module.SummaryWriter(str(self.folder))
        self._writer.add_text("configuration", "\n".join(f"    {key}: {value}" for key, value in config.items()))
        return self.tool

    def write(self, found: list[Step]) -> None:
        """Log rounds."""
        for step, values in found:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        self._writer.flush()  # a killed process would lose buffered events

    def finish(self, finished: bool) -> None:
        """Close the file."""
        del finished
        self._writer.close()


class WandB(Log):
    """Callback that logs all metrics of each seed to Weights & Biases; reads WANDB_PROJECT and so on."""

    tool = package = "wandb"

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open a new run, or resume an earlier one."""
        wandb = self._module
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=self.name,
                id=before,
                resume=None if before is None else "allow",
                dir=str(self.folder.resolve()),  # the wandb service runs in another working directory
                config=config,
                settings=wandb.Settings(console="off"),
            )
        except wandb.Error as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise UserError(
                f"--log wandb: Weights & Biases does not start ({reason}); log in with wandb login, or set "
                "WANDB_MODE=offline, which keeps the run on this machine"
            ) from error
        return self._run.id

    def write(self, found: list[Step]) -> None:
        """Log rounds."""
        for step, values in found:
            self._run.log(values, step=step)

    def finish(self, finished: bool) -> None:
        """Close the run; an interrupted one has the status "failed" until it is resumed."""
        self._run.finish(exit_code=0 if finished else 1)


# The values of `--log`, and their callbacks.
NAMES: dict[str, type[Log]] = {"tensorboard": TensorBoard, "wandb": WandB}


def make(names: str | Sequence[str], out: Path) -> list[Any]:
    """Return one callback per distinct key of NAMES; the tools of a run in OUT write their files to `OUT-log`."""
    names = [names] if isinstance(names, str) else names
    out = out.absolute()  # `Path(".").name` is empty
    folder = out.with_name(f"{out.name}-log")
    return [NAMES[one_of("--log", name, NAMES)](folder) for name in dict.fromkeys(names)]
