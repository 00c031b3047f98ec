"""The picture of a comparison of many strategies in which each has a panel of its own; a block a setting."""

from collections.abc import Sequence
from typing import Any

from fedjax_sel.reporting import comparison_curves as curves
from fedjax_sel.reporting import multiples
from fedjax_sel.reporting.comparison_pairs import BASELINE
from fedjax_sel.reporting.comparison_panels import Panel, figure, headline
from fedjax_sel.reporting.styles import Style

TITLE = 0.4  # inches of a setting's heading


def draw(panels: Sequence[Panel], styles: dict[str, Style], bytes_moved: str | None, logarithmic: bool) -> Any:
    """Return a picture in which every strategy has a panel of its own; None where one panel shows all."""
    many = [panel for panel in panels if multiples.wanted(panel.rows)]
    if not many:
        return None
    sizes = [multiples.size(len(panel.rows)) for panel in many]
    picture = figure(max(width for width, _ in sizes), sum(height + TITLE for _, height in sizes))
    places = picture.subfigures(len(many), 1, squeeze=False, height_ratios=[height + TITLE for _, height in sizes])
    for place, panel in zip(places.flat, many):
        found = {row.algo: curves.curve_of(result, bytes_moved) for row, result in zip(panel.rows, panel.results)}
        multiples.draw(
            place,
            {name: curve for name, curve in found.items() if curve is not None},
            styles,
            BASELINE,
            curves.labels_of(panel, bytes_moved),
            headline(panel, multiples.PANEL[0] * multiples.COLUMNS),
            curves.largest_of(panel),
            curves.logarithm_begins(panel.results, bytes_moved) if logarithmic else None,
        )
    return picture
