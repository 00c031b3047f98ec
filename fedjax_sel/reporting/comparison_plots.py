"""Plots of a comparison, with one panel for each setting and optimizer.

accuracy_by_round.png, accuracy_by_megabytes_down.png, accuracy_by_megabytes_up.png
to_target.png              rounds and megabytes to the target accuracy; N/A if a seed never reaches it
selection_counts.png       number of training rounds per client, in descending order
clients_seen.png           clients that have trained at least once
gemd.png                   GEMD of the cohorts
selection_seconds.png      time of selection per round
*_each.png                 one panel per strategy, for more than six strategies: the measure by rounds and by megabytes
optimizers.png             final accuracy and rounds to the target, for several optimizers: strategies by optimizers

Lines are means over seeds; bands are plus and minus one sample standard deviation.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedjax_sel.reporting import comparison_amounts as amounts_of
from fedjax_sel.reporting import comparison_curves as curves
from fedjax_sel.reporting import comparison_each
from fedjax_sel.reporting import comparison_panels as panels_of
from fedjax_sel.reporting.comparison import Row
from fedjax_sel.reporting.comparison_panels import Panel
from fedjax_sel.reporting.styles import styles_of
from fedjax_sel.runs.records import Result

__all__ = ["draw", "styles_of"]


def draw(rows: Sequence[Row], results: Sequence[Result], folder: Path) -> None:
    """Draw the plots of a comparison.

    Args:
        rows: rows of the finished runs.
        results: results in the order of the rows.
        folder: the output folder.

    Raises:
        UserError: a file cannot be written.
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
    for name, moved in {"round": None, "megabytes_down": "bytes_down", "megabytes_up": "bytes_up"}.items():
        path = folder / f"{measure}_by_{name}.png"
        logarithmic = moved is not None and curves.costs_differ_much(results, moved)
        panels_of.lines(panels, styles, curves.measure(moved, logarithmic), path)
        _draw_each(comparison_each.draw(panels, styles, moved, logarithmic), path.with_stem(f"{path.stem}_each"))
    for name, painter in {
        "selection_counts": curves.selection_counts,
        "clients_seen": curves.clients_seen,
        "gemd": curves.gemd,
    }.items():
        panels_of.lines(panels, styles, painter, folder / f"{name}.png")
    amounts = {"rounds": "rounds_to_target", "megabytes down": "megabytes_down_to_target"}
    amounts |= {"megabytes up": "megabytes_up_to_target"}
    if any(row.target_accuracy is not None for row in rows):
        amounts_of.amounts_of(panels, styles, amounts, _to_target_label, folder / "to_target.png")
    else:
        (folder / "to_target.png").unlink(missing_ok=True)  # from an earlier call with a target
    if any(row.optimizer for row in rows):
        amounts_of.optimizers_by_strategies(rows, folder / "optimizers.png")
    else:
        (folder / "optimizers.png").unlink(missing_ok=True)  # from an earlier call with several optimizers
    seconds = {"milliseconds of selection per round": "selection_seconds_per_round"}
    amounts_of.amounts_of(
        panels, styles, seconds, lambda row, label: label, folder / "selection_seconds.png", logarithmic=True
    )


def _draw_each(picture: Any, path: Path) -> None:
    if picture is None:
        path.unlink(missing_ok=True)  # from an earlier call with more strategies
    else:
        panels_of.save(picture, path)


def _to_target_label(row: Row, label: str) -> str:
    return f"{label} to {row.target_in_words}" if row.target_in_words else label
