"""Plots of a comparison: curves, amounts, and small multiples."""

import functools
import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.core import parsing
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.comparison import BASELINE, NOT_REACHED, Row, Spread, has_clock
from fedjax_sel.reporting.plots import SCREEN, Curve, Look, Style, save, styles_of
from fedjax_sel.runs.run_files import Result

# Small multiples, one panel per strategy, because many bands on one axis hide each other. Each panel highlights one
# strategy's line and band in front of the baseline's line and the faint lines of all others. Panels share their axes.
MANY = 6  # strategies that fit in one panel; more get small multiples in addition
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
            colors = colormaps["Greens"].with_extremes(bad=OTHERS)
            axis.imshow(better * values, cmap=colors, aspect="auto", vmin=low, vmax=high + max(high - low, 1e-6))
            axis.set_xticks(range(len(optimizers)), list(map(parsing.label, optimizers)), fontsize="small")
            axis.set_yticks(range(len(algos)), list(map(parsing.label, algos)))
            axis.set_title(parsing.label(f"{setting}: {about}"), fontsize="small")
    save(picture, path, look)


def amounts_of(
    panels: list[Panel],
    styles: dict[str, Style],
    amounts: dict[str, str],
    path: Path,
    look: Look,
    logarithmic: bool = False,
) -> None:
    """Draw one row of panels per setting, one panel per amount, and one bar per strategy.

    Whiskers are one standard deviation. A logarithmic axis has no zero to start a bar at, so it shows dots.
    """
    height = 1.3 + 0.27 * max(len(panel.rows) for panel in panels)
    picture = plots.figure(4.6 * len(amounts), height * len(panels))
    for part, panel in zip(np.atleast_1d(picture.subfigures(len(panels), 1)), panels):
        if look.titles:
            part.suptitle(headline(panel, 4.6 * len(amounts)), fontsize="small")
        axes = part.subplots(1, len(amounts), sharey=True, squeeze=False)[0]
        for axis, (label, field) in zip(axes, amounts.items()):
            for place, row in enumerate(panel.rows):
                _amount(axis, place, getattr(row, field), styles[row.algo].color, bar=not logarithmic)
            axis.set_yticks(range(len(panel.rows)), [parsing.label(row.algo) for row in panel.rows])
            axis.set_ylim(len(panel.rows) - 0.5, -0.5)  # the first strategy on top
            words = panel.rows[0].target_in_words
            axis.set_xlabel(f"{label} to {words}" if words and field.endswith("_to_target") else label)
            axis.grid(alpha=0.25, axis="both" if logarithmic else "x")
            axis.margins(x=0.18)
            if logarithmic and axis.lines:
                axis.set_xscale("log")
                plots.plain_ticks(axis)
            else:
                axis.set_xlim(left=0.0)  # whiskers may extend below zero
    save(picture, path, look)


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
        # Transparent, so that the black whisker is visible on a black bar.
        axis.barh(place, mean, color=color, alpha=0.8, xerr=deviation or None, error_kw=whisker)
    else:
        axis.plot([mean], [place], color=color, marker="o", linestyle="none")
    axis.annotate(
        f"{mean:.3g}" if mean < 100 else f"{mean:,.0f}",
        (mean + deviation, place), xytext=(4 if bar else 7, 0), textcoords="offset points",
        va="center", fontsize="small",
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
    draw_curves(axis, panel, styles, curves_of(panel, over), largest_of(panel))
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xlim(left=logarithmic_start(panel.results, over))
        plots.plain_ticks(axis)
    target = panel.rows[0].target_accuracy
    if target is not None:
        axis.axhline(target, color="gray", linewidth=0.8, linestyle="--")
    plots.name_axes(axis, *labels_of(panel, over))


def curves_of(panel: Panel, over: str) -> list[Curve | None]:
    """Return each run's test measure over rounds or an amount."""
    return [plots.curve_of(result, result.test_measure, over) for result in panel.results]


def largest_of(panel: Panel) -> float:
    """Return the upper limit of the test measure."""
    return 1.0 if "accuracy" in panel.rows[0].measure else np.inf


def labels_of(panel: Panel, over: str) -> tuple[str, str]:
    """Return the labels of the horizontal and the vertical axis."""
    return plots.X_LABELS[over], f"test {panel.rows[0].measure}"


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


TITLE = 0.4  # height of a setting's heading, inches


def draw_each_run(panels: Sequence[Panel], styles: dict[str, Style], over: str, logarithmic: bool, titles: bool) -> Any:
    """Return a figure with one panel per strategy."""
    sizes = [size(len(panel.rows)) for panel in panels]
    picture = plots.figure(max(width for width, _ in sizes), sum(height + TITLE for _, height in sizes))
    places = picture.subfigures(len(panels), 1, squeeze=False, height_ratios=[height + TITLE for _, height in sizes])
    for place, panel in zip(places.flat, panels):
        draw_multiples(
            place,
            {row.algo: curve for row, curve in zip(panel.rows, curves_of(panel, over)) if curve is not None},
            styles,
            BASELINE,
            labels_of(panel, over),
            headline(panel, PANEL[0] * COLUMNS) if titles else "",
            largest_of(panel),
            logarithmic_start(panel.results, over) if logarithmic else None,
        )
    return picture


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
        each = path_of(f"{name}_each")
        if many := [panel for panel in shown if len(panel.rows) > MANY]:
            save(draw_each_run(many, styles, over, logarithmic, look.titles), each, look)
    for painter in (selection_counts, clients_seen, gemd):
        lines(panels, styles, painter, path_of(painter.__name__), look)
    to_target, optimizers, selection = map(path_of, ("to_target", "optimizers", "selection_seconds"))
    if any(row.target_accuracy is not None for row in rows):
        units = ["rounds", "megabytes down", "megabytes up", *(["seconds"] if has_clock(rows) else [])]
        amounts = {name: f"{name.replace(' ', '_')}_to_target" for name in units}
        amounts_of(panels, styles, amounts, to_target, look)
    if any(row.optimizer for row in rows):
        optimizers_by_strategies(rows, optimizers, look)
    if not all(np.isnan(row.selection_seconds_per_round) for row in rows):
        seconds = {"milliseconds of selection per round": "selection_seconds_per_round"}
        amounts_of(panels, styles, seconds, selection, look, logarithmic=True)
