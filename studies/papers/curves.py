"""Pictures of an entry's runs, with one panel per setting and one color per strategy in all panels."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_sel import Result
from fedjax_sel.core import parsing
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.plots import Style, styles_of
from studies.papers.entry import Results


def by_round(results: Results, values: Callable[[Result], np.ndarray], label: str, window: float = 0.02) -> Any:
    """Draw means over seeds with bands of one standard deviation, over rounds.

    Args:
        results: finished runs by cell.
        values: function from a run to its values, [seeds, rounds], NaN in rounds without evaluation.
        label: label of the vertical axis.
        window: window of the running mean, as a fraction of the rounds; 0: no running mean.

    Returns:
        The figure.
    """
    shade = plots.shade(_most_together(results))
    # The window in rounds is the same for all runs, although some may have stopped early.
    averaged = max(1, round(window * max((result.config.run.rounds for result in results.values()), default=0)))

    def draw(axis: Any, result: Result, name: str, style: Style) -> None:
        every = np.asarray(values(result), np.float64)
        known = ~np.isnan(every).all(axis=0)  # some metrics are evaluated only in some rounds
        every, rounds = every[:, known], np.flatnonzero(known) + 1
        if not len(rounds):
            return
        places = max(1, round(averaged * len(rounds) / result.num_rounds))
        found = plots.band(every, window=places)
        marker = "o" if len(rounds) == 1 else None
        axis.plot(
            rounds, found.mean, color=style.color, linestyle=style.line, marker=marker, label=parsing.label(name),
            linewidth=1.4,
        )  # fmt: skip
        if len(every) > 1:
            axis.fill_between(rounds, found.low, found.high, color=style.color, alpha=shade, linewidth=0)
        axis.set_xlabel("round")
        axis.set_ylabel(label if averaged == 1 else f"{label}, running mean of {averaged} rounds")

    return panels(results, draw)


def selection_frequency(results: Results) -> Any:
    """Draw the sorted selection counts of the clients as a step curve, mean over seeds."""
    shade = plots.shade(_most_together(results))

    def draw(axis: Any, result: Result, name: str, style: Style) -> None:
        found = plots.band(np.sort(result.selection_counts, axis=1)[:, ::-1])
        clients = np.arange(1, len(found.mean) + 1)
        axis.step(clients, found.mean, where="mid", color=style.color, linestyle=style.line, label=parsing.label(name))
        if len(result.seeds) > 1:
            axis.fill_between(clients, found.low, found.high, step="mid", color=style.color, alpha=shade, linewidth=0)
        axis.set_xlabel("clients, by how often they train")
        axis.set_ylabel("rounds (mean over seeds)")

    return panels(results, draw)


def _most_together(results: Results) -> int:
    columns = [cell.column for cell in results]
    return max(map(columns.count, columns), default=1)


def panels(results: Results, draw: Callable[[Any, Result, str, Style], None]) -> Any:
    """Draw one panel per setting.

    Args:
        results: finished runs by cell.
        draw: function of (axis, result, row name, style) that draws one run.
    """
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(cell.column for cell in results))
    styles = styles_of(cell.row for cell in results)
    legend_width = 0.8 + 0.085 * max((len(parsing.label(name)) for name in styles), default=0)
    figure = Figure(figsize=(4.8 * len(columns) + legend_width, 4.2), layout="constrained")
    axes = figure.subplots(1, len(columns), squeeze=False)[0]
    for axis, column in zip(axes, columns):
        for cell, result in results.items():
            if cell.column == column:
                draw(axis, result, cell.row, styles[cell.row])
        axis.set_title(parsing.label(column))
        axis.grid(alpha=0.25)
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(
        handles.values(), handles, loc="outside right upper", frameon=False
    )  # outside, so that it covers no curve
    return figure
