"""Runs followed in other tools: TensorBoard, Weights & Biases, MLflow, trackio. Each is a callback, and an extra.

A run here is a run there, a round a step, and `test_accuracy/seed_0` a curve; with several seeds `test_accuracy/mean`
as well. A run that goes on after an interruption goes on there.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedjax_sel.core.names import one_of

if TYPE_CHECKING:
    from fedjax_sel.logs.mlflow import MLflow
    from fedjax_sel.logs.tensorboard import TensorBoard
    from fedjax_sel.logs.trackio import Trackio
    from fedjax_sel.logs.wandb import WandB

__all__ = ["NAMES", "MLflow", "TensorBoard", "Trackio", "WandB", "make"]

NAMES = {"tensorboard": "TensorBoard", "wandb": "WandB", "mlflow": "MLflow", "trackio": "Trackio"}
"""What `--log` takes -> the callback."""


def make(names: str | Sequence[str], out: Path) -> list[Any]:
    """Return a callback for each tool, once.

    Args:
        names: of NAMES, one or several.
        out: the run's folder; what a tool keeps beside runs lies in `OUT-log`.

    Raises:
        UserError: there is no such tool, or its package is missing.
    """
    names = [names] if isinstance(names, str) else names
    out = out.absolute()  # `.` has no name
    folder = out.with_name(f"{out.name}-log")
    return [_callback(NAMES[one_of("--log", name, NAMES)])(folder) for name in dict.fromkeys(names)]


def _callback(name: str) -> Any:
    return getattr(importlib.import_module(f"fedjax_sel.logs.{name.lower()}"), name)


def __getattr__(name: str) -> Any:
    if name in NAMES.values():
        return _callback(name)
    raise AttributeError(f"module 'fedjax_sel.logs' has no attribute {name!r}")
