"""Small multiples: where many strategies are compared, each has a small panel of its own, with its band.

Eleven bands on one axis hide each other. Here a strategy's line and band stand before the baseline's line and the faint
lines of all others, on axes that all panels share.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core import texts
from fedjax_sel.reporting import bands
from fedjax_sel.reporting.styles import Style

MANY = 6  # strategies; more than so many get a picture of this kind beside the one in which all are together
COLUMNS = 4
PANEL = (2.6, 1.95)  # inches
OTHERS = "#C8C8C8"


class Curve(NamedTuple):
    """What is drawn of one strategy."""

    x: np.ndarray  # [places]
    values: np.ndarray  # [seeds, places]


def size(num_curves: int) -> tuple[float, float]:
    """Return the inches that so many curves need, one of them the baseline."""
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
    """Draw a panel for each strategy but the baseline.

    Args:
        place: a figure or subfigure of Matplotlib.
        curves: by strategy.
        styles: of all of them.
        baseline: the one that is drawn in every panel; where it is missing, no line is.
        labels: of the horizontal and the vertical axis.
        title: above all panels.
        largest: that the measure can be.
        logarithmic_from: where a logarithmic horizontal axis begins; None: it is linear.
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
    for column in range(columns):  # the lowest panel of a column names its numbers
        axes[(len(own) - 1 - column) // columns, column].tick_params(labelbottom=True)
    place.supxlabel(labels[0], fontsize="medium")
    place.supylabel(labels[1], fontsize="medium")
    place.suptitle("\n".join(filter(None, [title, _explanation(curves, baseline)])), fontsize="small")


def _explanation(curves: Mapping[str, Curve], baseline: str) -> str:
    with_band = any(len(one.values) > 1 for one in curves.values())
    words = ["each with one standard deviation over seeds"] if with_band else []
    if baseline in curves and len(curves) > 1:
        words.append(f"{texts.label(baseline)} in every panel")
    words += ["all others faint"] if len(curves) > 2 else []
    return "; ".join(words)


def wanted(names: Sequence[Any]) -> bool:
    """Return whether there are so many strategies that one axis does not show them all."""
    return len(names) > MANY
