"""Small multiples: one small panel per strategy, for comparisons of many strategies.

Many bands on one axis hide each other. Each panel highlights one strategy's line and band in front of the baseline's
line and the faint lines of all others. All panels share their axes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core import texts
from fedjax_sel.reporting import bands
from fedjax_sel.reporting.styles import Style

MANY = 6  # strategies that fit in one panel; more get small multiples in addition
COLUMNS = 4
PANEL = (2.6, 1.95)  # inches
OTHERS = "#C8C8C8"


class Curve(NamedTuple):
    """One strategy's curve."""

    x: np.ndarray  # [points]
    values: np.ndarray  # [seeds, points]


def size(num_curves: int) -> tuple[float, float]:
    """Return the figure size in inches for a number of curves, including the baseline."""
    panels = max(num_curves - 1, 1)
    return PANEL[0] * min(COLUMNS, panels) + 0.4, PANEL[1] * -(-panels // COLUMNS) + 0.9


def draw(
    place: Any,
    curves: Mapping[str, Curve],
    styles: Mapping[str, Style],
    baseline: str,
    labels: tuple[str, str],
    title: str = "",
    largest: float = np.inf,
    logarithmic_from: float | None = None,
) -> None:
    """Draw a panel for each strategy except the baseline.

    Args:
        place: a Matplotlib figure or subfigure.
        curves: curves by strategy.
        styles: styles by strategy.
        baseline: the strategy whose line is drawn in all panels, if it is among the curves.
        labels: labels of the horizontal and the vertical axis.
        title: heading above all panels.
        largest: upper limit of the measure.
        logarithmic_from: start of a logarithmic horizontal axis; None for a linear one.
    """
    own = [name for name in curves if name != baseline] or list(curves)
    columns = min(COLUMNS, len(own))
    axes = place.subplots(-(-len(own) // columns), columns, sharex=True, sharey=True, squeeze=False)
    means = {name: bands.band(one.values, largest, bands.window_of(one.x)).mean for name, one in curves.items()}
    for axis, name in zip(axes.flat, own):
        for other in own:
            if other != name:
                axis.plot(curves[other].x, means[other], color=OTHERS, linewidth=0.7, zorder=1)
        if baseline in curves and baseline != name:
            look = styles[baseline]
            axis.plot(curves[baseline].x, means[baseline], color=look.color, linestyle=look.line, linewidth=1.1)
        bands.draw(axis, curves[name].x, curves[name].values, name, styles[name], largest)
        axis.set_title(texts.label(name), fontsize="small")
        axis.grid(alpha=0.25)
    if logarithmic_from is not None:
        axes.flat[0].set_xscale("log")
        axes.flat[0].set_xlim(left=logarithmic_from)
    for axis in axes.flat[len(own) :]:
        axis.remove()
    for column in range(columns):  # with shared axes, only the last row would have tick labels
        axes[(len(own) - 1 - column) // columns, column].tick_params(labelbottom=True)
    place.supxlabel(labels[0], fontsize="medium")
    place.supylabel(labels[1], fontsize="medium")
    place.suptitle("\n".join(filter(None, [title, _explanation(curves, baseline)])), fontsize="small")


def _explanation(curves: Mapping[str, Curve], baseline: str) -> str:
    with_band = any(len(one.values) > 1 for one in curves.values())
    words = ["band: one standard deviation over seeds"] if with_band else []
    if baseline in curves and len(curves) > 1:
        words.append(f"thin line: {texts.label(baseline)}")
    words += ["faint lines: all other strategies"] if len(curves) > 2 else []
    return "; ".join(words)


def wanted(names: Sequence[Any]) -> bool:
    """Return whether there are too many strategies for one panel."""
    return len(names) > MANY
