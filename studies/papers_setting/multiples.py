"""Small multiples: one panel per strategy, because many bands on one axis hide each other.

Each panel highlights one strategy's line and band in front of the baseline's line and the faint lines of all others.
Panels share their axes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.plots import Curve, Style

MANY = 6  # strategies that fit in one panel
COLUMNS = 4
PANEL = (2.6, 1.95)  # inches
OTHERS = "#D9D9D9"


def size(num_curves: int) -> tuple[float, float]:
    """Return the figure size in inches for a number of curves, including the baseline."""
    panels = max(num_curves - 1, 1)
    return PANEL[0] * min(COLUMNS, panels) + 0.4, PANEL[1] * -(-panels // COLUMNS) + 0.9


def draw_multiples(
    place: Any,
    curves: Mapping[str, Curve],
    styles: Mapping[str, Style],
    baseline: str,
    labels: tuple[str, str],
    title: str = "",
    largest: float = np.inf,
    logarithmic_from: float | None = None,
) -> None:
    """Draw a panel in a figure for each strategy except the baseline, whose line, if any, is drawn in all panels.

    `labels` are those of the horizontal and the vertical axis, and `largest` is the upper limit of the measure. The
    horizontal axis is logarithmic if its start `logarithmic_from` is given.
    """
    own = [name for name in curves if name != baseline] or list(curves)
    columns = min(COLUMNS, len(own))
    axes = place.subplots(-(-len(own) // columns), columns, sharex=True, sharey=True, squeeze=False)
    means = {name: plots.band(one.values, largest, plots.window_of(one.x)).mean for name, one in curves.items()}
    for axis, name in zip(axes.flat, own):
        for other in own:
            if other != name:
                axis.plot(curves[other].x, means[other], color=OTHERS, linewidth=0.7, zorder=1)
        if baseline in curves and baseline != name:
            look = styles[baseline]
            axis.plot(curves[baseline].x, means[baseline], color=look.color, linestyle=look.line, linewidth=1.1)
        plots.draw_band(axis, curves[name].x, curves[name].values, name, styles[name], largest)
        axis.set_title(parsing.label(name), fontsize="small")
        axis.grid(alpha=0.25)
    if logarithmic_from is not None:
        axes.flat[0].set_xscale("log")
        axes.flat[0].set_xlim(left=logarithmic_from)
        plots.plain_ticks(axes.flat[0])
    for axis in axes.flat[len(own) :]:
        axis.remove()
    for column in range(columns):  # with shared axes, only the last row would have tick labels
        axes[(len(own) - 1 - column) // columns, column].tick_params(labelbottom=True)
    place.supxlabel(labels[0], fontsize="medium")
    place.supylabel(labels[1], fontsize="medium")
    explanation = {
        "band: one standard deviation over seeds": any(len(one.values) > 1 for one in curves.values()),
        f"thin line: {parsing.label(baseline)}": baseline in curves and len(curves) > 1,
        "faint lines: all other strategies": len(curves) > 2,
    }
    words = "; ".join(text for text, applies in explanation.items() if applies)
    place.suptitle("\n".join(filter(None, [title, words])), fontsize="small")
