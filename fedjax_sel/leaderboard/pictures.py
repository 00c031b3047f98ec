"""The leaderboard's pictures; a strategy has the same colour everywhere, another optimizer than FedAvg dashes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core import texts
from fedjax_sel.leaderboard import price
from fedjax_sel.leaderboard.across import SCORES, Together
from fedjax_sel.leaderboard.measures import Common
from fedjax_sel.leaderboard.series import Series, Setting
from fedjax_sel.leaderboard.settings import ALGOS, BASELINE, contender
from fedjax_sel.reporting.bands import running_mean

COLORS: dict[str, str] = dict(
    zip(
        ALGOS,
        ("#000000", "#999999", "#D55E00", "#E69F00", "#0072B2", "#CC79A7", "#009E73", "#8C564B", "#56B4E9", "#7F3C8D",
         "#A5AA32"),
    )
)  # fmt: skip
SMOOTHING = 0.05  # window of the running mean, as a share of the rounds


def color(name: str) -> str:
    """Return the colour of a row."""
    return COLORS.get(contender(name).algo.split(" ")[0], "#444444")


def style(name: str) -> str:
    """Return the line style of a row."""
    return "-" if contender(name).optimizer == "fedavg" else "--"


def by_megabytes(panels: Mapping[str, Mapping[str, Series]]) -> Any:
    """Draw the test accuracy over the megabytes sent down and up, one panel a setting: running means over seeds.

    Args:
        panels: title -> series by row.
    """
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5.0 * columns + 2.0, 3.6 * lines + 0.4), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    drawn: dict[str, Any] = {}
    for axis, (title, rows) in zip(axes.flat, panels.items()):
        for name, series in rows.items():
            spent = series.megabytes.mean(axis=0)
            accuracy = np.asarray(series.test_accuracy, np.float64).mean(axis=0)
            window = max(1, round(SMOOTHING * len(accuracy)))
            (line,) = axis.plot(
                spent, running_mean(accuracy, window), color=color(name), linestyle=style(name), linewidth=1.3,
                zorder=3 if name == BASELINE else 2,
            )  # fmt: skip
            drawn.setdefault(name, line)
        axis.set_xscale("log")
        axis.set_title(texts.label(title))
        axis.set_xlabel("megabytes sent, down and up")
        axis.set_ylabel("test accuracy")
        axis.grid(alpha=0.25)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    figure.legend(drawn.values(), map(texts.label, drawn), loc="outside right center", frameon=False)
    return figure


def profiles(together: Sequence[Together]) -> Any:
    """Draw the share of runs whose lead over random selection exceeds tau, for every tau.

    Args:
        together: rows in all settings.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 4.4), layout="constrained")
    axes = figure.subplots(1, len(SCORES))
    drawn: dict[str, Any] = {}
    for axis, (score, words) in zip(axes, SCORES.items()):
        leads = {one.name: one.leads[score] for one in together if one.name != BASELINE}
        everything = np.concatenate([values.ravel() for values in leads.values()]) if leads else np.zeros(1)
        thresholds = np.linspace(min(everything.min(), 0.0), max(everything.max(), 0.0), 201)
        for name, values in leads.items():
            share = statistics.performance_profile(values, thresholds)
            (line,) = axis.plot(thresholds, share, color=color(name), linestyle=style(name), linewidth=1.4)
            drawn.setdefault(name, line)
        axis.axvline(0.0, color=COLORS[BASELINE], linewidth=0.8)
        axis.set_xlabel(f"tau: {words}, over random selection")
        axis.set_ylabel("share of runs with more than tau")
        axis.grid(alpha=0.25)
    figure.legend(drawn.values(), map(texts.label, drawn), loc="outside right center", frameon=False)
    return figure


def budgets(boards: Mapping[str, Setting], shared: Mapping[str, Common]) -> Any:
    """Draw for every setting, over the megabytes, which strategy has the highest mean accuracy: strips of its colour.

    Args:
        boards: settings by name.
        shared: what is equal for all rows of each.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    panels = {"under FedAvg": ("fedavg",), "under either optimizer": None}
    figure = Figure(figsize=(12.0, 1.6 + 0.42 * len(boards)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True)
    shown: dict[str, Any] = {}
    for axis, (words, optimizers) in zip(axes, panels.items()):
        for line, (name, held) in enumerate(boards.items()):
            rows = [row for row in held.rows if optimizers is None or contender(row).optimizer in optimizers]
            if not rows:
                continue
            megabytes = price.grid_of(shared[name])
            curves = np.stack([price.curve(held.rows[row], megabytes, shared[name].guess) for row in rows])
            knows = curves.max(axis=0) > shared[name].guess
            share, best = megabytes / megabytes[-1], np.where(knows, curves.argmax(axis=0), -2)
            starts = np.flatnonzero(np.diff(best, prepend=-1))
            for start, end in zip(starts, [*starts[1:], len(best) - 1]):
                if best[start] < 0:
                    continue  # nothing is better than a guess
                row = rows[best[start]]
                hatch = "" if style(row) == "-" else "///"
                look = {"facecolor": color(row), "hatch": hatch, "edgecolor": "white", "linewidth": 0.0}
                axis.barh(line, share[end] - share[start], left=share[start], height=0.8, **look)
                shown.setdefault(row, Patch(**look))
        axis.set_xscale("log")
        axis.set_xlim(0.01, 1.0)
        axis.set_title(words)
        axis.set_xlabel("share of the equal megabytes")
    axes[0].set_yticks(range(len(boards)), [texts.label(held.about["title"]) for held in boards.values()])
    axes[0].invert_yaxis()
    figure.legend(shown.values(), map(texts.label, shown), loc="outside right center", frameon=False)
    return figure
