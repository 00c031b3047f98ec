"""fedjax_sel: which clients should train this round?

import fedjax_sel
config = fedjax_sel.preset("quickstart").replace(algo="fl_dp3s", seeds=3)
result = fedjax_sel.run(config)
result.test_accuracy  # [seeds, rounds]
"""

from typing import TYPE_CHECKING, Any

from fedjax_sel.config import Config
from fedjax_sel.errors import DamagedRunError, NonFiniteUpdateError, UserError
from fedjax_sel.papers import preset
from fedjax_sel.version import __version__

if TYPE_CHECKING:
    from fedjax_sel.data import Dataset
    from fedjax_sel.experiment import Experiment
    from fedjax_sel.runs.records import Result
    from fedjax_sel.selector import Selector

__all__ = [
    "Config", "DamagedRunError", "Dataset", "Experiment", "NonFiniteUpdateError", "Result", "Selector", "UserError",
    "__version__", "load", "per_client", "preset", "run",
]  # fmt: skip


def run(
    experiment: "Experiment | Config", *, out: str | None = None, callbacks: Any = (), progress: bool = False
) -> "Result":
    """Run an experiment; with a configuration, do the same as `python -m fedjax_sel.train`.

    Args:
        experiment: what to run: a configuration, e.g. `preset("fedcor/fmnist-1spc").replace(algo="fl_dp3s")`, or
            `Experiment.of(model=..., dataset=..., rounds=50)` with values in the place of names.
        out: run folder; None: the configuration's `out`, or none. A finished run there is read instead of repeated, and
            an unfinished one goes on.
        callbacks: objects with any of the methods `start`, `chunk`, `snapshot` and `end`, see `fedjax_sel.callbacks`.
        progress: whether to show a bar: on stderr, or in a notebook's output.

    Returns:
        Arrays with leading axes [seeds, rounds].

    Raises:
        UserError: something in the configuration, the data or the folder that the user can mend.
        NonFiniteUpdateError: an update with NaN or infinity, unless `on_nonfinite` is "skip"; or a step of the server.
        DamagedRunError: the folder holds checkpoints, and none of them is whole.
    """
    from pathlib import Path

    from fedjax_sel.devices import hosts
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs.experiment import run_experiment

    with_folder = experiment if out is None else experiment.replace(out=out)
    result = run_experiment(with_folder, progress, callbacks)
    config = result.config
    if config.run.out is None or not hosts.is_first():
        return result
    plots.curves_if_lost({config.selection.algo: result}, Path(config.run.out) / "curves.png")
    return result


def load(path: str) -> "Result":
    """Return the result in a run folder, with the weights of a finished run.

    Args:
        path: the folder.

    Raises:
        UserError: there is no readable run, or it is damaged.
    """
    import dataclasses
    from pathlib import Path

    from fedjax_sel.runs import folder, weights

    result = folder.load(Path(path))
    # Those in the folder of a run that goes on are of the rounds before.
    return dataclasses.replace(result, weights=weights.read(Path(path))) if result.finished else result


def per_client(result: "Result", experiment: "Experiment | Config | None" = None) -> Any:
    """Return how well a run's final models do on each client's training data: measure or `loss` -> [seeds, N].

    Args:
        result: of `run` or `load`, with its weights.
        experiment: that it is the result of; None where its configuration says all.

    Raises:
        UserError: it has no weights, or its data cannot be read.
    """
    from fedjax_sel.runs import per_client

    return per_client.per_client(result, experiment)


def __getattr__(name: str) -> Any:
    # These need JAX; `--help` and a configuration do not.
    if name == "Result":
        from fedjax_sel.runs.records import Result

        return Result
    if name == "Experiment":
        from fedjax_sel.experiment import Experiment

        return Experiment
    if name == "Selector":
        from fedjax_sel.selector import Selector

        return Selector
    if name == "Dataset":
        from fedjax_sel.data import Dataset

        return Dataset
    raise AttributeError(f"module 'fedjax_sel' has no attribute {name!r}")
