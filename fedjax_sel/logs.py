"""Loggers for TensorBoard, Weights & Biases, MLflow, and Trackio, as callbacks."""

import contextlib
import importlib
import json
import math
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedjax_sel.core import files
from fedjax_sel.core.parsing import one_of
from fedjax_sel.errors import UserError

PROJECT = "fedjax_sel"  # default project name in the tools

Step = tuple[int, dict[str, float]]  # a round, from 1, and its metrics by name


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
            self._written = 0 if self.rewrites else note.get("rounds", 0)
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

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open a tool run, or continue the one with the ID `before`; return its ID."""
        raise NotImplementedError

    def write(self, found: list[Step]) -> None:
        """Log rounds in order."""
        raise NotImplementedError

    def finish(self, finished: bool) -> None:
        """Close the tool run; `finished` is whether all rounds are complete."""
        raise NotImplementedError

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


METRICS_A_CALL, PARAMETERS_A_CALL = 1000, 100  # MLflow's limits per call
STORE = "mlflow.db"


class MLflow(Log):
    """Callback that logs all metrics of each seed to MLflow."""

    tool = package = "mlflow"

    def __init__(self, folder: str | Path, name: str | None = None, tracking_uri: str | None = None):
        """Create the callback; see `Log`.

        Args:
            folder: folder for the tool's own files.
            name: name of the MLflow run; None: the folder's name without `-log`.
            tracking_uri: MLflow's store; None: MLFLOW_TRACKING_URI, else `mlflow.db` next to the folder. View it with
                `mlflow ui --backend-store-uri sqlite:///runs/mlflow.db`.
        """
        super().__init__(folder, name)
        self._uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open a new MLflow run, or reopen an earlier one."""
        beside = self.folder.parent.resolve()
        artifacts = None if self._uri else (beside / "mlflow-artifacts").as_uri()
        try:
            self._client = self._module.MlflowClient(self._uri or f"sqlite:///{beside / STORE}")
            experiment = self._client.get_experiment_by_name(PROJECT)
            create = self._client.create_experiment
            number = create(PROJECT, artifacts) if experiment is None else experiment.experiment_id
            if before is None:
                self._id = self._client.create_run(number, run_name=self.name).info.run_id
                parameters = [self._module.entities.Param(name, str(value)) for name, value in config.items()]
                for first in range(0, len(parameters), PARAMETERS_A_CALL):
                    self._client.log_batch(self._id, params=parameters[first : first + PARAMETERS_A_CALL])
            else:
                self._id = before
                self._client.update_run(before, status="RUNNING")
        except self._module.exceptions.MlflowException as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise UserError(
                f"--log mlflow: the store cannot be used ({reason}); repair it, or set MLFLOW_TRACKING_URI to another"
            ) from error
        return self._id

    def write(self, found: list[Step]) -> None:
        """Log rounds."""
        now, metric = int(1000 * time.time()), self._module.entities.Metric
        metrics = [metric(name, value, now, step) for step, values in found for name, value in values.items()]
        for first in range(0, len(metrics), METRICS_A_CALL):
            self._client.log_batch(self._id, metrics=metrics[first : first + METRICS_A_CALL])

    def finish(self, finished: bool) -> None:
        """Close the MLflow run; an interrupted one has the status KILLED until it is resumed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


class TensorBoard(Log):
    """Callback that logs all metrics of each seed for TensorBoard; requires the package tensorboardX."""

    tool, package = "tensorboard", "tensorboardX"
    rewrites = True  # a killed process may have lost buffered events

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open an event file; a resumed run replaces its earlier files and starts again at its first round."""
        purge = {} if before is None else {"purge_step": 0}
        self._writer = self._module.SummaryWriter(str(self.folder), **purge)
        self._writer.add_text("configuration", "\n".join(f"    {key}: {value}" for key, value in config.items()))
        return self.tool

    def write(self, found: list[Step]) -> None:
        """Log rounds."""
        for step, values in found:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

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


class Trackio(WandB):
    """Callback that logs all metrics of each seed to trackio; reads TRACKIO_DIR, TRACKIO_PROJECT and so on."""

    tool = package = "trackio"  # its runs have the interface of wandb's

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open a new run, or resume an earlier one by its unique name: trackio resumes the newest of that name."""
        self._run = self._module.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=before or f"{self.name}-{secrets.token_hex(3)}",
            config=config,
            resume="never" if before is None else "allow",
        )
        return self._run.name

    def finish(self, finished: bool) -> None:
        """Close the trackio run."""
        del finished
        self._run.finish()


# The values of `--log`, and their callbacks.
NAMES: dict[str, type[Log]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow, "trackio": Trackio}


def make(names: str | Sequence[str], out: Path) -> list[Any]:
    """Return one callback per distinct key of NAMES; the tools of a run in OUT write their files to `OUT-log`."""
    names = [names] if isinstance(names, str) else names
    out = out.absolute()  # `Path(".").name` is empty
    folder = out.with_name(f"{out.name}-log")
    return [NAMES[one_of("--log", name, NAMES)](folder) for name in dict.fromkeys(names)]
