"""Pictures of a comparison: many strategies in one panel, one panel for each setting and optimizer.

accuracy_by_round.png, accuracy_by_megabytes_down.png, accuracy_by_megabytes_up.png
to_target.png              rounds and megabytes to the target accuracy, N/A where a seed fails
selection_counts.png       rounds in which each client trained, the busiest client first
clients_seen.png           clients that have trained at least once
gemd.png                   GEMD of the cohorts
selection_seconds.png      seconds of selection a round
optimizers.png             strategies by optimizers: accuracy at the end, rounds to the target; where there are several
"""

import itertools
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.core import texts
from fedjax_sel.errors import UserError
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.comparison import LAST_ROUNDS, NOT_REACHED, Row, Spread
from fedjax_sel.runs.records import Result

COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00",
    "#56B4E9", "#882255", "#7F7F7F", "#6A3D9A", "#A6761D", "#B2182B",
)  # fmt: skip
"""Okabe and Ito's, and darker ones between them; neighbours differ in lightness as well."""
LINE_STYLES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
PANELS_A_ROW = 3
LOGARITHMIC_ABOVE = 5.0  # times the cheapest run's megabytes


class Style(NamedTuple):
    """How a strategy is drawn, the same in every picture."""

    color: str
    line: Any  # a Matplotlib line style


class Panel(NamedTuple):
    """A setting and an optimizer: what is drawn in one place."""

    conditions: str
    rows: list[Row]
    results: list[Result]


def draw(rows: Sequence[Row], results: Sequence[Result], folder: Path) -> None:
    """Draw the pictures of a comparison, in which a line is the mean over seeds.

    Args:
        rows: finished runs.
        results: theirs, in the same order.
        folder: where to.

    Raises:
        UserError: a picture cannot be written.
    """
    panels = [
        Panel(
            conditions,
            [row for row in rows if row.conditions == conditions],
            [result for row, result in zip(rows, results) if row.conditions == conditions],
        )
        for conditions in dict.fromkeys(row.conditions for row in rows)
    ]
    styles = styles_of(row.algo for row in rows)
    measures = {row.measure for row in rows}
    measure = measures.pop().replace(" ", "_") if len(measures) == 1 else "measure"
    for name, painter in {
        f"{measure}_by_round": _measure(None),
        f"{measure}_by_megabytes_down": _measure("bytes_down", _costs_differ_much(results, "bytes_down")),
        f"{measure}_by_megabytes_up": _measure("bytes_up", _costs_differ_much(results, "bytes_up")),
        "selection_counts": _selection_counts,
        "clients_seen": _clients_seen,
        "gemd": _gemd,
    }.items():
        _lines(panels, styles, painter, folder / f"{name}.png")
    amounts = {"rounds": "rounds_to_target", "megabytes down": "megabytes_down_to_target"}
    amounts |= {"megabytes up": "megabytes_up_to_target"}
    if any(row.target_accuracy is not None for row in rows):
        _amounts(panels, styles, amounts, _to_target_label, folder / "to_target.png")
    else:
        (folder / "to_target.png").unlink(missing_ok=True)  # of an earlier call with a target
    if any(row.optimizer for row in rows):
        _optimizers(rows, folder / "optimizers.png")
    seconds = {"milliseconds of selection a round": "selection_seconds_per_round"}
    _amounts(panels, styles, seconds, lambda row, label: label, folder / "selection_seconds.png", logarithmic=True)


def styles_of(algos: Any) -> dict[str, Style]:
    """Return a style for each strategy, all different up to 48 of them.

    Args:
        algos: names; those that are there already keep their style if others are added behind them.
    """
    names = list(dict.fromkeys(algos))
    count = len(COLORS)
    return {
        name: Style(COLORS[index % count], LINE_STYLES[(index + index // count) % len(LINE_STYLES)])
        for index, name in enumerate(names)
    }


def _costs_differ_much(results: Sequence[Any], bytes_moved: str) -> bool:
    """Return whether the dearest run moves so much more than the cheapest that a linear axis would hide the latter."""
    totals = [getattr(result.ledger, bytes_moved).sum(axis=1).mean() for result in results]
    return max(totals) > LOGARITHMIC_ABOVE * min(totals) > 0


def _measure(bytes_moved: str | None, logarithmic: bool = False) -> Callable[[Any, Panel, dict[str, Style]], None]:
    """Return a painter of the task's measure over rounds, or over megabytes moved so far (a field of the ledger)."""

    def paint(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
        totals = []
        for row, result in zip(panel.rows, panel.results):
            values = np.asarray(result.measured[result.test_measure], np.float64)
            measured = ~np.isnan(values).any(axis=0)
            x = np.arange(1, result.num_rounds + 1.0)
            if bytes_moved is not None:
                x = getattr(result.ledger, bytes_moved).cumsum(axis=1).mean(axis=0) / 1e6
                totals.append((x[0], x[-1]))
            _line(axis, x[measured], values[:, measured].mean(axis=0), row.algo, styles)
        if logarithmic:
            axis.set_xscale("log")
            axis.set_xlim(left=max(min(end for _, end in totals) / 100, min(start for start, _ in totals)))
        target = panel.rows[0].target_accuracy
        if target is not None:
            axis.axhline(target, color="gray", linewidth=0.8, linestyle="--")
        direction = {None: "round", "bytes_down": "megabytes down", "bytes_up": "megabytes up"}[bytes_moved]
        _name(axis, direction, f"test {panel.rows[0].measure}")

    return paint


def _selection_counts(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    for row, result in zip(panel.rows, panel.results):
        counts = metrics.selection_counts(result.cohorts, result.config.partition.num_clients)
        busiest_first = -np.sort(-counts, axis=1)
        _line(axis, np.arange(1, counts.shape[1] + 1.0), busiest_first.mean(axis=0), row.algo, styles, smooth=False)
    _name(axis, "client, the busiest first", "rounds in which it trained")


def _clients_seen(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    for row, result in zip(panel.rows, panel.results):
        seen = metrics.clients_seen(result.cohorts, result.config.partition.num_clients).mean(axis=0)
        _line(axis, np.arange(1, len(seen) + 1.0), seen, row.algo, styles, smooth=False)
    axis.axhline(panel.results[0].config.partition.num_clients, color="gray", linewidth=0.8, linestyle="--")
    if panel.results[0].num_rounds >= 100:
        axis.set_xscale("log")
    _name(axis, "round", "clients that have trained at least once")


def _gemd(axis: Any, panel: Panel, styles: dict[str, Style]) -> None:
    for row, result in zip(panel.rows, panel.results):
        gemd = metrics.mean_of_measured(result.gemd, axis=0)
        measured = ~np.isnan(gemd)
        if measured.any():
            _line(axis, np.flatnonzero(measured) + 1.0, gemd[measured], row.algo, styles)
    axis.set_ylim(bottom=0)
    _name(axis, "round", "GEMD of the cohort (lower: more diverse)")


def _line(axis: Any, x: np.ndarray, y: np.ndarray, algo: str, styles: dict[str, Style], smooth: bool = True) -> None:
    """Draw the line of one strategy; with 100 points or more a running mean over 2 % of them."""
    window = round(plots.SMOOTHING * len(x)) if smooth else 1
    if window > 1:
        y = plots.running_mean(y, window)
    style = styles[algo]
    marker = "o" if len(x) == 1 else None
    axis.plot(x, y, color=style.color, linestyle=style.line, linewidth=1.5, label=texts.label(algo), marker=marker)


def _name(axis: Any, x: str, y: str) -> None:
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.25)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # not pyplot: a caller's backend is left alone

    return Figure(figsize=(width, height), layout="constrained")


def _headline(panel: Panel, width: float) -> str:
    """Return the setting and the pixels' source, in lines that fit a panel of so many inches."""
    first = panel.results[0]
    return "\n".join(
        map(
            texts.label,
            [panel.conditions, *textwrap.wrap(plots.title(first.config, first.data_source), round(10.5 * width))],
        )
    )


def _lines(panels: list[Panel], styles: dict[str, Style], painter: Callable, path: Path) -> None:
    # with several optimizers a setting has a row of its own
    optimizers = {panel.rows[0].optimizer for panel in panels}
    columns = len(optimizers) if len(optimizers) > 1 else min(len(panels), PANELS_A_ROW)
    rows = -(-len(panels) // columns)
    legend_width = 0.8 + 0.085 * max(map(len, styles))
    figure = _figure(4.8 * columns + legend_width, 4.2 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, panel in itertools.zip_longest(axes.flat, panels):
        if panel is None:
            axis.remove()
            continue
        painter(axis, panel, styles)
        axis.set_title(_headline(panel, 4.8), fontsize="small")
    handles = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    ordered = [name for name in map(texts.label, styles) if name in handles]
    figure.legend(
        [handles[name] for name in ordered], ordered, loc="outside right upper", frameon=False, handlelength=3.5
    )
    _save(figure, path)


def _optimizers(rows: Sequence[Row], path: Path) -> None:
    """Draw for each setting a chessboard of strategies and optimizers; darker is better."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    algos, optimizers = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("algo", "optimizer"))
    better = 1.0 if rows[0].higher_is_better else -1.0
    numbers = {f"mean test {rows[0].measure} of the last {LAST_ROUNDS} rounds": ("last_rounds", "{:.3f}", better)}
    if any(row.target_accuracy is not None for row in rows):
        numbers["rounds to the target"] = ("rounds_to_target", "{:.0f}", -1.0)
    width = 1.6 + 1.05 * len(optimizers)
    figure = _figure(width * len(numbers) + 1.0, (1.3 + 0.5 * len(algos)) * len(settings))
    axes = figure.subplots(len(settings), len(numbers), squeeze=False)
    for setting, line in zip(settings, axes):
        found = {(row.algo, row.optimizer): row for row in rows if row.setting == setting}
        for axis, (about, (field, form, better)) in zip(line, numbers.items()):
            values = np.full((len(algos), len(optimizers)), np.nan)
            for place, key in enumerate(itertools.product(algos, optimizers)):
                amount = getattr(found[key], field) if key in found else None
                values.flat[place] = np.nan if amount is None else amount.mean
                text = NOT_REACHED if np.isnan(values.flat[place]) else form.format(values.flat[place])
                axis.text(place % len(optimizers), place // len(optimizers), text, ha="center", va="center")
            known = better * values[~np.isnan(values)]
            low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
            # the darkest is half-way, so that black numbers can be read on it
            axis.imshow(better * values, cmap="Greens", aspect="auto", vmin=low, vmax=high + max(high - low, 1e-6))
            axis.set_xticks(range(len(optimizers)), list(map(texts.label, optimizers)), fontsize="small")
            axis.set_yticks(range(len(algos)), list(map(texts.label, algos)))
            axis.set_title(texts.label(f"{setting}: {about}"), fontsize="small")
    _save(figure, path)


def _to_target_label(row: Row, label: str) -> str:
    return f"{label} to {row.target_in_words}" if row.target_in_words else label


def _amounts(
    panels: list[Panel],
    styles: dict[str, Style],
    amounts: dict[str, str],
    label_of: Callable[[Row, str], str],
    path: Path,
    logarithmic: bool = False,
) -> None:
    """Draw a row of panels a setting, a panel an amount, a bar a strategy; whiskers are one standard deviation.

    On a logarithmic axis there is no zero for a bar to begin at, and a strategy is a dot.
    """
    height = 1.3 + 0.27 * max(len(panel.rows) for panel in panels)
    figure = _figure(4.6 * len(amounts), height * len(panels))
    for part, panel in zip(np.atleast_1d(figure.subfigures(len(panels), 1)), panels):
        part.suptitle(_headline(panel, 4.6 * len(amounts)), fontsize="small")
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
                axis.set_xlim(left=0.0)  # though a whisker may reach below
    _save(figure, path)


def _amount(axis: Any, place: int, value: Spread | float | None, color: str, bar: bool) -> None:
    """Draw one bar or dot with its number, or N/A; plain seconds are shown as milliseconds."""
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
        axis.barh(place, mean, color=color, xerr=deviation or None, error_kw={"linewidth": 0.8})
    else:
        axis.plot([mean], [place], color=color, marker="o", linestyle="none")
    axis.annotate(
        f"{mean:.3g}" if mean < 100 else f"{mean:,.0f}",
        (mean + deviation, place), xytext=(4 if bar else 7, 0), textcoords="offset points",
        va="center", fontsize="small",
    )  # fmt: skip


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the picture to {path} ({error}); give another --out") from error
