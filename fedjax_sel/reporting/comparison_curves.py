"""Curves of a comparison: one panel with a line and a band per strategy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.reporting import bands
from fedjax_sel.reporting.comparison_panels import Panel
from fedjax_sel.reporting.multiples import Curve
from fedjax_sel.reporting.styles import Style

LOGARITHMIC_ABOVE = 5.0  # ratio of the largest to the smallest total of megabytes


def costs_differ_much(results: Sequence[Any], bytes_moved: str) -> bool:
    """Return whether the runs' total megabytes differ so much that a linear axis would hide the cheapest run."""
    totals = [getattr(result.ledger, bytes_moved).sum(axis=1).mean() for result in results]
    return max(totals) > LOGARITHMIC_ABOVE * min(totals) > 0


def measure(bytes_moved: str | None, logarithmic: bool = False) -> Callable[[Any, Panel, dict[str, Style]], None]:
    """Return a painter of the task's measure over rounds, or over cumulative megabytes of a ledger field."""

    def paint(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
        highest = largest_of(panel)
        for row, result in zip(panel.rows, panel.results):
            curve = curve_of(result, bytes_moved)
            if curve is not None:
                bands.draw(axis, *curve, row.algo, styles[row.algo], highest, together=len(panel.rows))
        if logarithmic:
            axis.set_xscale("log")
            axis.set_xlim(left=logarithmic_start(panel.results, bytes_moved))
        target = panel.rows[0].target_accuracy
        if target is not None:
            axis.axhline(target, color="gray", linewidth=0.8, linestyle="--")
        name_axes(axis, *labels_of(panel, bytes_moved))

    return paint


def curve_of(result: Any, bytes_moved: str | None) -> Curve | None:
    """Return a run's test measure over rounds or megabytes; None if no round has a value for all seeds."""
    values = np.asarray(result.measured[result.test_measure], np.float64)
    measured = ~np.isnan(values).any(axis=0)
    return Curve(_x_of(result, bytes_moved)[measured], values[:, measured]) if measured.any() else None


def _x_of(result: Any, bytes_moved: str | None) -> np.ndarray:
    if bytes_moved is None:
        return np.arange(1, result.num_rounds + 1.0)
    return getattr(result.ledger, bytes_moved).cumsum(axis=1).mean(axis=0) / 1e6


def largest_of(panel: Panel) -> float:
    """Return the upper limit of the test measure."""
    return 1.0 if "accuracy" in panel.rows[0].measure else np.inf


def labels_of(panel: Panel, bytes_moved: str | None) -> tuple[str, str]:
    """Return the labels of the horizontal and the vertical axis."""
    direction = {None: "round", "bytes_down": "megabytes down", "bytes_up": "megabytes up"}[bytes_moved]
    return direction, f"test {panel.rows[0].measure}"


def logarithmic_start(results: Sequence[Any], bytes_moved: str | None) -> float:
    """Return the start of a logarithmic axis: the earliest first round, or 1/100 of the smallest total if larger."""
    xs = [_x_of(result, bytes_moved) for result in results]
    return max(min(x[-1] for x in xs) / 100, min(x[0] for x in xs))


def selection_counts(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw the number of training rounds per client, in descending order."""
    for row, result in zip(panel.rows, panel.results):
        counts = metrics.selection_counts(result.cohorts, result.config.partition.num_clients)
        busiest_first = -np.sort(-counts, axis=1)
        clients = np.arange(1, counts.shape[1] + 1.0)
        bands.draw(axis, clients, busiest_first, row.algo, styles[row.algo], smooth=False, together=len(panel.rows))
    name_axes(axis, "clients, most selected first", "rounds with training")


def clients_seen(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw the number of clients that have trained at least once, after each round."""
    for row, result in zip(panel.rows, panel.results):
        num_clients = result.config.partition.num_clients
        seen = metrics.clients_seen(result.cohorts, num_clients)
        rounds = np.arange(1, seen.shape[1] + 1.0)
        bands.draw(axis, rounds, seen, row.algo, styles[row.algo], num_clients, smooth=False, together=len(panel.rows))
    axis.axhline(panel.results[0].config.partition.num_clients, color="gray", linewidth=0.8, linestyle="--")
    if panel.results[0].num_rounds >= 100:
        axis.set_xscale("log")
    name_axes(axis, "round", "clients that have trained at least once")


def gemd(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw the GEMD between the labels of the cohorts and of all clients."""
    for row, result in zip(panel.rows, panel.results):
        values = np.asarray(result.gemd, np.float64)
        measured = ~np.isnan(values).all(axis=0)  # an empty cohort has no GEMD
        if measured.any():
            bands.draw(
                axis,
                np.flatnonzero(measured) + 1.0,
                values[:, measured],
                row.algo,
                styles[row.algo],
                together=len(panel.rows),
            )
    axis.set_ylim(bottom=0)
    name_axes(axis, "round", "GEMD of the cohort (lower: more diverse)")


def name_axes(axis: Any, x: str, y: str) -> None:
    """Label both axes and draw a grid."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.25)
