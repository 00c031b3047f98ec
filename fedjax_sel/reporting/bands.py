"""A line with its band: mean over seeds, and one sample standard deviation to either side."""

from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.core import texts
from fedjax_sel.reporting.styles import Style

SMOOTHING = 0.02  # window of the running mean, as a share of the places


class Band(NamedTuple):
    """What is drawn at each place, [places] each."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def band(values: np.ndarray, largest: float = np.inf, window: int = 1) -> Band:
    """Return the mean and one sample standard deviation to either side, as far as there can be such a value.

    Args:
        values: a measure that lies between 0 and `largest`, [seeds, places]; NaN for a seed that has none.
        largest: that it can be.
        window: of a running mean over both.
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
    """Draw one strategy's line and band; with 100 places or more a running mean over 2 % of them.

    Args:
        axis: of Matplotlib.
        x: [places].
        values: as `band` takes them.
        name: for the legend.
        style: of the strategy.
        largest: that the measure can be.
        smooth: whether there is a running mean at all.
        raw: whether the mean itself is faint behind its running mean.
        together: strategies whose bands may overlap: of many each is fainter.
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
    """Return over how many of so many places the running mean goes."""
    return max(1, round(SMOOTHING * len(x)))


def shade(together: int) -> float:
    """Return how dense each of so many bands is, 0 to 1: lines stay to be told apart where all overlap."""
    return min(0.15, 0.7 / together)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the last `window` values, of fewer at the beginning."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - window, 0)
    return (sums[ends] - sums[begins]) / (ends - begins)
