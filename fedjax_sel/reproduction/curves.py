"""Pictures of an entry's runs, one panel a setting, the same colour for a strategy everywhere."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_sel.core import texts
from fedjax_sel.reporting.plots import COLORS, running_mean
from fedjax_sel.reproduction.entry import Results
from fedjax_sel.runs.records import Result


def by_round(results: Results, values: Callable[[Result], np.ndarray], label: str, window: float = 0.02) -> Any:
    """Draw means over seeds with bands of one standard deviation, over rounds.

    Args:
        results: finished runs.
        values: of a run, [seeds, rounds].
        label: of the vertical axis.
        window: of the running mean, as a share of the rounds; 0 for none.

    Returns:
        The figure.
    """

    def draw(axis: Any, result: Result, name: str, color: str) -> None:
        every = np.asarray(values(result), np.float64)
        width = max(1, round(window * every.shape[1]))
        mean, spread = every.mean(axis=0), every.std(axis=0, ddof=1) if len(every) > 1 else np.zeros(every.shape[1])
        if width > 1:
            mean, spread = running_mean(mean, width), running_mean(spread, width)
        rounds = np.arange(1, len(mean) + 1)
        axis.plot(rounds, mean, color=color, label=texts.label(name), linewidth=1.4)
        if len(every) > 1:
            axis.fill_between(rounds, np.maximum(mean - spread, 0), mean + spread, color=color, alpha=0.15, linewidth=0)
        axis.set_xlabel("round")
        axis.set_ylabel(label)

    return panels(results, draw)


def selection_frequency(results: Results) -> Any:
    """Draw how often clients are selected: a step curve of clients sorted by their rounds, mean over seeds."""

    def draw(axis: Any, result: Result, name: str, color: str) -> None:
        counts = np.sort(result.selection_counts, axis=1)[:, ::-1].mean(axis=0)
        axis.step(np.arange(1, len(counts) + 1), counts, where="mid", color=color, label=texts.label(name))
        axis.set_xlabel("clients, by how often they train")
        axis.set_ylabel("rounds (mean over seeds)")

    return panels(results, draw)


def panels(results: Results, draw: Callable[[Any, Result, str, str], None]) -> Any:
    """Draw each setting in a panel of its own.

    Args:
        results: finished runs.
        draw: (axis, result, name of the row, colour) -> None.
    """
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(cell.column for cell in results))
    colors = dict(zip(dict.fromkeys(cell.row for cell in results), COLORS * 9))
    figure = Figure(figsize=(5.2 * len(columns), 4.2), layout="constrained")
    axes = figure.subplots(1, len(columns), squeeze=False)[0]
    for axis, column in zip(axes, columns):
        for cell, result in results.items():
            if cell.column == column:
                draw(axis, result, cell.row, colors[cell.row])
        axis.set_title(texts.label(column))
        axis.grid(alpha=0.25)
    axes[0].legend(frameon=False)
    return figure
