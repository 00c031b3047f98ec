"""fedjax_sel: which clients should train this round?

import fedjax_sel
config = fedjax_sel.preset("quickstart").replace(algo="fl_dp3s", seeds=3)
result = fedjax_sel.run(config)
result.test_accuracy  # [seeds, rounds]
fedjax_sel.run_comparison(["random", "fl_dp3s"], out="runs/digits").to_pandas()
"""

import signal
from typing import TYPE_CHECKING, Any

from fedjax_sel.config import Config
from fedjax_sel.errors import DamagedRunError, NonFiniteUpdateError, UserError
from fedjax_sel.papers import preset
from fedjax_sel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fedjax_sel.data import Dataset
    from fedjax_sel.experiment import Experiment
    from fedjax_sel.reporting.compared import ComparisonResult
    from fedjax_sel.runs.records import Result
    from fedjax_sel.selector import Selector
    from fedjax_sel.strategies.base import Strategy
    from fedjax_sel.training.optimizers.base import FederatedOptimizer

__all__ = [
    "ComparisonResult", "Config", "DamagedRunError", "Dataset", "Experiment", "NonFiniteUpdateError",
    "Result", "Selector", "UserError", "__version__", "load", "per_client", "preset", "run",
    "run_comparison", "run_reproduction",
]  # fmt: skip


def run(
    experiment: "Experiment | Config",
    *,
    out: str | None = None,
    callbacks: Any = (),
    log: "str | Sequence[str]" = (),
    progress: bool = False,
) -> "Result":
    """Run an experiment; with a configuration, do the same as `python -m fedjax_sel.train`.

    Args:
        experiment: what to run: a configuration, e.g. `preset("fedcor/fmnist-1spc").replace(algo="fl_dp3s")`, or
            `Experiment.of(model=..., dataset=..., rounds=50)` with values in the place of names.
        out: run folder; None: the configuration's `out`, or none. A finished run there is read instead of repeated, and
            an unfinished one goes on.
        callbacks: one object, or several in a list or tuple, with any of the methods of
            `fedjax_sel.callbacks.Callback`: `start`, `chunk`, `end`, ...
        log: other tools that follow the run, as `--log` takes them: "tensorboard", ...
        progress: whether to show a bar: on stderr, or in a notebook's output.

    Returns:
        Arrays with leading axes [seeds, rounds].

    Raises:
        UserError: something in the configuration, the data or the folder that the user can mend.
        NonFiniteUpdateError: an update with NaN or infinity, unless `on_nonfinite` is "skip"; or a step of the server.
        DamagedRunError: the folder holds checkpoints, and none of them is whole.
        KeyboardInterrupt: Ctrl-C ended the run; its `result` is what was done until then. Where a notebook shows
            progress, that is returned instead, with a message.
        SystemExit: the same after SIGTERM (143) or as the terminal was closed (129).
    """
    from pathlib import Path

    from fedjax_sel import callbacks as given
    from fedjax_sel import logs
    from fedjax_sel.devices import hosts
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs import interruption
    from fedjax_sel.runs.experiment import run_experiment
    from fedjax_sel.runs.model_again import with_model

    experiment = experiment_of(experiment)
    with_folder = experiment if out is None else experiment.replace(out=out)
    folder = with_folder.config.run.out
    if log and folder is None:
        raise UserError("log: what a tool keeps lies beside the run's folder; give out as well")
    watching = (*given.check(callbacks), *(logs.make(log, Path(folder)) if folder and hosts.is_first() else ()))
    with interruption.with_result():
        result = with_model(run_experiment(with_folder, progress, watching), with_folder)
    if folder is not None and hosts.is_first():
        plots.curves_if_lost({result.config.selection.algo: result}, Path(folder) / "curves.png")
    interruption.end_script(result, result.stopped_by, progress)
    return result


def run_comparison(
    algos: "str | Strategy | Sequence[str | Strategy]",
    settings: "str | Config | Experiment | Sequence[str] | Mapping[str, Config | Experiment]" = "quickstart",
    *,
    out: "str | Path",
    optimizers: "str | FederatedOptimizer | Sequence[str | FederatedOptimizer] | None" = None,
    callbacks: Any = (),
    log: "str | Sequence[str]" = (),
    progress: bool = False,
) -> "ComparisonResult":
    """Run several strategies under the same conditions; do the same as `fedjax-sel compare`.

    Args:
        algos: strategies: values, or names, with parameters in brackets, e.g. "fl_dp3s[profile=gradient]".
        settings: in which each of them runs: a preset, a configuration, an experiment of your own data and model, or
            several of them by name.
        out: folder of the comparison; finished runs there are read instead of repeated.
        optimizers: federated optimizers, given likewise, under each of which each of them runs; None: the settings'.
        callbacks: objects as `run` takes them; all runs have the same ones, one run after another. A run that they end
            is in the tables with the rounds that it has.
        log: other tools that follow the runs, as `--log` takes them.
        progress: whether to tell of the runs on stderr.

    Returns:
        Its results, with their weights; `to_pandas()` and `tables` are what the CSV files in the folder hold.

    Raises:
        UserError: something that the user can mend, in any of the runs; nothing was run then.
        KeyboardInterrupt: Ctrl-C ended it; its `result` is what was done until then. Where a notebook shows progress,
            that is returned instead.
        SystemExit: the same after SIGTERM (143) or as the terminal was closed (129).
    """
    from fedjax_sel.reporting import compared
    from fedjax_sel.runs import interruption

    with interruption.with_result():
        found = compared.of_settings(algos, settings, out, optimizers, callbacks, log, progress)
    if found.stopped:
        interruption.end_script(found, found.stopped_by or signal.SIGINT, progress)
    return found


def run_reproduction(*_: Any, **__: Any) -> None:
    """Point to the reproductions, which moved to the source repository.

    Raises:
        UserError: always, with the new command.
    """
    from fedjax_sel.errors import UserError

    raise UserError("run_reproduction moved to the source repository; clone it, and run python -m studies reproduce")


def load(path: "str | Path", *, weights: str = "final") -> "Result":
    """Return the result in a run folder, with its weights.

    Args:
        path: the folder.
        weights: "final": the weights of a run that ended, at its last round or by a callback; None if a signal ended
            it. "latest": for a run that was interrupted or still continues, the weights of its newest checkpoint, which
            may be of fewer rounds than the result.

    Raises:
        UserError: there is no readable run, it is damaged, or there are no weights where the latest are asked for.
    """
    import dataclasses
    from pathlib import Path

    from fedjax_sel.core.names import one_of
    from fedjax_sel.runs import reading
    from fedjax_sel.runs import weights as files

    folder, which = Path(path), one_of("weights", weights, ("final", "latest"))
    result = reading.load(folder)
    found = files.latest(folder) if which == "latest" else files.final(folder, result.finished)
    return dataclasses.replace(result, weights=found)


def per_client(result: "Result", experiment: "Experiment | Config | None" = None) -> Any:
    """Return how well a run's final models do on each client's training data: measure or `loss` -> [seeds, N].

    Args:
        result: of `run` or `load`, with its weights.
        experiment: that it is the result of, of whatever seeds; None where its configuration says all.

    Raises:
        UserError: it has no weights, its data cannot be read, or it is the result of another experiment.
    """
    from fedjax_sel.runs import per_client

    return per_client.per_client(result, experiment)


# These need JAX or NumPy; `--help` and a configuration do not.
_LATE = {
    "ComparisonResult": "reporting.compared", "Dataset": "data", "Experiment": "experiment",
    "Result": "runs.records", "Selector": "selector",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LATE:
        return getattr(importlib.import_module(f"fedjax_sel.{_LATE[name]}"), name)
    advice = "; the function is fedjax_sel.run_comparison" if name == "compare" else ""
    raise AttributeError(f"module 'fedjax_sel' has no attribute {name!r}{advice}")
