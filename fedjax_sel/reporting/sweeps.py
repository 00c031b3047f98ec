"""Sweeps: strategies over a grid of settings, each strategy's best values."""

import itertools
from collections.abc import Mapping, Sequence

from fedjax_sel.reporting import comparison
from fedjax_sel.reporting.comparison import Row

Grid = Mapping[str, Mapping[str, str]]
"""Name of a setting -> its values by field, as on a command line."""


def make_grid(values: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return every combination of the fields' values, by the name of the setting."""
    found = {}
    for chosen in itertools.product(*values.values()):
        point = dict(zip(values, chosen))
        found[",".join(f"{field}={value}" for field, value in point.items())] = point
    return found


def best(rows: Sequence[Row], grid: Grid) -> dict[str, Row]:
    """Return each strategy's row with the best mean over the last rounds, by strategy."""
    found: dict[str, Row] = {}
    for row in rows:
        sign = 1 if row.higher_is_better else -1
        other = found.get(row.algo)
        if row.setting in grid and (other is None or sign * (row.last_rounds.mean - other.last_rounds.mean) > 0):
            found[row.algo] = row
    return found


def edges(row: Row, grid: Grid) -> list[str]:
    """Return the fields whose best value is the smallest or the largest tried, in words."""
    found = []
    for field, value in grid[row.setting].items():
        tried = list(dict.fromkeys(point[field] for point in grid.values()))
        try:
            numbers = sorted(map(float, tried))
        except ValueError:  # names have no order
            continue
        if len(numbers) > 1 and float(value) in (numbers[0], numbers[-1]):
            end = "smallest" if float(value) == numbers[0] else "largest"
            found.append(f"{field} {value} is the {end} value tried")
    return found


def summary(rows: Sequence[Row], grid: Grid) -> list[str]:
    """Return a line per strategy: its best setting, the measure there, and a warning at an edge of the grid."""
    lines = []
    for algo, row in best(rows, grid).items():
        line = f"{algo}: best with {row.setting} ({row.measure} {row.last_rounds.mean:.4f})"
        lines.append(line + "".join(f"; {edge}: try values beyond it" for edge in edges(row, grid)))
    return lines


def as_markdown(rows: Sequence[Row], grid: Grid) -> str:
    """Return Markdown tables of strategies by settings, and each strategy's best one."""
    # The table of strategies by optimizers, with the setting as the optimizer.
    by_setting = [row._replace(setting="sweep", optimizer=row.setting) for row in rows]
    lines = [f"## Sweep\n\n{comparison.by_optimizer(by_setting)}\n"]
    lines += [f"* {line}" for line in summary(rows, grid)]
    return "\n".join([*lines, "", NOTE])


NOTE = """A best value is chosen on these seeds and this test set, which favors it. For a claim, run the chosen settings
again with other seeds."""
