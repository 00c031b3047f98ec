"""Callbacks that log runs to TensorBoard, Weights & Biases, MLflow or trackio, each an optional extra.

One run of this package is one run of the tool, and one round is one step. Curves have names such as
`test_accuracy/seed_0`; with several seeds there is also `test_accuracy/mean`. A resumed run continues its tool run.
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
"""Values of `--log`, and the class of each callback."""


def make(names: str | Sequence[str], out: Path) -> list[Any]:
    """Return one callback per distinct tool.

    Args:
        names: one or several keys of NAMES.
        out: folder of the run; tools write their own files to `OUT-log`.

    Raises:
        UserError: a tool is unknown, or its package is missing.
    """
    names = [names] if isinstance(names, str) else names
    out = out.absolute()  # `Path(".").name` is empty
    folder = out.with_name(f"{out.name}-log")
    return [_callback(NAMES[one_of("--log", name, NAMES)])(folder) for name in dict.fromkeys(names)]


def _callback(name: str) -> Any:
    return getattr(importlib.import_module(f"fedjax_sel.logs.{name.lower()}"), name)


def __getattr__(name: str) -> Any:
    if name in NAMES.values():
        return _callback(name)
    raise AttributeError(f"module 'fedjax_sel.logs' has no attribute {name!r}")
