"""fedjax_sel: a JAX simulator for client selection in federated learning.

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

    import numpy as np

    from fedjax_sel.data import Dataset
    from fedjax_sel.experiment import Experiment
    from fedjax_sel.reporting.compared import ComparisonResult
    from fedjax_sel.runs.run_files import Result
    from fedjax_sel.selector import Selector
    from fedjax_sel.strategies.contract import Strategy
    from fedjax_sel.training.optimizers import FederatedOptimizer

__all__ = [
    "ComparisonResult", "Config", "DamagedRunError", "Dataset", "Experiment", "NonFiniteUpdateError",
    "Result", "Selector", "UserError", "__version__", "availability_table", "load", "measures", "per_client", "preset",
    "run", "run_comparison", "sweep",
]  # fmt: skip


def run(
    experiment: "Experiment | Config",
    *,
    out: str | None = None,
    callbacks: Any = (),
    log: "str | Sequence[str]" = (),
    progress: bool = False,
) -> "Result":
    """Run an experiment; a configuration runs as with `python -m fedjax_sel.train`.

    Args:
        experiment: a configuration, e.g. `preset("fedcor/fmnist-1spc").replace(algo="fl_dp3s")`, or an experiment with
            Python values in place of names, e.g. `Experiment.of(model=..., dataset=..., rounds=50)`.
        out: run folder; None: the configuration's `out`, if any. A finished run in the folder is loaded, and an
            unfinished one is resumed.
        callbacks: one object, or a list or tuple of objects, with any of the methods of
            `fedjax_sel.callbacks.Callback`: `start`, `chunk`, `end`, ...
        log: names of loggers, as for `--log`: "tensorboard", ...
        progress: whether to show a progress bar, on stderr or in a notebook's output.

    Returns:
        The run's result; arrays have leading axes [seeds, rounds].

    Raises:
        UserError: the configuration, the data or the folder is invalid; the message says how to fix it.
        NonFiniteUpdateError: an update held NaN or infinity and `on_nonfinite` is not "skip", or the server's step did.
        DamagedRunError: all checkpoints in the folder are damaged.
        KeyboardInterrupt: Ctrl-C ended the run. Its attribute `result` holds the rounds so far. A notebook that shows
            progress returns that result instead, with a message.
        SystemExit: SIGTERM ended the run (code 143), or the terminal was closed (code 129).
    """
    from contextlib import suppress
    from pathlib import Path

    from fedjax_sel import callbacks as given
    from fedjax_sel import logs
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs import run_files, terminal
    from fedjax_sel.runs.experiment import run_experiment
    from fedjax_sel.runs.reading import with_model

    experiment = experiment_of(experiment)
    with_folder = experiment if out is None else experiment.replace(out=out)
    folder = with_folder.config.run.out
    if log and folder is None:
        raise UserError("log: loggers write beside the run folder; give out= as well")
    watching = (*given.check(callbacks), *(logs.make(log, Path(folder)) if folder else ()))
    with terminal.with_result():
        result = with_model(run_experiment(with_folder, progress, watching), with_folder)
    if folder is not None:
        with suppress(UserError):  # the folder of a finished run may be read-only
            plots.curves_if_lost({result.config.selection.algo: result}, Path(folder) / run_files.CURVES)
    terminal.end_script(result, result.stopped_by, progress)
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
    """Run several strategies under the same conditions, as `fedjax-sel compare` does.

    Args:
        algos: strategies, as values or as names with parameters in brackets, e.g. "fl_dp3s[profile=gradient]".
        settings: a preset, a configuration, an experiment with your own data and model, a list of presets, or a mapping
            from names to configurations and experiments. Each strategy runs in each setting.
        out: folder of the comparison; finished runs in it are loaded.
        optimizers: federated optimizers, as values or as names; each strategy runs under each of them. None: the
            optimizer of the settings.
        callbacks: callbacks as for `run`; all runs use the same objects, one run after another. The tables include a
            run that a callback ends early, with the rounds that it has.
        log: names of loggers, as for `--log`.
        progress: whether to report progress on stderr.

    Returns:
        The results, with their weights; `to_pandas()` and `tables` hold the content of the folder's CSV files.

    Raises:
        UserError: one of the runs is invalid; the check precedes all runs.
        KeyboardInterrupt: Ctrl-C ended the runs. Its attribute `result` holds the results so far. A notebook that shows
            progress returns those results instead.
        SystemExit: SIGTERM ended the runs (code 143), or the terminal was closed (code 129).
    """
    from fedjax_sel.reporting import compared
    from fedjax_sel.runs import terminal

    with terminal.with_result():
        found = compared.compare(algos, settings, out, optimizers, callbacks, log, progress)
    if found.stopped:
        terminal.end_script(found, found.stopped_by or signal.SIGINT, progress)
    return found


def sweep(
    algos: "str | Strategy | Sequence[str | Strategy]",
    setting: "str | Config | Experiment",
    values: "Mapping[str, Sequence[Any]]",
    *,
    out: "str | Path",
    progress: bool = False,
) -> "ComparisonResult":
    """Run strategies over a grid of settings, as `fedjax-sel compare --sweep` does.

    Args:
        algos: strategies, as for `run_comparison`.
        setting: a preset, a configuration or an experiment, which the values change.
        values: field -> its values, e.g. {"learning_rate": [0.01, 0.02]}; several fields make a grid.
        out: folder; it also holds the heat map `sweep.png`.
        progress: whether to report progress on stderr.

    Returns:
        The results; a row's `setting` names the values, e.g. "learning_rate=0.01".

    Raises:
        UserError: one of the runs is invalid; the check precedes all runs.
    """
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.reporting import compared, sweeps

    base = experiment_of(preset(setting) if isinstance(setting, str) else setting)
    grid = sweeps.make_grid(values)
    settings = {name: base.replace(**point) for name, point in grid.items()}
    return compared.compare(algos, settings, out, None, (), (), progress, grid)


def load(path: "str | Path") -> "Result":
    """Load the result of a run folder, with the final weights of a run that has ended.

    Args:
        path: run folder.

    Raises:
        UserError: the folder holds no readable run, or the run is damaged.
    """
    import dataclasses
    from pathlib import Path

    from fedjax_sel.runs import checkpoint, reading

    folder = Path(path).expanduser()
    return dataclasses.replace(reading.load(folder), weights=checkpoint.read_weights(folder))


def per_client(result: "Result", experiment: "Experiment | Config | None" = None, on: str = "train") -> Any:
    """Evaluate a run's final models on each client's data.

    Args:
        result: result of `run` or `load`, with its weights.
        experiment: experiment of the run, with any seeds; needed only if it holds Python values. None: the result's
            configuration.
        on: "train" for each client's training data; "test" for its own test data, where unseen clients come last.

    Returns:
        Name of a measure, or `loss` -> means over each client's examples, [seeds, N]; NaN for a client without
        examples. With `on="test"`, `examples` counts them, and `client` is the natural client of each column, if the
        data have some: its number in `client_ids`, or the place of its name among the sorted names. Seeds differ.

    Raises:
        UserError: the result has no weights, the data cannot be read, or the experiment is another one.
    """
    from fedjax_sel.core.parsing import one_of
    from fedjax_sel.runs import reading as per_client

    return per_client.per_client(result, experiment, one_of("on", on, ("train", "test")))


def measures(result: "Result", experiment: "Experiment | Config | None" = None, on: str = "test") -> Any:
    """Return the measures that papers report, of a run's final models.

    Classification: accuracy, balanced accuracy, macro F1, AUC (mean over classes, one against the rest), top-5
    accuracy. Multilabel: accuracy, macro F1, AUC. Next token: accuracy of tokens, perplexity. Regression: mean
    absolute error, R2.

    Args:
        result: result of `run` or `load`, with its weights.
        experiment: as for `per_client`.
        on: "test" for the test set; "clients" for each client's own test data, where unseen clients come last.

    Returns:
        Name of a measure -> [seeds], or [seeds, N] on clients; NaN where it is undefined: for a client without test
        data, an AUC of one class, or an R2 of equal targets.

    Raises:
        UserError: the result has no weights, the data cannot be read, or the experiment is another one.
    """
    from fedjax_sel.runs.measures import measure

    return measure(result, experiment, on)


def availability_table(experiment: "Experiment | Config", seed: int = 0) -> "np.ndarray":
    """Return the clients that are available in each round of an experiment, without running it.

    Args:
        experiment: a configuration or an experiment; its own seeds are ignored.
        seed: seed of the replicate.

    Returns:
        Availability, bool [rounds, clients]: a value for `Experiment.of(available=...)`, and the transpose of a file
        for `--available`.

    Raises:
        UserError: the configuration or the data is invalid.
    """
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.simulation.layout import availability_table

    return availability_table(experiment_of(experiment), seed)


# Imported on first use: these need JAX or NumPy, which `--help` and a configuration do not.
_LATE = {
    "ComparisonResult": "reporting.compared", "Dataset": "data", "Experiment": "experiment",
    "Result": "runs.run_files", "Selector": "selector",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LATE:
        return getattr(importlib.import_module(f"fedjax_sel.{_LATE[name]}"), name)
    advice = "; the function is fedjax_sel.run_comparison" if name == "compare" else ""
    raise AttributeError(f"module 'fedjax_sel' has no attribute {name!r}{advice}")
