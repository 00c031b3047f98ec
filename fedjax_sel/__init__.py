"""fedjax_sel: which clients should train this round?

import fedjax_sel
config = fedjax_sel.preset("quickstart").replace(algo="fl_dp3s", seeds=3)
result = fedjax_sel.run(config)
result.test_accuracy  # [seeds, rounds]
fedjax_sel.run_comparison(["random", "fl_dp3s"], out="runs/digits").to_pandas()
fedjax_sel.run_reproduction("fedgp/fig1").to_pandas()
"""

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
    from fedjax_sel.reproduction.study import ReproductionResult
    from fedjax_sel.runs.records import Result
    from fedjax_sel.selector import Selector
    from fedjax_sel.strategies.base import Strategy
    from fedjax_sel.training.optimizers.base import FederatedOptimizer

__all__ = [
    "ComparisonResult", "Config", "DamagedRunError", "Dataset", "Experiment", "NonFiniteUpdateError",
    "ReproductionResult", "Result", "Selector", "UserError", "__version__", "load", "per_client", "preset", "run",
    "run_comparison", "run_reproduction",
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
        callbacks: one object, or several in a list or tuple, with any of the methods of
            `fedjax_sel.callbacks.Callback`: `start`, `chunk`, `end`, ...
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
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs.experiment import run_experiment
    from fedjax_sel.runs.model_again import with_model

    experiment = experiment_of(experiment)
    with_folder = experiment if out is None else experiment.replace(out=out)
    result = with_model(run_experiment(with_folder, progress, callbacks), with_folder)
    config = result.config
    if config.run.out is None or not hosts.is_first():
        return result
    plots.curves_if_lost({config.selection.algo: result}, Path(config.run.out) / "curves.png")
    return result


def run_comparison(
    algos: "str | Strategy | Sequence[str | Strategy]",
    settings: "str | Config | Experiment | Sequence[str] | Mapping[str, Config | Experiment]" = "quickstart",
    *,
    out: "str | Path",
    optimizers: "str | FederatedOptimizer | Sequence[str | FederatedOptimizer] | None" = None,
    log: "Sequence[str]" = (),
    progress: bool = False,
) -> "ComparisonResult":
    """Run several strategies under the same conditions; do the same as `fedjax-sel compare`.

    Args:
        algos: strategies: values, or names, with parameters in brackets, e.g. "fl_dp3s[profile=gradient]".
        settings: in which each of them runs: a preset, a configuration, an experiment of your own data and model, or
            several of them by name.
        out: folder of the comparison; finished runs there are read instead of repeated.
        optimizers: federated optimizers, given likewise, under each of which each of them runs; None: the settings'.
        log: other tools that follow the runs, as `--log` takes them.
        progress: whether to tell of the runs on stderr.

    Returns:
        Its results; `to_pandas()` and `tables` are what the CSV files in the folder hold.

    Raises:
        UserError: something that the user can mend, in any of the runs; nothing was run then.
    """
    from fedjax_sel.reporting import compared

    return compared.of_settings(algos, settings, out, optimizers, log, progress)


def run_reproduction(
    entry: str,
    *,
    columns: "Sequence[str] | None" = None,
    rows: "Sequence[str] | None" = None,
    seeds: "int | Sequence[int] | None" = None,
    rounds: int | None = None,
    scale: float = 1.0,
    out: "str | Path" = "runs/papers",
    runs: "str | Path | None" = None,
    data_dir: str | None = None,
    jobs: int = 0,
    scheduler: str | None = None,
    progress: bool = False,
) -> "ReproductionResult":
    """Run a table or a figure of a paper again; do the same as `fedjax-sel reproduce`.

    Args:
        entry: which, e.g. "fedcor/table1"; `fedjax-sel reproduce --list` shows them.
        columns: some of its settings, or how their names begin; None: all.
        rows: some of its strategies or variants, by their names; None: all.
        seeds: a count or a list; None: the entry's.
        rounds: of training; None: the entry's.
        scale: share of the entry's rounds.
        out: folder of all pages.
        runs: where the runs' own folders go, into a folder `runs` there, and are read from if they are finished; None:
            beside the pages.
        data_dir: folder of prepared data.
        jobs: processes of this machine that take the runs; 0: this one.
        scheduler: the address of a Dask scheduler whose workers take them.
        progress: whether to tell of the runs on stderr.

    Returns:
        Its results; `to_pandas()` and `tables` are what the CSV files in the folder of its page hold.

    Raises:
        UserError: there is no such entry, column or row, a value is out of range, or no run succeeded.
    """
    from pathlib import Path

    from fedjax_sel.reproduction import study

    how_much = study.Asked(columns, rows, seeds, rounds, scale, data_dir, jobs, scheduler)
    folders = study.Folders(Path(out), None if runs is None else Path(runs))
    return study.of_entry(entry, how_much, folders, progress)


def load(path: str) -> "Result":
    """Return the result in a run folder, with the weights of a finished run.

    Args:
        path: the folder.

    Raises:
        UserError: there is no readable run, or it is damaged.
    """
    import dataclasses
    from pathlib import Path

    from fedjax_sel.runs import reading, weights

    result = reading.load(Path(path))
    # Those in the folder of a run that goes on are of the rounds before.
    return dataclasses.replace(result, weights=weights.read(Path(path))) if result.finished else result


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
    "ReproductionResult": "reproduction.study", "Result": "runs.records", "Selector": "selector",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LATE:
        return getattr(importlib.import_module(f"fedjax_sel.{_LATE[name]}"), name)
    other = {"compare": "run_comparison", "reproduce": "run_reproduction"}.get(name)
    advice = f"; the function is fedjax_sel.{other}, and {name} is the command" if other else ""
    raise AttributeError(f"module 'fedjax_sel' has no attribute {name!r}{advice}")
