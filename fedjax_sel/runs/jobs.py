"""The runs of a comparison: each strategy in each setting, with each optimizer."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.core import parsing
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.experiment import Experiment
    from fedjax_sel.strategies.base import Strategy
    from fedjax_sel.training.optimizers.base import FederatedOptimizer


class Job(NamedTuple):
    """One run of a comparison; `config.run.out` is its folder."""

    setting: str  # the preset
    algo: str  # display name of the strategy with its parameters
    experiment: "Experiment | Config"
    optimizer: str = ""  # display name of the federated optimizer with its parameters, if several are compared

    @property
    def config(self) -> Config:
        """The experiment's configuration."""
        return self.experiment if isinstance(self.experiment, Config) else self.experiment.config

    @property
    def conditions(self) -> str:
        """The setting and the optimizer; jobs under equal conditions differ only in strategy and folder."""
        return f"{self.setting}, {self.optimizer}" if self.optimizer else self.setting


def parse_algo(text: str, flag: str = "--algos") -> tuple[str, dict[str, str]]:
    """Parse an item of --algos or --optimizers: `name` or `name[key=value,key=value]`.

    Args:
        text: the item.
        flag: the item's flag, for messages.

    Returns:
        The name and the parameters in alphabetical order.

    Raises:
        UserError: the item does not have that form.
    """
    example = {"--algos": 'e.g. "fl_dp3s[profile=gradient]"', "--optimizers": 'e.g. "fedprox[mu=0.1]"'}[flag]
    return parsing.name_and_parameters(flag, text, example)


def label(name: str, values: dict[str, str]) -> str:
    """Format a name and its parameters in the syntax of `parse_algo`."""
    return f"{name}[{','.join(f'{key}={value}' for key, value in values.items())}]" if values else name


def make_jobs(
    settings: "Mapping[str, Experiment | Config]",
    algos: "Sequence[str | Strategy]",
    out: Path,
    subfolders: bool,
    optimizers: "Sequence[str | FederatedOptimizer] | None" = None,
) -> list[Job]:
    """Create one job for each combination of setting, optimizer and strategy.

    Args:
        settings: experiments by name; their strategy and folder are replaced.
        algos: strategies, or items in the syntax of `parse_algo`.
        out: the comparison's folder.
        subfolders: whether each setting has its own folder.
        optimizers: optimizers, or items in the syntax of `parse_algo`, each with its own folder; None for the
            optimizers of the settings.

    Raises:
        UserError: an item cannot be parsed, or occurs twice.
    """
    strategies = _items("--algos", algos)
    chosen = [_Item("", "", {})] if optimizers is None else _items("--optimizers", optimizers)
    if subfolders:
        _check_folders(settings)
    jobs = []
    for setting, experiment in settings.items():
        for optimizer in chosen:
            place = (out / _folder_of(setting) if subfolders else out) / optimizer.folder
            for strategy in strategies:
                changed = {**optimizer.changes, **strategy.changes, "out": str(place / strategy.folder)}
                jobs.append(Job(setting, strategy.label, _replaced(experiment, changed), optimizer.label))
    return jobs


def _replaced(experiment: "Experiment | Config", changes: Mapping[str, Any]) -> "Experiment | Config":
    if isinstance(experiment, Config) and not all(isinstance(one, str | Mapping) for one in changes.values()):
        from fedjax_sel.experiment import experiment_of

        experiment = experiment_of(experiment)
    return experiment.replace(**changes)


def _folder_of(setting: str) -> str:
    return setting.replace("/", "-")


def _check_folders(settings: Mapping[str, Any]) -> None:
    by_folder: dict[str, str] = {}
    for setting in settings:
        folder = _folder_of(setting)
        if folder.strip(". ") == "":
            raise UserError(f"settings: {setting!r} cannot name a folder; give it another name")
        if folder in by_folder:
            both = f"{setting!r} and {by_folder[folder]!r}"
            raise UserError(f"settings: {both} would share the folder {folder}; rename one")
        by_folder[folder] = setting


class _Item(NamedTuple):
    """One of the compared strategies or optimizers."""

    label: str  # display name
    folder: str  # folder name
    changes: dict[str, Any]  # changes to the experiment


def _items(flag: str, given: Sequence[Any]) -> list[_Item]:
    """Return the items of a flag, given as names with parameters or as objects."""
    field = {"--algos": "algo", "--optimizers": "optimizer"}[flag]
    items: list[_Item] = []
    for one in given:
        if isinstance(one, str):
            name, values = parse_algo(one, flag)
            shown, change = label(name, values), {field: name, f"{field}_args": values}
            folder = shown
        else:
            shown, folder = _of_value(flag, one)
            change = {field: one, f"{field}_args": {}}
        items.append(_Item(shown, re.sub(r"[^\w.=-]+", "-", folder).strip("-"), change))
    labels = [item.label for item in items]
    named = [item._replace(label=item.folder) if labels.count(item.label) > 1 else item for item in items]
    folders: dict[str, str] = {}
    for item in named:
        if item.folder in folders:
            raise UserError(f"{flag}: {item.label!r} and {folders[item.folder]!r} are the same; give it once")
        folders[item.folder] = item.label
    return named


class Kinds(NamedTuple):
    """The accepted types of a comparison's objects."""

    setting: tuple[type, ...]
    strategy: type
    optimizer: type


def kinds() -> Kinds:
    """Return the accepted types of settings, strategies and optimizers."""
    from fedjax_sel.experiment import Experiment
    from fedjax_sel.strategies.base import Strategy
    from fedjax_sel.training.optimizers.base import FederatedOptimizer

    return Kinds((Config, Experiment), Strategy, FederatedOptimizer)


def _of_value(flag: str, value: Any) -> tuple[str, str]:
    """Return the display name of an object, and a name with a digest that is unique among equal display names."""
    from fedjax_sel.core import hyperparameters

    kind = {"--algos": kinds().strategy, "--optimizers": kinds().optimizer}[flag]
    if not isinstance(value, kind):
        wanted = {"--algos": "strategy", "--optimizers": "optimizer"}[flag]
        raise UserError(
            f"{flag}: a value of type {type(value).__name__} is no {wanted}; give names, as on the command line, or "
            f"{wanted} objects of fedjax_sel"
        )
    return value.name, f"{value.name}-{hyperparameters.digest(value)}"
