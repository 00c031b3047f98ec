"""Pictures of the papers' setting, with the same style per strategy in all pictures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.plots import Curve, Style, styles_of
from studies import aggregates
from studies.boards import measures
from studies.boards.grid import BASELINE, contender
from studies.boards.measures import Common
from studies.boards.series import Series, Setting
from studies.papers_setting import multiples
from studies.papers_setting.across import SCORES, Together, ahead
from studies.papers_setting.settings import ALGOS

OVER = {"megabytes": "megabytes sent, down and up", "round": "round", "seconds": "simulated seconds"}
"""Horizontal axes of accuracy plots: name -> label."""


def together(panels: Mapping[str, Mapping[str, Series]], over: str) -> Any:
    """Draw the test accuracy of all rows, one panel per setting: means over seeds with standard deviations.

    Args:
        panels: series by row, by title.
        over: key of `OVER`.
    """
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5.0 * columns + 2.0, 3.6 * lines + 0.4), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    styles = _styles(panels)
    for axis, (title, rows) in zip(axes.flat, panels.items()):
        for name, series in rows.items():
            plots.draw_band(axis, *_curve(series, over), name, styles[name], 1.0, together=len(rows))
        if over != "round":
            axis.set_xscale("log")
            plots.plain_ticks(axis)
        axis.set_title(parsing.label(title))
        axis.set_xlabel(OVER[over])
        axis.set_ylabel("test accuracy")
        axis.grid(alpha=0.25)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    drawn = {label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(drawn.values(), drawn, loc="outside right center", frameon=False, handlelength=3.5)
    return figure


def of_setting(title: str, rows: Mapping[str, Series], over: str) -> Any:
    """Draw the test accuracy of one setting; many rows get one panel each.

    Args:
        title: title of the setting.
        rows: series by row.
        over: key of `OVER`.
    """
    if len(rows) <= multiples.MANY:
        return together({title: rows}, over)
    from matplotlib.figure import Figure

    figure = Figure(figsize=multiples.size(len(rows)), layout="constrained")
    curves = {name: _curve(series, over) for name, series in rows.items()}
    begins = min(curve.x[0] for curve in curves.values()) if over != "round" else None
    multiples.draw_multiples(
        figure,
        curves,
        _styles({title: rows}),
        BASELINE,
        (OVER[over], "test accuracy"),
        parsing.label(title),
        1.0,
        begins,
    )
    return figure


IN_SHORT = {
    "fl_dp3s": "FL-DP3S", "clustered": "clustered sampling", "fedcor": "FedCor", "divfl": "DivFL",
    "pow_d": "power-of-choice", "random": "random",
}  # fmt: skip
"""Rows of the overview picture, under FedAvg: name -> readable name."""


def in_short(panels: Mapping[str, Mapping[str, Series]]) -> Any:
    """Draw the test accuracy of some rows over the megabytes, with one panel per setting.

    Bands are one standard deviation over seeds. A dotted line marks the total communication of random selection.

    Args:
        panels: series by row, by title.
    """
    from matplotlib.figure import Figure

    height = 3.9
    figure = Figure(figsize=(6.2 * len(panels), height), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    styles = _styles(panels)
    for axis, (title, rows) in zip(axes.flat, panels.items()):
        shown = {name: words for name, words in IN_SHORT.items() if name in rows}
        for name, words in shown.items():
            plots.draw_band(axis, *_curve(rows[name], "megabytes"), words, styles[name], 1.0, together=len(shown))
        if BASELINE in rows:
            end = rows[BASELINE].megabytes.mean(axis=0)[-1]
            axis.axvline(end, color="#808080", linewidth=0.8, linestyle=":")
            axis.annotate(f"random's {end:.0f} MB", (end, 0.02), xycoords=("data", "axes fraction"), xytext=(-3, 0),
                          textcoords="offset points", rotation=90, ha="right", fontsize="x-small")  # fmt: skip
        axis.set_xscale("log")
        plots.plain_ticks(axis)
        axis.set_title(parsing.label(f"{title} ({_seeds(rows)} seeds)"), fontsize="medium")
        axis.set_xlabel(OVER["megabytes"])
        axis.grid(alpha=0.25)
    axes[0, 0].set_ylabel("test accuracy")
    for axis in axes.flat:
        plots.label_ends(axis, 0.8 * height)
    return figure


def _seeds(rows: Mapping[str, Series]) -> int:
    return min(len(series.seeds) for series in rows.values())


LEADS_BY_COST = "leads_by_cost.png"
GROUPS = {"nearly one label per client": ("1spc", "xi0.8"), "several labels per client": ("2spc", "dir")}
"""Panels of the picture of leads by costs: title -> endings of the settings' names."""
LEADS_IN_WORDS = """\
Leads after 150 rounds, with 95 % intervals. Better and worse are against random selection under the same optimizer.
"Nearly one label": one label per client, or skewness 0.8. "Several": two labels per client, or Dirichlet 0.2. Each
panel covers Fashion-MNIST and MNIST, with ten seeds."""


def leads_by_cost(panels: Mapping[str, Sequence[Together]], costs: Mapping[str, Mapping[str, float]]) -> Any:
    """Draw each row's lead over random selection against its communication cost, one panel per group of settings.

    Leads are interquartile means over settings and seeds with their 95 % intervals. The legend explains the markers.

    Args:
        panels: the rows of each group of settings, by title.
        costs: megabytes as a multiple of random selection's, by title and row.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    measure, height = next(iter(SCORES)), 4.9
    figure = Figure(figsize=(6.0 * len(panels), height), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    rows = list(dict.fromkeys(one.name for found in panels.values() for one in found))
    styles = styles_of([*ALGOS, *rows])
    labels: list[tuple[Any, list[tuple[float, float, str, str]]]] = []
    for axis, (title, found) in zip(axes.flat, panels.items()):
        axis.axhline(0.0, color=styles[BASELINE].color, linewidth=0.9)
        points = []
        for one in found:
            if one.name == BASELINE:
                continue
            color, better = styles[one.name].color, ahead(one)
            middle = aggregates.interquartile_mean(one.leads[measure])
            low, high = map(float, aggregates.interquartile_mean_interval(one.leads[measure]))
            marker = "o" if contender(one.name).optimizer == "fedavg" else "D"
            if not better and abs(middle) < SMALL and costs[title][one.name] < NEAR:
                axis.plot(costs[title][one.name], middle, ".", color=styles[BASELINE].color, markersize=4)
                continue
            axis.plot([costs[title][one.name]] * 2, [low, high], color=color, linewidth=1.0, alpha=0.5)
            axis.plot(costs[title][one.name], middle, marker, color=color, markerfacecolor=color if better else "white")
            points.append((costs[title][one.name], middle, one.name, color))
        labels.append((axis, points))
        axis.set_xscale("log")
        axis.set_xlim(0.94, 1.6 * max(max(of_row.values()) for of_row in costs.values()))
        plots.plain_ticks(axis)
        axis.set_title(parsing.label(title), fontsize="medium")
        axis.set_xlabel("megabytes sent, as a multiple of random selection's")
        axis.grid(alpha=0.25)
    axes[0, 0].set_ylabel("lead in test accuracy over random selection")
    for axis, points in labels:
        _label_points(axis, points, 0.75 * height)
    settings = len(next(one for found in panels.values() for one in found).verdicts[measure])
    gray = styles[BASELINE].color
    markers = {
        f"filled: better in {-(-settings // 2)} or more of the {settings} settings and worse in none": ("o", "black"),
        "open: not": ("o", "white"),
        "circle: FedAvg": ("o", "black"),
        "diamond: FedYogi": ("D", "black"),
        f"gray: lead below {SMALL:g} at random selection's cost": (".", gray),
    }
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=gray if face == gray else "black", markerfacecolor=face)
        for marker, face in markers.values()
    ]
    figure.legend(
        handles,
        markers,
        loc="outside lower center",
        ncols=len(markers),
        frameon=False,
        fontsize="small",
        columnspacing=1.0,
        handletextpad=0.2,
    )
    return figure


SMALL = 0.03  # lead in accuracy
NEAR = 1.2  # points whose costs differ by less share a column of labels


def _label_points(axis: Any, points: Sequence[tuple[float, float, str, str]], height: float) -> None:
    """Label points (x, y, name, color) to their right; labels of points with similar x move apart vertically."""
    columns: list[list[tuple[float, float, str, str]]] = []
    for point in sorted(points):
        if columns and point[0] < NEAR * columns[-1][0][0]:
            columns[-1].append(point)
        else:
            columns.append([point])
    low, high = axis.get_ylim()
    for column in columns:
        ordered = sorted(column, key=lambda point: point[1])
        wanted = np.array([(y - low) / (high - low) for _, y, _, _ in ordered])
        right = max(x for x, _, _, _ in column)
        for (x, y, name, color), at in zip(ordered, plots.spread(wanted, plots.LABEL / height)):
            axis.annotate(
                parsing.label(name), (x, y), xytext=(1.06 * right, low + at * (high - low)), color=color,
                fontsize="x-small", va="center",
                arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 3},
            )  # fmt: skip


def _styles(panels: Mapping[str, Mapping[str, Series]]) -> dict[str, Style]:
    return styles_of([*ALGOS, *(name for rows in panels.values() for name in rows)])


def _curve(series: Series, over: str) -> Curve:
    accuracy = np.asarray(series.test_accuracy, np.float64)
    evaluated = ~np.isnan(accuracy).all(axis=0)
    if over == "round":
        places = np.arange(1.0, series.rounds + 1)
    else:
        places = (series.time if over == "seconds" else series.megabytes).mean(axis=0)
    return Curve(places[evaluated], accuracy[:, evaluated])


def profiles(found: Sequence[Together]) -> Any:
    """Draw the share of runs whose lead over random selection exceeds tau, for every tau.

    At most `MOST` rows have colors, those ahead of random selection if there are any; the others are gray.

    Args:
        found: results of the rows in all settings, best first.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 4.4), layout="constrained")
    axes = figure.subplots(1, len(SCORES))
    drawn: dict[str, Any] = {}
    styles = styles_of([*ALGOS, *(one.name for one in found)])
    others = [one for one in found if one.name != BASELINE]
    named = [one.name for one in [one for one in others if ahead(one)] or others][:MOST]
    for axis, (score, words) in zip(axes, SCORES.items()):
        by_row = {one.name: one.leads[score] for one in found if one.name != BASELINE}
        everything = np.concatenate([values.ravel() for values in by_row.values()]) if by_row else np.zeros(1)
        thresholds = np.linspace(min(everything.min(), 0.0), max(everything.max(), 0.0), 201)
        for name, values in sorted(by_row.items(), key=lambda item: item[0] in named):  # the gray lines below
            share = aggregates.performance_profile(values, thresholds)
            look = (
                {"color": styles[name].color, "linestyle": styles[name].line, "linewidth": 1.6}
                if name in named
                else {"color": styles[BASELINE].color, "linewidth": 0.6, "alpha": 0.6}
            )
            (line,) = axis.plot(thresholds, share, **look)
            drawn.setdefault(name if name in named else "other strategies", line)
        drawn["random selection"] = axis.axvline(0.0, color=styles[BASELINE].color, linewidth=1.6)
        axis.set_xlabel(f"tau: {words},\nover random selection")
        axis.set_ylabel("share of runs with more than tau")
        axis.grid(alpha=0.25)
    order = [name for name in (*named, "other strategies", "random selection") if name in drawn]
    figure.legend(
        [drawn[name] for name in order], map(parsing.label, order), loc="outside right center", frameon=False,
        handlelength=3.5,
    )  # fmt: skip
    return figure


MOST = 8  # colored lines of a performance profile


def budgets(boards: Mapping[str, Setting], shared: Mapping[str, Common]) -> Any:
    """Draw the strategy with the highest mean accuracy at each budget, as one colored strip per setting.

    Args:
        boards: settings by name.
        shared: reference values by setting.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    panels = {"under FedAvg": ("fedavg",), "under either optimizer": None}
    figure = Figure(figsize=(12.0, 1.6 + 0.42 * len(boards)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True)
    shown: dict[str, Any] = {}
    styles = styles_of([*ALGOS, *(row for held in boards.values() for row in held.rows)])
    for axis, (words, optimizers) in zip(axes, panels.items()):
        for line, (name, held) in enumerate(boards.items()):
            rows = [row for row in held.rows if optimizers is None or contender(row).optimizer in optimizers]
            if not rows:
                continue
            megabytes = measures.grid_of(shared[name])
            curves = np.stack([measures.curve(held.rows[row], megabytes, shared[name].guess) for row in rows])
            knows = curves.max(axis=0) > shared[name].guess
            share, best = megabytes / megabytes[-1], np.where(knows, curves.argmax(axis=0), -2)
            starts = np.flatnonzero(np.diff(best, prepend=-1))
            for start, end in zip(starts, [*starts[1:], len(best) - 1]):
                if best[start] < 0:
                    continue  # no strategy exceeds random guessing
                row = rows[best[start]]
                hatch = "" if contender(row).optimizer == "fedavg" else "///"
                look = {"facecolor": styles[row].color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.0}
                axis.barh(line, share[end] - share[start], left=share[start], height=0.8, **look)
                shown.setdefault(row, Patch(**look))
        axis.set_xscale("log")
        axis.set_xlim(measures.FEWEST, 1.0)
        axis.set_xticks(ticks := [0.05, 0.1, 0.2, 0.5, 1.0], [f"{100 * tick:g} %" for tick in ticks])
        axis.minorticks_off()
        axis.set_title(words)
        axis.set_xlabel("share of the equal megabytes")
    axes[0].set_yticks(range(len(boards)), [parsing.label(held.about["title"]) for held in boards.values()])
    axes[0].invert_yaxis()
    figure.legend(shown.values(), map(parsing.label, shown), loc="outside right center", frameon=False)
    return figure


def leads_in_seconds(found: Mapping[str, Mapping[str, Mapping[str, tuple[float, float, float]]]]) -> Any:
    """Draw each row's lead over random selection at equal seconds, with its interval, per setting and world.

    Args:
        found: lead, low and high end, by title of the setting, world and row.
    """
    from matplotlib.figure import Figure

    columns = max(len(worlds) for worlds in found.values())
    rows = list(dict.fromkeys(row for worlds in found.values() for leads in worlds.values() for row in leads))
    height = 0.8 + 0.24 * len(rows)
    figure = Figure(figsize=(2.0 + 2.1 * columns, height * len(found)), layout="constrained")
    axes = figure.subplots(len(found), columns, sharey=True, sharex=True, squeeze=False)
    styles = styles_of([*ALGOS, *rows])
    for line, (title, worlds) in zip(axes, found.items()):
        for axis, (world, leads) in zip(line, worlds.items()):
            for row, (lead, low, high) in leads.items():
                place = rows.index(row)
                axis.plot([low, high], [place, place], color=styles[row].color, linewidth=1.6)
                axis.plot(lead, place, "o", color=styles[row].color, markersize=4)
            axis.axvline(0.0, color=styles[BASELINE].color, linewidth=0.8)
            axis.set_title(world, fontsize="medium")
            axis.grid(alpha=0.25)
        line[0].set_ylabel(parsing.label(title))
        for axis in line[len(worlds) :]:
            axis.remove()
    axes[0, 0].set_yticks(range(len(rows)), [parsing.label(row) for row in rows], fontsize="small")
    axes[0, 0].invert_yaxis()
    figure.supxlabel("lead in accuracy over random selection, at equal seconds", fontsize="medium")
    return figure
