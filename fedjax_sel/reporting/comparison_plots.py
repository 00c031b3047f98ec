"""Plots of a comparison: curves over rounds and costs, amounts, and heat maps."""

import functools
import itertools
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.core import parsing
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.comparison import NOT_REACHED, Row, Spread, has_clock
from fedjax_sel.reporting.plots import SCREEN, Curve, Look, Style, save, styles_of
from fedjax_sel.runs.run_files import Result

PANELS_A_ROW = 3
AXIS = 3.2  # height of a panel's axis, inches


class Panel(NamedTuple):
    """The runs under one setting and optimizer, which share a panel."""

    conditions: str
    rows: list[Row]
    results: list[Result]


def headline(panel: Panel, width: float) -> str:
    """Return the setting and the data source, wrapped to a width in inches."""
    title = plots.title(panel.results[0].config, panel.results[0].data_source)
    return "\n".join(map(parsing.label, [panel.conditions, *textwrap.wrap(title, round(10.5 * width))]))


def lines(
    panels: list[Panel], styles: dict[str, Style], painter: Callable, path: Path, look: Look, at_ends: bool = False
) -> None:
    """Draw each panel with `painter(axis, panel, styles)`, and save the figure.

    The lines are labelled `at_ends`, or in a legend where their ends meet.
    """
    # With several optimizers, each setting gets its own row.
    optimizers = {panel.rows[0].optimizer for panel in panels}
    columns = len(optimizers) if len(optimizers) > 1 else min(len(panels), PANELS_A_ROW)
    rows = -(-len(panels) // columns)
    label_width = 0.8 + 0.085 * max(map(len, styles))
    picture = plots.figure(4.8 * columns + label_width * (columns if at_ends else 1), 4.2 * rows)
    axes = picture.subplots(rows, columns, squeeze=False)
    for axis, panel in itertools.zip_longest(axes.flat, panels):
        if panel is None:
            axis.remove()
            continue
        painter(axis, panel, styles)
        if look.titles:
            axis.set_title(headline(panel, 4.8), fontsize="small")
        if at_ends:
            plots.label_ends(axis, AXIS)
    if at_ends:
        save(picture, path, look)
        return
    handles = {label: handle for axis in picture.axes for handle, label in zip(*axis.get_legend_handles_labels())}
    drawn = {label: handles[label] for label in map(parsing.label, styles) if label in handles}
    picture.legend(drawn.values(), drawn, loc="outside right upper", frameon=False, handlelength=3.5)
    save(picture, path, look)


def optimizers_by_strategies(rows: Sequence[Row], path: Path, look: Look) -> None:
    """Draw a heat map of strategies by optimizers for each setting; darker is better, gray is missing."""
    from matplotlib import colormaps

    settings = list(dict.fromkeys(row.setting for row in rows))
    algos, optimizers = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("algo", "optimizer"))
    targets = any(row.target_accuracy is not None for row in rows)
    first = {setting: next(row for row in rows if row.setting == setting) for setting in settings}
    width = 1.6 + 1.05 * len(optimizers)
    columns = 2 if targets else 1
    picture = plots.figure(width * columns + 1.0, (1.3 + 0.5 * len(algos)) * len(settings))
    axes = picture.subplots(len(settings), columns, squeeze=False)
    for setting, line in zip(settings, axes):
        found = {(row.algo, row.optimizer): row for row in rows if row.setting == setting}
        title = f"mean test {first[setting].measure} of the last {metrics.LAST_ROUNDS} rounds"
        maps = [(title, "last_rounds", "{:.3f}", 1.0 if first[setting].higher_is_better else -1.0)]
        maps += [("rounds to the target", "rounds_to_target", "{:.0f}", -1.0)] if targets else []
        for axis, (about, field, form, better) in zip(line, maps):
            values = np.full((len(algos), len(optimizers)), np.nan)
            for place, key in enumerate(itertools.product(algos, optimizers)):
                amount = getattr(found[key], field) if key in found else None
                values.flat[place] = np.nan if amount is None else amount.mean
                text = NOT_REACHED if np.isnan(values.flat[place]) else form.format(values.flat[place])
                axis.text(place % len(optimizers), place // len(optimizers), text, ha="center", va="center")
            reached = better * values[~np.isnan(values)]
            low, high = (reached.min(), reached.max()) if reached.size else (0.0, 1.0)
            # The best value gets the middle of the color map, so that black numbers stay readable. Gray: no value.
            colors = colormaps["Greens"].with_extremes(bad="lightgray")
            axis.imshow(better * values, cmap=colors, aspect="auto", vmin=low, vmax=high + max(high - low, 1e-6))
            axis.set_xticks(range(len(optimizers)), list(map(parsing.label, optimizers)), fontsize="small")
            axis.set_yticks(range(len(algos)), list(map(parsing.label, algos)))
            axis.set_title(parsing.label(f"{setting}: {about}"), fontsize="small")
    save(picture, path, look)


def amounts_of(panels: list[Panel], styles: dict[str, Style], amounts: dict[str, str], path: Path, look: Look) -> None:
    """Draw one row of panels per setting, one panel per amount, and one bar per strategy.

    Whiskers are one standard deviation.
    """
    height = 1.3 + 0.27 * max(len(panel.rows) for panel in panels)
    picture = plots.figure(4.6 * len(amounts), height * len(panels))
    for part, panel in zip(np.atleast_1d(picture.subfigures(len(panels), 1)), panels):
        if look.titles:
            part.suptitle(headline(panel, 4.6 * len(amounts)), fontsize="small")
        axes = part.subplots(1, len(amounts), sharey=True, squeeze=False)[0]
        for axis, (label, field) in zip(axes, amounts.items()):
            for place, row in enumerate(panel.rows):
                _bar(axis, place, getattr(row, field), styles[row.algo].color)
            axis.set_yticks(range(len(panel.rows)), [parsing.label(row.algo) for row in panel.rows])
            axis.set_ylim(len(panel.rows) - 0.5, -0.5)  # the first strategy on top
            words = panel.rows[0].target_in_words
            axis.set_xlabel(f"{label} to {words}" if words and field.endswith("_to_target") else label)
            axis.grid(alpha=0.25, axis="x")
            axis.margins(x=0.18)
            axis.set_xlim(left=0.0)  # whiskers may extend below zero
    save(picture, path, look)


def _bar(axis: Any, place: int, value: Spread, color: str) -> None:
    """Draw one bar with its value, or N/A."""
    if value.reached < value.seeds:
        missing = f"{NOT_REACHED} ({value.reached} of {value.seeds} seeds)"
        axis.annotate(missing, (0.02, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        axis.update_datalim([(axis.dataLim.x0 if axis.has_data() else 0.0, place)])
        return
    deviation = np.nan_to_num(value.deviation)
    whisker = {"linewidth": 0.9, "capsize": 2.5}
    # Transparent, so that the black whisker is visible on a black bar.
    axis.barh(place, value.mean, color=color, alpha=0.8, xerr=deviation or None, error_kw=whisker)
    axis.annotate(
        f"{value.mean:.3g}" if value.mean < 100 else f"{value.mean:,.0f}",
        (value.mean + deviation, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize="small",
    )  # fmt: skip


LOGARITHMIC_ABOVE = 5.0  # ratio of the totals of megabytes or seconds; a linear axis would hide the cheapest run


def draw_curves(
    axis: Any,
    panel: Panel,
    styles: dict[str, Style],
    curves: Sequence[Curve | None],
    largest: float = np.inf,
    smooth: bool = True,
) -> None:
    """Draw the curve of each run that has one; `largest` is the upper limit of the values."""
    for row, own in zip(panel.rows, curves):
        if own is not None:
            plots.draw_band(axis, *own, row.algo, styles[row.algo], largest, smooth, together=len(panel.rows))


def draw_measure(axis: Any, panel: Panel, styles: dict[str, Style], over: str, logarithmic: bool) -> None:
    """Draw the task's measure over a key of `plots.X_LABELS`, cumulative."""
    curves = [plots.curve_of(result, result.test_measure, over) for result in panel.results]
    draw_curves(axis, panel, styles, curves, 1.0 if "accuracy" in panel.rows[0].measure else np.inf)
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


def selection_counts(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw the number of training rounds per client, in descending order."""
    counts = [-np.sort(-result.selection_counts, axis=1) for result in panel.results]
    draw_curves(axis, panel, styles, [Curve(np.arange(1, one.shape[1] + 1.0), one) for one in counts], smooth=False)
    plots.name_axes(axis, "clients, most selected first", "rounds with training")


def clients_seen(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw the number of clients that have trained at least once, after each round."""
    num_clients = panel.results[0].config.num_training_clients
    seen = [metrics.clients_seen(one.cohorts, num_clients) for one in panel.results]
    curves = [Curve(plots.x_of(one, "round"), values) for one, values in zip(panel.results, seen)]
    draw_curves(axis, panel, styles, curves, num_clients, smooth=False)
    axis.axhline(num_clients, color="gray", linewidth=0.8, linestyle="--")
    if panel.results[0].num_rounds >= 100:
        axis.set_xscale("log")
    plots.name_axes(axis, "round", "clients that have trained at least once")


def gemd(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    """Draw the GEMD between the labels of the cohorts and of all clients."""
    draw_curves(axis, panel, styles, [plots.curve_of(result, "gemd", "round") for result in panel.results])
    axis.set_ylim(bottom=0)
    plots.name_axes(axis, "round", "GEMD of the cohort (lower: more diverse)")


def draw(rows: Sequence[Row], results: Sequence[Result], folder: Path, look: Look = SCREEN) -> None:
    """Draw the plots of a comparison of finished runs; the results are in the order of the rows."""
    panels = []
    for conditions in dict.fromkeys(row.conditions for row in rows):
        here = [(row, result) for row, result in zip(rows, results) if row.conditions == conditions]
        panels.append(Panel(conditions, *map(list, zip(*here))))
    styles = styles_of(row.algo for row in rows)
    measures = {row.measure for row in rows}
    measure = measures.pop().replace(" ", "_") if len(measures) == 1 else "measure"

    def path_of(name: str) -> Path:
        path = folder / f"{name}{look.suffix}"
        path.unlink(missing_ok=True)  # an earlier call may have drawn what this one does not
        return path

    for over in ("round", "megabytes_down", "megabytes_up", "seconds"):
        shown = [panel for panel in panels if over != "seconds" or panel.results[0].has_clock]
        if not shown:
            continue
        totals = [plots.x_of(result, over)[-1] for panel in shown for result in panel.results]
        logarithmic = over != "round" and max(totals) > LOGARITHMIC_ABOVE * min(totals) > 0
        name = f"{measure}_by_{over}"
        painter = functools.partial(draw_measure, over=over, logarithmic=logarithmic)
        lines(shown, styles, painter, path_of(name), look, at_ends=True)
    for painter in (selection_counts, clients_seen, gemd):
        lines(panels, styles, painter, path_of(painter.__name__), look)
    to_target, optimizers = map(path_of, ("to_target", "optimizers"))
    if any(row.target_accuracy is not None for row in rows):
        units = ["rounds", "megabytes down", "megabytes up", *(["seconds"] if has_clock(rows) else [])]
        amounts = {name: f"{name.replace(' ', '_')}_to_target" for name in units}
        amounts_of(panels, styles, amounts, to_target, look)
    if any(row.optimizer for row in rows):
        optimizers_by_strategies(rows, optimizers, look)
