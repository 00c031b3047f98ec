"""MLflow callback; the store is MLFLOW_TRACKING_URI, or a file next to the runs."""

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedjax_sel.errors import UserError
from fedjax_sel.logs.base import PROJECT, Log, Step

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
        """Open a new MLflow run, or reopen an earlier one.

        Raises:
            UserError: the store is not usable.
        """
        beside = self.folder.parent.resolve()
        artifacts = None if self._uri else (beside / "mlflow-artifacts").as_uri()
        try:
            self._client = self._module.MlflowClient(self._uri or f"sqlite:///{beside / STORE}")
            experiment = self._client.get_experiment_by_name(PROJECT)
            number = (
                self._client.create_experiment(PROJECT, artifacts) if experiment is None else experiment.experiment_id
            )
            if before is None:
                self._id = self._client.create_run(number, run_name=self.name).info.run_id
                self._describe(config)
            else:
                self._id = before
                self._client.update_run(before, status="RUNNING")
        except self._module.exceptions.MlflowException as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise UserError(
                f"--log mlflow: the store cannot be used ({reason}); repair it, or set MLFLOW_TRACKING_URI to another"
            ) from error
        return self._id

    def _describe(self, config: dict[str, Any]) -> None:
        for batch in _batches(config.items(), PARAMETERS_A_CALL):
            parameters = [self._module.entities.Param(name, str(value)) for name, value in batch]
            self._client.log_batch(self._id, params=parameters)

    def write(self, found: list[Step]) -> None:
        """Log rounds."""
        now = int(1000 * time.time())
        metrics = (
            self._module.entities.Metric(name, value, now, step)
            for step, values in found
            for name, value in values.items()
        )
        for batch in _batches(metrics, METRICS_A_CALL):
            self._client.log_batch(self._id, metrics=batch)

    def finish(self, finished: bool) -> None:
        """Close the MLflow run; an interrupted one has the status KILLED until it is resumed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
