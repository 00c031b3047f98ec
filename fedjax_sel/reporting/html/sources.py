"""Runs by setting, with their label counts, strategy state and per-client results."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.html import insides
from fedjax_sel.reporting.html.insides import Inside
from fedjax_sel.runs import folder, label_counts, per_client, settings, weights
from fedjax_sel.runs.records import Result
from fedjax_sel.runs.settings import Setting


class Run(NamedTuple):
    """One run of a chapter."""

    name: str
    path: Path
    result: Result
    cohorts_known: int  # number of rounds with saved cohorts
    insides: list[Inside]
    clients: np.ndarray | None  # measure of the final models on each client's data, [seeds, N]


class Chapter(NamedTuple):
    """The runs of one setting, under one heading."""

    title: str
    differs: str  # difference from the first setting
    runs: list[Run]
    labels: np.ndarray | None  # number of examples per client and label, int [seeds, N, C]
    left_out: list[str]  # omitted content with reasons


class Reader:
    """A reader of run folders that caches label counts and per-client results."""

    def __init__(self, with_data: bool, say: Callable[[str], None]):
        """Create a reader.

        Args:
            with_data: whether to load the runs' data, for label counts and per-client results.
            say: a function that shows a progress message to the user.
        """
        self._with_data, self._say = with_data, say
        self._clients: dict[Path, np.ndarray] = {}
        self._labels: dict[str, np.ndarray | str | None] = {}

    def chapters(self, found: Sequence[Setting], cohorts_known: dict[Path, int]) -> list[Chapter]:
        """Return the chapters of a page.

        Args:
            found: the settings from `settings.by_setting`.
            cohorts_known: number of rounds with cohorts by folder; all rounds for a missing folder.
        """
        return [self._chapter(one, cohorts_known) for one in found]

    def _chapter(self, found: Setting, cohorts_known: dict[Path, int]) -> Chapter:
        first_path, first = next(iter(found.results.items()))
        left_out: list[str] = []
        labels = self._labels_of(first_path, left_out)
        runs = []
        for path, (name, result) in zip(found.results, settings.named(found).items()):
            clients = self._clients_of(path, result, left_out)
            num_cohorts = min(cohorts_known.get(path, result.num_rounds), result.num_rounds)
            inside = insides.of(path, result.config.selection.algo, left_out)
            runs.append(Run(name, path, result, num_cohorts, inside, clients))
        if not self._with_data:
            left_out.append("--quick: label counts and per-client results, which need the data.")
        return Chapter(plots.title(first.config, first.data_source), found.differs, runs, labels, left_out)

    def _labels_of(self, path: Path, left_out: list[str]) -> np.ndarray | None:
        if not self._with_data:
            return None
        made_from = folder.made_from(path)
        key = str(path) if made_from is None else json.dumps(made_from, sort_keys=True)
        if key not in self._labels:
            self._say(f"partitioning the data of {path} to count labels")
            self._labels[key] = _value_or_error(lambda: label_counts.label_counts(path))
        return _value_unless_error(self._labels[key], "Label counts", left_out)

    def _clients_of(self, path: Path, result: Result, left_out: list[str]) -> np.ndarray | None:
        if not self._with_data or not result.finished:
            return None
        if path in self._clients:
            return self._clients[path]
        self._say(f"evaluating the final models of {path} on each client")
        found = _value_unless_error(_value_or_error(lambda: _measured(path, result)), "Per-client results", left_out)
        if found is not None:  # failures are not cached: weights may be saved shortly after the last round
            self._clients[path] = found
        return found


def _measured(path: Path, result: Result) -> np.ndarray:
    label_counts.refuse_plugins(path)
    with_weights = dataclasses.replace(result, weights=weights.read(path))
    found = per_client.per_client(with_weights)
    return np.asarray(next(values for name, values in found.items() if name != "loss"))


def _value_or_error(compute: Callable[[], Any]) -> Any:
    """Return the computed value, or the message of a UserError."""
    try:
        return compute()
    except UserError as error:
        return str(error)


def _value_unless_error(value: Any, what: str, left_out: list[str]) -> Any:
    """Return the value; None for an error message, which is appended to `left_out`."""
    if isinstance(value, str):
        left_out.append(f"{what}: {value}.")
        return None
    return value
