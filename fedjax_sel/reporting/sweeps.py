"""Sweeps: strategies over a grid of settings, each strategy's best values, and a heat map."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.config import NOT_OF_THE_TRAJECTORY, Config, flat_types, only_with
from fedjax_sel.core import parsing
from fedjax_sel.errors import UserError
from fedjax_sel.reporting import comparison, plots
from fedjax_sel.reporting.comparison import Row

# All settings of a comparison have the same.
NOT_SWEPT = {"algo", "algo_args", "seeds"} | NOT_OF_THE_TRAJECTORY - {"max_seconds", "rounds"}

Grid = Mapping[str, Mapping[str, Any]]
"""Name of a setting -> its values by field."""


def make_grid(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every combination of the fields' values, one or a sequence each, by the name of the setting.

    Raises:
        UserError: a field is unknown, or all settings have the same.
    """
    values = {field: parsing.as_list(tried) for field, tried in values.items()}
    for field in values:
        parsing.one_of("sweep", field.replace("-", "_"), set(flat_types()) - NOT_SWEPT)
    found = {}
    for chosen in itertools.product(*values.values()):
        point = dict(zip(values, chosen))
        found[",".join(f"{field}={value}" for field, value in point.items())] = point
    return found


def reject_ineffective(grid: Grid, configs: Iterable[Config]) -> None:
    """Reject fields that have no effect in any of the configurations."""
    configs = list(configs)
    for field in next(iter(grid.values()), ()):
        needed = only_with(field.replace("-", "_"))
        if needed is not None and not any(map(needed.holds, configs)):
            raise UserError(f"sweep: {field} has no effect without {needed.words}; add that, or leave {field} out")


def best(rows: Sequence[Row], grid: Grid) -> dict[str, Row]:
    """Return each strategy's row with the best mean over the last rounds, by strategy; none if all diverged."""
    found: dict[str, Row] = {}
    for row in rows:
        sign = 1 if row.higher_is_better else -1
        other = found.get(row.algo)
        if row.setting not in grid or not np.isfinite(row.last_rounds.mean):  # a seed diverged
            continue
        if other is None or sign * (row.last_rounds.mean - other.last_rounds.mean) > 0:
            found[row.algo] = row
    return found


def edges(row: Row, grid: Grid) -> list[str]:
    """Return the fields whose best value is the smallest or the largest tried, in words."""
    found = []
    for field, value in grid[row.setting].items():
        tried = {str(point[field]) for point in grid.values()}
        try:
            numbers, number = sorted(map(float, tried)), float(str(value))
        except ValueError:  # names have no order
            continue
        if len(numbers) > 1 and number in (numbers[0], numbers[-1]):
            end = "smallest" if number == numbers[0] else "largest"
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


def draw(rows: Sequence[Row], folder: Path, look: plots.Look) -> None:
    """Draw the heat map of strategies by settings; darker is better, gray is missing."""
    algos, settings = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("algo", "setting"))
    values = np.full((len(algos), len(settings)), np.nan)
    labels = [parsing.label(setting).replace(",", "\n") for setting in settings]
    width = max(1.2, 0.09 * max(len(line) for label in labels for line in label.splitlines()))
    picture = plots.figure(1.6 + width * len(settings), 1.3 + 0.5 * len(algos))
    axis = picture.subplots()
    for row in rows:
        at = algos.index(row.algo), settings.index(row.setting)
        values[at] = row.last_rounds.mean
        axis.text(at[1], at[0], f"{values[at]:.3f}", ha="center", va="center")
    axis.imshow(values if rows[0].higher_is_better else -values, cmap="Greens", aspect="auto", alpha=0.6)
    axis.set_facecolor("lightgray")
    axis.set_xticks(range(len(settings)), labels, fontsize="small")
    axis.set_yticks(range(len(algos)), list(map(parsing.label, algos)))
    axis.set_title(f"mean test {rows[0].measure} of the last rounds", fontsize="small")
    plots.save(picture, folder / f"sweep{look.suffix}", look)
