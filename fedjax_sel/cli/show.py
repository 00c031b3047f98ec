"""The result tables printed by the commands."""

from collections.abc import Mapping

import numpy as np
from rich.console import Console
from rich.table import Table

from fedjax_sel.core import texts
from fedjax_sel.reporting import plots
from fedjax_sel.runs.records import Result


def _console() -> Console:
    # Print names literally: no emoji for ":ok:", no style for brackets.
    return Console(highlight=False, emoji=False, markup=False, width=None if Console().is_terminal else 120)


def result(outcome: Result) -> None:
    """Print a run's result table: mean and standard deviation over seeds."""
    table = Table(
        "", "mean", "sd", title=f"{outcome.config.selection.algo}: {plots.title(outcome.config, outcome.data_source)}"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in outcome.summary():
        table.add_row(name, *_mean_and_deviation(name, values))
    _console().print(table)


def markdown(results: Mapping[str, Result]) -> str:
    """Return a Markdown table of several runs: mean and standard deviation over seeds, N/A if any seed is NaN."""
    tables = {name: dict(result.summary()) for name, result in results.items()}
    rows = list(dict.fromkeys(row for table in tables.values() for row in table))
    lines = ["| | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    for name, table in tables.items():
        cells = [" ± ".join(_mean_and_deviation(row, table[row])) if row in table else "" for row in rows]
        lines.append(f"| {texts.cell(name)} | " + " | ".join(cell.removesuffix(" ± ") for cell in cells) + " |")
    return "\n".join(lines)


def _mean_and_deviation(name: str, values: np.ndarray) -> tuple[str, str]:
    """Format the mean and the sample standard deviation; the latter is empty for a single seed."""
    failed = int(np.isnan(values).sum())
    if failed:
        return f"N/A ({len(values) - failed} of {len(values)} seeds)", ""
    digits = 1 if "megabytes" in name or "rounds" in name else 4
    return f"{values.mean():.{digits}f}", f"{values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
