"""Curves of a comparison: what is drawn in one panel, a line and a band a strategy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.reporting import bands
from fedjax_sel.reporting.comparison_panels import Panel
from fedjax_sel.reporting.styles import Style

LOGARITHMIC_ABOVE = 5.0  # times the cheapest run's megabytes


def costs_differ_much(results: Sequence[Any], bytes_moved: str) -> bool:
    """Return whether the dearest run moves so much more than the cheapest that a linear axis would hide the latter."""
    totals = [getattr(result.ledger, bytes_moved).sum(axis=1).mean() for result in results]
    return max(totals) > LOGARITHMIC_ABOVE * min(totals) > 0


def measure(bytes_moved: str | None, logarithmic: bool = False) -> Callable[[Any, Panel, dict[str, Style]], None]:
    """Return a painter of the task's measure over rounds, or over megabytes moved so far (a field of the ledger)."""

    def paint(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
        totals = []
        highest = 1.0 if "accuracy" in panel.rows[0].measure else np.inf
        for row, result in zip(panel.rows, panel.results):
            values = np.asarray(result.measured[result.test_measure], np.float64)
            measured = ~np.isnan(values).any(axis=0)
            x = np.arange(1, result.num_rounds + 1.0)
            if bytes_moved is not None:
                x = getattr(result.ledger, bytes_moved).cumsum(axis=1).mean(axis=0) / 1e6
                totals.append((x[0], x[-1]))
            if measured.any():
                bands.draw(
                    axis,
                    x[measured],
                    values[:, measured],
                    row.algo,
                    styles[row.algo],
                    highest,
                    together=len(panel.rows),
                )
        if logarithmic:
            axis.set_xscale("log")
            axis.set_xlim(left=max(min(end for _, end in totals) / 100, min(start for start, _ in totals)))
        target = panel.rows[0].target_accuracy
        if target is not None:
            axis.axhline(target, color="gray", linewidth=0.8, linestyle="--")
        direction = {None: "round", "bytes_down": "megabytes down", "bytes_up": "megabytes up"}[bytes_moved]
        name_axes(axis, direction, f"test {panel.rows[0].measure}")

    return paint


def selection_counts(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw in how many rounds clients trained, the busiest first."""
    for row, result in zip(panel.rows, panel.results):
        counts = metrics.selection_counts(result.cohorts, result.config.partition.num_clients)
        busiest_first = -np.sort(-counts, axis=1)
        clients = np.arange(1, counts.shape[1] + 1.0)
        bands.draw(axis, clients, busiest_first, row.algo, styles[row.algo], smooth=False, together=len(panel.rows))
    name_axes(axis, "client, the busiest first", "rounds in which it trained")


def clients_seen(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw how many clients have trained at least once, after each round."""
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
    """Draw how far the labels of the cohorts are from those of all clients."""
    for row, result in zip(panel.rows, panel.results):
        values = np.asarray(result.gemd, np.float64)
        measured = ~np.isnan(values).all(axis=0)  # an empty cohort has none
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
    """Say what is drawn against what."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.25)
