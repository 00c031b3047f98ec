"""Figures of a comparison: one panel for each setting and optimizer, with a common legend."""

import io
import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel.core import texts, whole_files
from fedjax_sel.errors import UserError
from fedjax_sel.reporting import plots
from fedjax_sel.reporting.comparison import Row
from fedjax_sel.reporting.styles import Style
from fedjax_sel.runs.records import Result

PANELS_A_ROW = 3


class Panel(NamedTuple):
    """The runs under one setting and optimizer, which share a panel."""

    conditions: str
    rows: list[Row]
    results: list[Result]


def figure(width: float, height: float) -> Any:
    """Return a figure of this size in inches."""
    from matplotlib.figure import Figure  # not pyplot, which would change the caller's backend

    return Figure(figsize=(width, height), layout="constrained")


def headline(panel: Panel, width: float) -> str:
    """Return the setting and the data source, wrapped to a width in inches."""
    first = panel.results[0]
    return "\n".join(
        map(
            texts.label,
            [panel.conditions, *textwrap.wrap(plots.title(first.config, first.data_source), round(10.5 * width))],
        )
    )


def lines(panels: list[Panel], styles: dict[str, Style], painter: Callable, path: Path) -> None:
    """Draw and save a figure of curves.

    Args:
        panels: the panels.
        styles: styles of all strategies, by name.
        painter: function (axis, panel, styles) -> None that draws one panel.
        path: the PNG file.

    Raises:
        UserError: the file cannot be written.
    """
    # With several optimizers, each setting gets its own row.
    optimizers = {panel.rows[0].optimizer for panel in panels}
    columns = len(optimizers) if len(optimizers) > 1 else min(len(panels), PANELS_A_ROW)
    rows = -(-len(panels) // columns)
    legend_width = 0.8 + 0.085 * max(map(len, styles))
    picture = figure(4.8 * columns + legend_width, 4.2 * rows)
    axes = picture.subplots(rows, columns, squeeze=False)
    for axis, panel in itertools.zip_longest(axes.flat, panels):
        if panel is None:
            axis.remove()
            continue
        painter(axis, panel, styles)
        axis.set_title(headline(panel, 4.8), fontsize="small")
    handles = {}
    for axis in picture.axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    ordered = [name for name in map(texts.label, styles) if name in handles]
    picture.legend(
        [handles[name] for name in ordered], ordered, loc="outside right upper", frameon=False, handlelength=3.5
    )
    save(picture, path)


def save(picture: Any, path: Path) -> None:
    """Write a figure.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        drawn = io.BytesIO()  # in memory first, so that the file is written atomically
        picture.savefig(drawn, format=path.suffix.removeprefix("."), dpi=110)
        whole_files.write(path, drawn.getvalue())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the plot to {path} ({error}); give another --out") from error
