"""Plots of runs and comparisons: styles, curves with bands, and small file sizes."""

import itertools
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.config import VALUE, Config, is_value
from fedjax_sel.core import files, parsing
from fedjax_sel.errors import UserError
from fedjax_sel.reporting.comparison import Row
from fedjax_sel.runs.run_files import Result

COLORS = (
    "#7F7F7F", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9",
    "#882255", "#0072B2", "#6A3D9A", "#A6761D", "#B2182B", "#7CB500",
)  # fmt: skip
"""Gray for the baseline, then the palette of Okabe and Ito with further hues; neighbors also differ in lightness."""
ON_BLACK = (
    "#9AA0A6", "#F07F2F", "#22C795", "#F0A3CC", "#F2F2F2", "#FFC233", "#9AD8FF",
    "#D4559A", "#4BA3E3", "#AD8BE8", "#C79A4A", "#F2596B", "#A9E02E",
)  # fmt: skip
"""The same hues for dark backgrounds, in the same order."""
LINES: tuple[tuple[Any, str], ...] = (
    ("-", "solid"),
    ((0, (5, 1.5)), "10px,3px"),
    ((0, (1.2, 1.2)), "2.5px,2.5px"),
    ((0, (6, 1.5, 1.2, 1.5)), "12px,3px,2.5px,3px"),
    ((0, (9, 2, 1.2, 1.2, 1.2, 2)), "18px,4px,2.5px,2.5px,2.5px,4px"),
)
"""Line styles for Matplotlib, in multiples of the line width, and for browsers."""
KNOWN = (
    "random", "fedgp", "fedcor", "gpfl", "fl_dp3s", "afl", "pow_d", "fedsae", "clustered", "divfl", "oort", "tifl",
    "fedcs", "ocs", "kvib", "e3cs", "cyclic", "hics_fl", "fedlecc", "fed_cbs", "greedyfed", "osmd", "delta", "full",
)  # fmt: skip
"""Strategies with a fixed style, in the order of their styles: append new ones."""


class Style(NamedTuple):
    """One strategy's style."""

    color: str  # for light backgrounds
    line: Any  # Matplotlib line style
    on_black: str  # color for dark backgrounds
    dash: str  # line style for browsers


def styles_of(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each strategy; all are distinct while there are at most 60 beside `random` and its variants.

    A strategy of the package always has the same style, and `random`, the usual baseline, alone is gray. A variant with
    parameters or an optimizer (`name[key=value]`, `name + optimizer`) has the same color with another line style. Other
    strategies get the remaining styles in order.
    """
    places = _places()
    own = {KNOWN[0]: (0, 0), **dict(zip(KNOWN[1:], places))}
    free = [place for place in places if place not in own.values()]
    chosen: dict[str, tuple[int, int]] = {}
    for name in dict.fromkeys(names):
        if name in own:
            chosen[name] = own[name]
            continue
        base = own.get(re.split(r"[\[ ]", name, maxsplit=1)[0])
        of_color = [(0, line) for line in range(1, len(LINES))] if base == own[KNOWN[0]] else free
        related = [place for place in of_color if base and place[0] == base[0] and place not in chosen.values()]
        chosen[name] = (related or free or places[len(chosen) % len(places) :])[0]
        if chosen[name] in free:
            free.remove(chosen[name])
    return {
        name: Style(COLORS[color], LINES[line][0], ON_BLACK[color], LINES[line][1])
        for name, (color, line) in chosen.items()
    }


def _places() -> list[tuple[int, int]]:
    """Return all pairs of a color and a line style: one of each color, then each color with its next line style."""
    last = len(LINES) - 1
    steps = (0, 2, last, 1, 3)  # a color's second line style looks least like its first
    return [
        (color, last if step == last else (color + step) % last) for step in steps for color in range(1, len(COLORS))
    ]


class Look(NamedTuple):
    """Format and resolution of saved plots, and whether they have titles."""

    suffix: str = ".png"
    dpi: int = 110
    titles: bool = True


SCREEN = Look()
PRINT_DPI = 300


def look_of(format: str | None, style: str) -> Look:
    """Return the look for a format, None for PNG at the resolution of screens, and a style, `screen` or `paper`."""
    dpi = SCREEN.dpi if format is None and style == "screen" else PRINT_DPI
    return Look(SCREEN.suffix if format is None else f".{format}", dpi, style == "screen")


SMOOTHING = 0.02  # window of the running mean, as a fraction of the points


class Band(NamedTuple):
    """A line and the limits of its band, [points] each."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def band(values: np.ndarray, largest: float = np.inf, window: int = 1) -> Band:
    """Return the mean of a measure [seeds, points] plus and minus one sample standard deviation, at most `largest`.

    It is at least 0 unless values are negative. Missing values are NaN. Both are smoothed by a running mean over
    `window` points.
    """
    mean, deviation = mean_and_deviation(values)
    deviation = np.where(np.isnan(deviation), 0.0, deviation)
    if window > 1:
        mean, deviation = running_mean(mean, window), running_mean(deviation, window)
    least = -np.inf if (values < 0).any() else 0.0
    largest = np.inf if (values > largest).any() else largest
    return Band(mean, np.maximum(mean - deviation, least), np.minimum(mean + deviation, largest))


def mean_and_deviation(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sample standard deviation over seeds, [points] each, of values [seeds, points].

    Missing values are NaN. The deviation of fewer than two values is NaN.
    """
    values = np.asarray(values, np.float64)
    measured = ~np.isnan(values)
    mean, degrees = metrics.mean_of_measured(values, axis=0), measured.sum(axis=0) - 1
    squares = np.where(measured, (values - mean) ** 2, 0.0).sum(axis=0)
    return mean, np.where(degrees > 0, np.sqrt(squares / np.maximum(degrees, 1)), np.nan)


def draw_band(
    axis: Any,
    x: np.ndarray,
    values: np.ndarray,
    name: str,
    style: Style,
    largest: float = np.inf,
    raw: bool = False,
    together: int = 1,
) -> None:
    """Draw one strategy's line and band, with a running mean over 2 % of the points if there are 100 or more.

    The values are as for `band`, at the coordinates x, [points]. If `raw`, the unsmoothed mean is drawn faintly behind
    the running mean. Bands are fainter if those of several strategies are drawn `together`.
    """
    window = window_of(x)
    found = band(values, largest, window)
    if raw and window > 1:
        axis.plot(x, band(values).mean, color=style.color, alpha=0.25, linewidth=0.7)
    axis.plot(
        x, found.mean, color=style.color, linestyle=style.line, linewidth=1.6, label=parsing.label(name),
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


LABEL = 0.13  # height of a line's label, inches


def label_ends(axis: Any, height: float) -> None:
    """Label each drawn line of an axis at its right end, in its color; labels that would overlap move apart.

    `height` is that of the axis in inches. A line's label is its Matplotlib label; lines without one get none.
    """
    low, high = axis.get_ylim()
    ends = []
    for line in axis.lines:
        finite = np.flatnonzero(np.isfinite(np.asarray(line.get_ydata(), float)))
        if len(finite) and not line.get_label().startswith("_"):
            ends.append(((line.get_ydata()[finite[-1]] - low) / (high - low), line.get_xdata()[finite[-1]], line))
    ends.sort(key=lambda end: end[0])
    wanted = np.array([own for own, _, _ in ends])
    for (own, x, line), at in zip(ends, spread(wanted, LABEL / height)):
        axis.annotate(
            line.get_label(), (x, own), xycoords=("data", "axes fraction"),
            xytext=(1.03, at), textcoords="axes fraction", color=line.get_color(), fontsize="small", va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.5, "linestyle": ":", "shrinkB": 0},
        )  # fmt: skip


def spread(places: np.ndarray, gap: float) -> np.ndarray:
    """Return ascending places moved apart to at least a gap, each group around the mean of its places."""
    from scipy.optimize import isotonic_regression

    steps = gap * np.arange(len(places))
    return isotonic_regression(places - steps).x + steps if len(places) else places


def plain_ticks(axis: Any) -> None:
    """Give a logarithmic horizontal axis few ticks, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_xlim()
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high / low < 10 else (1.0, 2.0, 5.0) if high / low < 200 else (1.0,)
    axis.xaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def figure(width: float, height: float) -> Any:
    """Return a figure of this size in inches."""
    from matplotlib.figure import Figure  # not pyplot, which would change the caller's backend

    return Figure(figsize=(width, height), layout="constrained")


X_LABELS = {
    "round": "round", "megabytes": "megabytes moved, down and up", "megabytes_down": "megabytes down",
    "megabytes_up": "megabytes up", "seconds": "simulated seconds",
}  # fmt: skip


def x_of(result: Any, over: str) -> np.ndarray:
    """Return the horizontal coordinates of rounds by a key of X_LABELS, [rounds]; means over seeds."""
    if over == "round":
        return np.arange(1, result.num_rounds + 1.0)
    if over == "seconds":
        return result.seconds_spent.mean(axis=0)
    down, up = result.ledger.bytes_down, result.ledger.bytes_up
    moved = {"megabytes_down": down, "megabytes_up": up, "megabytes": down + up}[over]
    return moved.cumsum(axis=1).mean(axis=0) / 1e6


class Curve(NamedTuple):
    """One strategy's curve."""

    x: np.ndarray  # [points]
    values: np.ndarray  # [seeds, points]


def curve_of(result: Any, name: str, over: str) -> Curve | None:
    """Return a run's measure over rounds or an amount, where it is evaluated; None if it never is."""
    values = np.asarray(result.measured[name], np.float64)
    present = ~np.isnan(values)
    # GEMD is missing for empty cohorts, which occur in different rounds for each seed. Other measures are
    # evaluated for all seeds at once, so a NaN there is a non-finite value, which leaves no mean.
    measured = present.any(axis=0) if name == "gemd" else present.all(axis=0)
    return Curve(x_of(result, over)[measured], values[:, measured]) if measured.any() else None


def name_axes(axis: Any, x: str, y: str) -> None:
    """Label both axes and draw a grid."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.25)


def title(config: Config, data_source: str) -> str:
    """Return a one-line description of a run's setting and its data source."""
    settings = config.partition
    detail = {
        "shards": f", {settings.shards_per_client} per client",
        "skewness": f" {settings.skewness}",
        "dirichlet_qp": f" {settings.alpha:g}",
        "dirichlet": f" {settings.alpha:g} ({settings.dirichlet_form})",
        "classes": f", {settings.classes_per_client} per client",
        "extended_dirichlet": f" {settings.alpha:g}, {settings.classes_per_client} classes per client",
    }.get(settings.partition, "")
    seeds = len(config.run.seeds)
    training = config.training
    arguments = ", ".join(f"{key}={value}" for key, value in training.optimizer_args)
    optimizer = f"; {training.optimizer.removeprefix(VALUE)}" + (f" ({arguments})" if arguments else "")
    data = config.data.dataset
    data = data.removeprefix(VALUE) if is_value(data) else data.split(":")[0]
    return (
        f"{data} ({data_source}), {settings.partition.removeprefix(VALUE)}{detail}; {settings.num_clients} clients, "
        f"{config.selection.num_selected} per round, {seeds} seed{'s' if seeds > 1 else ''}"
        f"{'' if training.optimizer == 'fedavg' else optimizer}"
    )


def curves_if_lost(results: Mapping[str, Result], path: Path) -> None:
    """Draw the curves of a run if the file is missing; see `curves`."""
    if not path.exists():
        curves(results, path)


def curves(results: Mapping[str, Result], path: Path, look: Look = SCREEN) -> None:
    """Draw accuracy, loss and GEMD over rounds, and accuracy over megabytes moved and over simulated seconds.

    Lines are means over seeds; bands are plus and minus one sample standard deviation, clipped to the measure's range.
    With 100 rounds or more, a running mean over 2 % of the rounds is drawn over the faint raw mean.
    """
    first, chosen = next(iter(results.values())), styles_of(results)
    test, _, train, *_ = first.measured
    words = first.measure_in_words
    trained = any(not np.isnan(result.measured[train]).all() for result in results.values())
    panels = [  # column, horizontal axis, and label
        (test, "round", f"test {words}"),
        *([(train, "round", f"{words} on all clients' training data")] if trained else []),
        ("test_loss", "round", "test loss"),
        ("gemd", "round", "GEMD of the cohort (lower: more diverse)"),
        (test, "megabytes", f"test {words}"),
        *([(test, "seconds", f"test {words}")] if first.has_clock else []),
    ]
    columns = 2 if len(panels) <= 4 else 3
    picture = figure(5.2 * columns, 7.2)
    axes = picture.subplots(-(-len(panels) // columns), columns, squeeze=False)
    for axis, (name, over, label) in zip(axes.flat, panels):
        _draw_measure(axis, results, name, over, chosen, raw=True)
        name_axes(axis, X_LABELS[over], label)
        if axis.dataLim.y0 >= 0:
            axis.set_ylim(bottom=max(axis.get_ylim()[0], 0.0))
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    # A run that ended before its first test has no curve of accuracy.
    handles, names = max((axis.get_legend_handles_labels() for axis in axes.flat), key=lambda found: len(found[1]))
    longest = max(map(len, names), default=0)
    fitting = int(5.2 * columns / (0.9 + 0.085 * longest))  # inches of the figure, and of a name
    ncols = max(1, min(len(names), 3 * columns, fitting))
    picture.legend(handles, names, loc="outside lower center", ncols=ncols, frameon=False, handlelength=3.5)
    if look.titles:
        picture.suptitle(parsing.label(title(first.config, first.data_source)))
    save(picture, path, look)


PANELS_A_ROW = 3
AXIS = 3.2  # height of a panel's axis, inches
TITLE_CHARACTERS = 50  # line length of a panel's title
LOGARITHMIC_ABOVE = 5.0  # ratio of the totals of megabytes or seconds; a linear axis would hide the cheapest run


class Panel(NamedTuple):
    """The runs of a comparison under one setting and optimizer, which share a panel."""

    conditions: str
    optimizer: str  # empty if only one is compared
    results: dict[str, Result]  # by strategy


def draw_comparison(rows: Sequence[Row], results: Sequence[Result], folder: Path, look: Look = SCREEN) -> None:
    """Draw the curves of finished runs over rounds and costs; the results are in the order of the rows."""
    panels: dict[str, Panel] = {}
    for row, result in zip(rows, results):
        panel = panels.setdefault(row.conditions, Panel(row.conditions, row.optimizer, {}))
        panel.results[row.algo] = result
    styles = styles_of(row.algo for row in rows)
    measures = {row.measure for row in rows}
    measure = measures.pop().replace(" ", "_") if len(measures) == 1 else "measure"
    for over in ("round", "megabytes_down", "megabytes_up", "seconds"):
        shown = [one for one in panels.values() if over != "seconds" or next(iter(one.results.values())).has_clock]
        path = folder / f"{measure}_by_{over}{look.suffix}"
        path.unlink(missing_ok=True)  # an earlier call may have drawn what this one does not
        if shown:
            _draw_panels(shown, styles, over, path, look)


def _draw_panels(panels: list[Panel], styles: dict[str, Style], over: str, path: Path, look: Look) -> None:
    """Draw each panel over a key of `X_LABELS`, cumulative, and save the figure."""
    # With several optimizers, each setting gets its own row.
    optimizers = {panel.optimizer for panel in panels}
    columns = len(optimizers) if len(optimizers) > 1 else min(len(panels), PANELS_A_ROW)
    rows = -(-len(panels) // columns)
    label_width = 0.8 + 0.085 * max(map(len, styles))
    picture = figure((4.8 + label_width) * columns, 4.2 * rows)
    axes = picture.subplots(rows, columns, squeeze=False)
    totals = [x_of(result, over)[-1] for panel in panels for result in panel.results.values()]
    logarithmic = over != "round" and max(totals) > LOGARITHMIC_ABOVE * min(totals) > 0
    for axis, panel in itertools.zip_longest(axes.flat, panels):
        if panel is None:
            axis.remove()
            continue
        first = next(iter(panel.results.values()))
        _draw_measure(axis, panel.results, first.test_measure, over, styles)
        if logarithmic:
            axis.set_xscale("log")
            # From the earliest first round, or from 1/100 of the smallest total if that is larger.
            xs = [x_of(result, over) for result in panel.results.values()]
            axis.set_xlim(left=max(min(x[-1] for x in xs) / 100, min(x[0] for x in xs)))
            plain_ticks(axis)
        name_axes(axis, X_LABELS[over], f"test {first.measure_in_words}")
        if look.titles:
            about = textwrap.wrap(title(first.config, first.data_source), TITLE_CHARACTERS)
            axis.set_title("\n".join(map(parsing.label, [panel.conditions, *about])), fontsize="small")
        label_ends(axis, AXIS)
    save(picture, path, look)


def _draw_measure(
    axis: Any, results: Mapping[str, Any], name: str, over: str, styles: Mapping[str, Style], raw: bool = False
) -> None:
    """Draw a measure of runs, given by strategy, over a key of `X_LABELS`, cumulative; and its target, if any."""
    for run, result in results.items():
        if (curve := curve_of(result, name, over)) is not None:
            largest = 1.0 if "accuracy" in name else np.inf
            draw_band(axis, *curve, run, styles[run], largest, raw, together=len(results))
    first = next(iter(results.values()))
    if name == first.test_measure and first.config.run.target_accuracy is not None:
        axis.axhline(first.config.run.target_accuracy, color="gray", linewidth=0.8, linestyle="--")


def save(figure: Any, path: Path, look: Look = SCREEN) -> None:
    """Write a figure in the format of the path's suffix, PNG by default."""
    import matplotlib

    format = path.suffix.removeprefix(".") or "png"
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(format)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        embedded = matplotlib.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "fedjax_sel"})  # fonts; equal files
        with embedded, files.writing(path) as file:
            figure.savefig(file, format=format, dpi=look.dpi, metadata=undated)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the plot to {path} ({error}); give another --out") from error
