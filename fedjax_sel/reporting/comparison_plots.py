"""Plots of a comparison: curves over rounds and costs."""

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.comparison import Row
from fedjax_sel.reporting.plots import SCREEN, Look, Style, save
from fedjax_sel.runs.run_files import Result

PANELS_A_ROW = 3
AXIS = 3.2  # height of a panel's axis, inches
TITLE_CHARACTERS = 50  # line length of a panel's title


class Panel(NamedTuple):
    """The runs under one setting and optimizer, which share a panel."""

    conditions: str
    rows: list[Row]
    results: list[Result]


LOGARITHMIC_ABOVE = 5.0  # ratio of the totals of megabytes or seconds; a linear axis would hide the cheapest run


def draw(rows: Sequence[Row], results: Sequence[Result], folder: Path, look: Look = SCREEN) -> None:
    """Draw the curves of finished runs over rounds and costs; the results are in the order of the rows."""
    panels = []
    for conditions in dict.fromkeys(row.conditions for row in rows):
        here = [(row, result) for row, result in zip(rows, results) if row.conditions == conditions]
        panels.append(Panel(conditions, *map(list, zip(*here))))
    styles = plots.styles_of(row.algo for row in rows)
    measures = {row.measure for row in rows}
    measure = measures.pop().replace(" ", "_") if len(measures) == 1 else "measure"
    for over in ("round", "megabytes_down", "megabytes_up", "seconds"):
        shown = [panel for panel in panels if over != "seconds" or panel.results[0].has_clock]
        path = folder / f"{measure}_by_{over}{look.suffix}"
        path.unlink(missing_ok=True)  # an earlier call may have drawn what this one does not
        if shown:
            draw_panels(shown, styles, over, path, look)


def draw_panels(panels: list[Panel], styles: dict[str, Style], over: str, path: Path, look: Look) -> None:
    """Draw each panel over a key of `plots.X_LABELS`, cumulative, and save the figure."""
    # With several optimizers, each setting gets its own row.
    optimizers = {panel.rows[0].optimizer for panel in panels}
    columns = len(optimizers) if len(optimizers) > 1 else min(len(panels), PANELS_A_ROW)
    rows = -(-len(panels) // columns)
    label_width = 0.8 + 0.085 * max(map(len, styles))
    picture = plots.figure((4.8 + label_width) * columns, 4.2 * rows)
    axes = picture.subplots(rows, columns, squeeze=False)
    totals = [plots.x_of(result, over)[-1] for panel in panels for result in panel.results]
    logarithmic = over != "round" and max(totals) > LOGARITHMIC_ABOVE * min(totals) > 0
    for axis, panel in itertools.zip_longest(axes.flat, panels):
        if panel is None:
            axis.remove()
            continue
        draw_measure(axis, panel, styles, over, logarithmic)
        if look.titles:
            title = plots.title(panel.results[0].config, panel.results[0].data_source)
            lines = map(parsing.label, [panel.conditions, *textwrap.wrap(title, TITLE_CHARACTERS)])
            axis.set_title("\n".join(lines), fontsize="small")
        plots.label_ends(axis, AXIS)
    save(picture, path, look)


def draw_measure(axis: Any, panel: Panel, styles: dict[str, Style], over: str, logarithmic: bool) -> None:
    """Draw the task's measure over a key of `plots.X_LABELS`, cumulative."""
    largest = 1.0 if "accuracy" in panel.rows[0].measure else np.inf
    for row, result in zip(panel.rows, panel.results):
        if (curve := plots.curve_of(result, result.test_measure, over)) is not None:
            plots.draw_band(axis, *curve, row.algo, styles[row.algo], largest, together=len(panel.rows))
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xlim(left=logarithmic_start(panel.results, over))
        plots.plain_ticks(axis)
    target = panel.rows[0].target_accuracy
    if target is not None:
        axis.axhline(target, color="gray", linewidth=0.8, linestyle="--")
    plots.name_axes(axis, plots.X_LABELS[over], f"test {panel.rows[0].measure}")


def logarithmic_start(results: Sequence[Any], over: str) -> float:
    """Return the start of a logarithmic axis: the earliest first round, or 1/100 of the smallest total if larger."""
    xs = [plots.x_of(result, over) for result in results]
    return max(min(x[-1] for x in xs) / 100, min(x[0] for x in xs))
