"""Plots of scalar results: one bar or dot per strategy, and heat maps of strategies by optimizers."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.core import texts
from fedjax_sel.reporting.comparison import NOT_REACHED, Row, Spread
from fedjax_sel.reporting.comparison_panels import Panel, figure, headline, save
from fedjax_sel.reporting.styles import Style


def optimizers_by_strategies(rows: Sequence[Row], path: Path) -> None:
    """Draw a heat map of strategies by optimizers for each setting; darker is better."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    algos, optimizers = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("algo", "optimizer"))
    targets = any(row.target_accuracy is not None for row in rows)
    first = {setting: next(row for row in rows if row.setting == setting) for setting in settings}
    width = 1.6 + 1.05 * len(optimizers)
    columns = 2 if targets else 1
    picture = figure(width * columns + 1.0, (1.3 + 0.5 * len(algos)) * len(settings))
    axes = picture.subplots(len(settings), columns, squeeze=False)
    for setting, line in zip(settings, axes):
        found = {(row.algo, row.optimizer): row for row in rows if row.setting == setting}
        for axis, (about, (field, form, better)) in zip(line, _numbers(first[setting], targets).items()):
            values = np.full((len(algos), len(optimizers)), np.nan)
            for place, key in enumerate(itertools.product(algos, optimizers)):
                amount = getattr(found[key], field) if key in found else None
                values.flat[place] = np.nan if amount is None else amount.mean
                text = NOT_REACHED if np.isnan(values.flat[place]) else form.format(values.flat[place])
                axis.text(place % len(optimizers), place // len(optimizers), text, ha="center", va="center")
            reached = better * values[~np.isnan(values)]
            low, high = (reached.min(), reached.max()) if reached.size else (0.0, 1.0)
            # The best value gets the middle of the color map, so that black numbers stay readable.
            axis.imshow(better * values, cmap="Greens", aspect="auto", vmin=low, vmax=high + max(high - low, 1e-6))
            axis.set_xticks(range(len(optimizers)), list(map(texts.label, optimizers)), fontsize="small")
            axis.set_yticks(range(len(algos)), list(map(texts.label, algos)))
            axis.set_title(texts.label(f"{setting}: {about}"), fontsize="small")
    save(picture, path)


def _numbers(row: Row, target: bool) -> dict[str, tuple[str, str, float]]:
    """Return the heat maps of a setting by title: field, format, and +1 if larger is better, else -1."""
    better = 1.0 if row.higher_is_better else -1.0
    title = f"mean test {row.measure} of the last {metrics.LAST_ROUNDS} rounds"
    return {title: ("last_rounds", "{:.3f}", better)} | (
        {"rounds to the target": ("rounds_to_target", "{:.0f}", -1.0)} if target else {}
    )


def amounts_of(
    panels: list[Panel],
    styles: dict[str, Style],
    amounts: dict[str, str],
    label_of: Callable[[Row, str], str],
    path: Path,
    logarithmic: bool = False,
) -> None:
    """Draw one row of panels per setting, one panel per amount, and one bar per strategy.

    Whiskers are one standard deviation. A logarithmic axis has no zero to start a bar at, so it shows dots.
    """
    height = 1.3 + 0.27 * max(len(panel.rows) for panel in panels)
    picture = figure(4.6 * len(amounts), height * len(panels))
    for part, panel in zip(np.atleast_1d(picture.subfigures(len(panels), 1)), panels):
        part.suptitle(headline(panel, 4.6 * len(amounts)), fontsize="small")
        axes = part.subplots(1, len(amounts), sharey=True, squeeze=False)[0]
        for axis, (label, field) in zip(axes, amounts.items()):
            for place, row in enumerate(panel.rows):
                _amount(axis, place, getattr(row, field), styles[row.algo].color, bar=not logarithmic)
            axis.set_yticks(range(len(panel.rows)), [texts.label(row.algo) for row in panel.rows])
            axis.set_ylim(len(panel.rows) - 0.5, -0.5)  # the first strategy on top
            axis.set_xlabel(label_of(panel.rows[0], label))
            axis.grid(alpha=0.25, axis="both" if logarithmic else "x")
            axis.margins(x=0.18)
            if logarithmic and axis.lines:
                axis.set_xscale("log")
            else:
                axis.set_xlim(left=0.0)  # whiskers may extend below zero
    save(picture, path)


def _amount(axis: Any, place: int, value: Spread | float | None, color: str, bar: bool) -> None:
    """Draw one bar or dot with its value, or N/A; a float is in seconds and is shown in milliseconds."""
    if isinstance(value, Spread):
        mean, deviation, failed = value.mean, np.nan_to_num(value.deviation), value.reached < value.seeds
        missing = f"{NOT_REACHED} ({value.reached} of {value.seeds} seeds)"
    else:
        mean, deviation = (np.nan if value is None else 1000 * value), 0.0
        failed, missing = bool(np.isnan(mean)), NOT_REACHED
    if failed:
        axis.annotate(missing, (0.02, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        axis.update_datalim([(axis.dataLim.x0 if axis.has_data() else 0.0, place)])
        return
    if bar:
        whisker = {"linewidth": 0.9, "capsize": 2.5}
        axis.barh(
            place, mean, color=color, alpha=0.8, xerr=deviation or None, error_kw=whisker
        )  # transparent, so that the black whisker is visible on a black bar
    else:
        axis.plot([mean], [place], color=color, marker="o", linestyle="none")
    axis.annotate(
        f"{mean:.3g}" if mean < 100 else f"{mean:,.0f}",
        (mean + deviation, place), xytext=(4 if bar else 7, 0), textcoords="offset points",
        va="center", fontsize="small",
    )  # fmt: skip
