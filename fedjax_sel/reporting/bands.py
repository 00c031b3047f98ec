"""Lines with bands: the mean over seeds, plus and minus one sample standard deviation."""

from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.core import texts
from fedjax_sel.reporting.styles import Style

SMOOTHING = 0.02  # window of the running mean, as a fraction of the points


class Band(NamedTuple):
    """A line and the limits of its band, [points] each."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def band(values: np.ndarray, largest: float = np.inf, window: int = 1) -> Band:
    """Return the mean plus and minus one sample standard deviation, clipped to the measure's range.

    Args:
        values: a measure in [0, largest], [seeds, points]; NaN if missing.
        largest: upper limit of the measure.
        window: window of a running mean over mean and deviation, in points.
    """
    values = np.asarray(values, np.float64)
    counts = (~np.isnan(values)).sum(axis=0)
    mean = metrics.mean_of_measured(values, axis=0)
    spread = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(counts - 1, 1))
    if window > 1:
        mean, spread = running_mean(mean, window), running_mean(spread, window)
    return Band(mean, np.maximum(mean - spread, 0.0), np.minimum(mean + spread, largest))


def draw(
    axis: Any,
    x: np.ndarray,
    values: np.ndarray,
    name: str,
    style: Style,
    largest: float = np.inf,
    smooth: bool = True,
    raw: bool = False,
    together: int = 1,
) -> None:
    """Draw one strategy's line and band, with a running mean over 2 % of the points if there are 100 or more.

    Args:
        axis: a Matplotlib axis.
        x: horizontal coordinates, [points].
        values: the measure, [seeds, points], see `band`.
        name: the strategy's name, for the legend.
        style: the strategy's style.
        largest: upper limit of the measure.
        smooth: whether to smooth with a running mean.
        raw: whether to draw the unsmoothed mean faintly behind the running mean.
        together: number of strategies with overlapping bands; more bands are drawn fainter.
    """
    window = window_of(x) if smooth else 1
    found = band(values, largest, window)
    if raw and window > 1:
        axis.plot(x, band(values).mean, color=style.color, alpha=0.25, linewidth=0.7)
    axis.plot(
        x, found.mean, color=style.color, linestyle=style.line, linewidth=1.6, label=texts.label(name),
        marker="o" if len(x) == 1 else None,
    )  # fmt: skip
    if len(values) > 1:
        axis.fill_between(x, found.low, found.high, color=style.color, alpha=shade(together), linewidth=0)


def window_of(x: np.ndarray) -> int:
    """Return the window of the running mean, in points."""
    return max(1, round(SMOOTHING * len(x)))


def shade(together: int) -> float:
    """Return the opacity of each band, so that lines stay visible where all bands overlap."""
    return min(0.15, 0.7 / together)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the last `window` values, with a shorter window at the start."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)
