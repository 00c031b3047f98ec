"""Runs by setting, with what is known of each beside its rounds."""

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
    """A strategy's line on the page."""

    name: str
    path: Path
    result: Result
    cohorts_known: int  # rounds whose cohorts are there
    insides: list[Inside]
    clients: np.ndarray | None  # the measure of the final models on each client's data, [seeds, N]


class Chapter(NamedTuple):
    """Runs of one setting: they stand under one heading."""

    title: str
    differs: str  # in what from the first setting
    runs: list[Run]
    labels: np.ndarray | None  # examples of each label that each client holds, int [seeds, N, C]
    left_out: list[str]  # what the page does not show, and why


class Reader:
    """Makes chapters of run folders, and keeps what has to be computed once."""

    def __init__(self, with_data: bool, say: Callable[[str], None]):
        """Prepare to read.

        Args:
            with_data: whether to read the runs' data again, for labels and for how well each client is served.
            say: tells somebody who waits what is being done.
        """
        self._with_data, self._say = with_data, say
        self._clients: dict[Path, np.ndarray] = {}
        self._labels: dict[str, np.ndarray | str | None] = {}

    def chapters(self, found: Sequence[Setting], cohorts_known: dict[Path, int]) -> list[Chapter]:
        """Return the chapters of a page.

        Args:
            found: from `settings.by_setting`.
            cohorts_known: rounds with cohorts, by folder; all of them where it is not there.
        """
        return [self._chapter(one, cohorts_known) for one in found]

    def _chapter(self, found: Setting, cohorts_known: dict[Path, int]) -> Chapter:
        first_path, first = next(iter(found.results.items()))
        left_out: list[str] = []
        labels = self._labels_of(first_path, left_out)
        runs = []
        for path, (name, result) in zip(found.results, settings.named(found).items()):
            clients = self._clients_of(path, result, left_out)
            known = min(cohorts_known.get(path, result.num_rounds), result.num_rounds)
            inside = insides.of(path, result.config.selection.algo, left_out)
            runs.append(Run(name, path, result, known, inside, clients))
        if not self._with_data:
            left_out.append("--quick: labels of the partition and the accuracy of every client, which need the data.")
        return Chapter(plots.title(first.config, first.data_source), found.differs, runs, labels, left_out)

    def _labels_of(self, path: Path, left_out: list[str]) -> np.ndarray | None:
        if not self._with_data:
            return None
        made_from = folder.made_from(path)
        dealt = str(path) if made_from is None else json.dumps(made_from, sort_keys=True)
        if dealt not in self._labels:
            self._say(f"dealing the data of {path} out again, for their labels")
            self._labels[dealt] = _unless_refused(lambda: label_counts.label_counts(path))
        return _known(self._labels[dealt], "Labels of the partition", left_out)

    def _clients_of(self, path: Path, result: Result, left_out: list[str]) -> np.ndarray | None:
        if not self._with_data or not result.finished:
            return None
        if path in self._clients:
            return self._clients[path]
        self._say(f"measuring the final models of {path} on every client")
        found = _known(_unless_refused(lambda: _measured(path, result)), "Accuracy of every client", left_out)
        if found is not None:  # weights may come a moment after the last round
            self._clients[path] = found
        return found


def _measured(path: Path, result: Result) -> np.ndarray:
    label_counts.refuse_plugins(path)
    with_weights = dataclasses.replace(result, weights=weights.read(path))
    found = per_client.per_client(with_weights)
    return np.asarray(next(values for name, values in found.items() if name != "loss"))


def _unless_refused(compute: Callable[[], Any]) -> Any:
    """Return what is computed, or why it cannot be."""
    try:
        return compute()
    except UserError as error:
        return str(error)


def _known(value: Any, what: str, left_out: list[str]) -> Any:
    if isinstance(value, str):
        left_out.append(f"{what}: {value}.")
        return None
    return value
