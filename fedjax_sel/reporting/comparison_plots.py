"""Pictures of a comparison: many strategies in one panel, one panel for each setting and optimizer.

accuracy_by_round.png, accuracy_by_megabytes_down.png, accuracy_by_megabytes_up.png
to_target.png              rounds and megabytes to the target accuracy, N/A where a seed fails
selection_counts.png       rounds in which each client trained, the busiest client first
clients_seen.png           clients that have trained at least once
gemd.png                   GEMD of the cohorts
selection_seconds.png      seconds of selection a round
optimizers.png             strategies by optimizers: accuracy at the end, rounds to the target; where there are several

A line is the mean over seeds, and its band one sample standard deviation to either side.
"""

from collections.abc import Sequence
from pathlib import Path

from fedjax_sel.reporting import comparison_amounts as amounts_of
from fedjax_sel.reporting import comparison_curves as curves
from fedjax_sel.reporting import comparison_panels as panels_of
from fedjax_sel.reporting.comparison import Row
from fedjax_sel.reporting.comparison_panels import Panel
from fedjax_sel.reporting.styles import styles_of
from fedjax_sel.runs.records import Result

__all__ = ["draw", "styles_of"]


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
        f"{measure}_by_round": curves.measure(None),
        f"{measure}_by_megabytes_down": curves.measure("bytes_down", curves.costs_differ_much(results, "bytes_down")),
        f"{measure}_by_megabytes_up": curves.measure("bytes_up", curves.costs_differ_much(results, "bytes_up")),
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
        (folder / "to_target.png").unlink(missing_ok=True)  # of an earlier call with a target
    if any(row.optimizer for row in rows):
        amounts_of.optimizers_by_strategies(rows, folder / "optimizers.png")
    seconds = {"milliseconds of selection a round": "selection_seconds_per_round"}
    amounts_of.amounts_of(
        panels, styles, seconds, lambda row, label: label, folder / "selection_seconds.png", logarithmic=True
    )


def _to_target_label(row: Row, label: str) -> str:
    return f"{label} to {row.target_in_words}" if row.target_in_words else label
