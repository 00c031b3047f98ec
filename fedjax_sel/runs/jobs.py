"""The runs that a comparison stands for: every strategy in every setting, under every optimizer."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.core import parsing
from fedjax_sel.errors import UserError


class Job(NamedTuple):
    """A run that is to be done; `config.run.out` is its folder."""

    setting: str  # the preset
    algo: str  # the strategy with its parameters, for people
    config: Config
    optimizer: str = ""  # the federated optimizer with its parameters, where several are compared

    @property
    def conditions(self) -> str:
        """The job's setting and optimizer; jobs of the same conditions differ in strategy and folder only."""
        return f"{self.setting}, {self.optimizer}" if self.optimizer else self.setting


def parse_algo(text: str, flag: str = "--algos") -> tuple[str, dict[str, str]]:
    """Read an item of --algos or --optimizers: `name` or `name[key=value,key=value]`.

    Args:
        text: the item.
        flag: whose it is, for messages.

    Returns:
        The name and the parameters in alphabetical order.

    Raises:
        UserError: it is not of that form.
    """
    example = {"--algos": 'e.g. "fl_dp3s[profile=gradient]"', "--optimizers": 'e.g. "fedprox[mu=0.1]"'}[flag]
    return parsing.name_and_parameters(flag, text, example)


def label(name: str, values: dict[str, str]) -> str:
    """Write a name with its parameters as `parse_algo` reads it."""
    return f"{name}[{','.join(f'{key}={value}' for key, value in values.items())}]" if values else name


def make_jobs(
    settings: Mapping[str, Config],
    algos: Sequence[str],
    out: Path,
    subfolders: bool,
    optimizers: Sequence[str] | None = None,
) -> list[Job]:
    """Make a job of every strategy in every setting, under every optimizer.

    Args:
        settings: name -> configuration, without strategy and folder.
        algos: items as `parse_algo` reads them.
        out: folder of the comparison.
        subfolders: whether each setting has a folder of its own.
        optimizers: items likewise; each has a folder of its own. None: the settings' own.

    Raises:
        UserError: an item that cannot be read, or two that are the same.
    """
    strategies = _items("--algos", algos)
    chosen = {} if optimizers is None else _items("--optimizers", optimizers)
    if subfolders:
        _check_folders(settings)
    jobs = []
    for setting, config in settings.items():
        for optimizer, (optimizer_folder, change) in chosen.items() or {"": ("", None)}.items():
            if change is not None:
                config = config.replace(optimizer=change[0], optimizer_args=change[1])
            place = (out / _folder_of(setting) if subfolders else out) / optimizer_folder
            for algo, (folder, (name, values)) in strategies.items():
                run = config.replace(algo=name, algo_args=values, out=str(place / folder))
                jobs.append(Job(setting, algo, run, optimizer))
    return jobs


def _folder_of(setting: str) -> str:
    return setting.replace("/", "-")


def _check_folders(settings: Mapping[str, Config]) -> None:
    by_folder: dict[str, str] = {}
    for setting in settings:
        folder = _folder_of(setting)
        if folder.strip(". ") == "":
            raise UserError(f"settings: {setting!r} cannot name a folder; give it another name")
        if folder in by_folder:
            both = f"{setting!r} and {by_folder[folder]!r}"
            raise UserError(f"settings: {both} would share the folder {folder}; rename one")
        by_folder[folder] = setting


def _items(flag: str, texts: Sequence[str]) -> dict[str, tuple[str, tuple[str, dict[str, str]]]]:
    """Return what a flag lists: label -> (name of its folder, (name, parameters))."""
    items, folders = {}, {}
    for item in texts:
        if not isinstance(item, str):
            raise UserError(
                f"{flag}: a value of type {type(item).__name__} is no name; give names, as on a command line"
            )
    for name, values in (parse_algo(text, flag) for text in texts):
        shown = label(name, values)
        folder = re.sub(r"[^\w.=-]+", "-", shown).strip("-")
        if folder in folders:
            raise UserError(f"{flag}: {shown!r} and {folders[folder]!r} are the same; give it once")
        folders[folder] = shown
        items[shown] = (folder, (name, values))
    return items
