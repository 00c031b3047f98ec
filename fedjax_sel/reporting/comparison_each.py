"""A plot with one panel per strategy, for comparisons of many strategies; one block per setting."""

from collections.abc import Sequence
from typing import Any

from fedjax_sel.reporting import comparison_curves as curves
from fedjax_sel.reporting import multiples
from fedjax_sel.reporting.comparison_pairs import BASELINE
from fedjax_sel.reporting.comparison_panels import Panel, figure, headline
from fedjax_sel.reporting.styles import Style

TITLE = 0.4  # height of a setting's heading, inches


def draw(panels: Sequence[Panel], styles: dict[str, Style], bytes_moved: str | None, logarithmic: bool) -> Any:
    """Return a figure with one panel per strategy; None if no setting has too many strategies for one panel."""
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
            curves.logarithmic_start(panel.results, bytes_moved) if logarithmic else None,
        )
    return picture
