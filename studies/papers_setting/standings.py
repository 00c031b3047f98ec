"""Table of a setting: means of each row over seeds, and the significance of paired differences."""

import csv
import io
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from fedjax_sel.statistics import Comparison
from studies.boards import measures
from studies.boards.grid import BASELINE, contender
from studies.boards.measures import Common
from studies.boards.series import Series, plain
from studies.papers_setting.settings import UPPER_REFERENCE


class Measure(NamedTuple):
    """A column of the table."""

    name: str
    heading: str
    digits: int


MEASURES = (
    Measure("last_rounds_accuracy", "accuracy, last 10 rounds", 3),
    Measure("accuracy_at_100_percent_of_megabytes", "at equal MB", 3),
    Measure("rounds_at_equal_megabytes", "rounds these pay for", 0),
    Measure("accuracy_at_50_percent_of_megabytes", "at half of them", 3),
    Measure("accuracy_at_25_percent_of_megabytes", "at a quarter", 3),
    Measure("accuracy_at_equal_megabytes_up", "at equal MB up", 3),
    Measure("area_by_rounds", "area by rounds", 3),
    Measure("area_by_megabytes", "area by MB", 3),
    Measure("worst_decile_accuracy", "worst tenth of clients", 3),
    Measure("rounds_to_target", "rounds to target", 1),
    Measure("megabytes_down_to_target", "MB down to target", 0),
    Measure("megabytes_up_to_target", "MB up to target", 0),
    Measure("accuracy_at_equal_seconds", "at equal seconds", 3),
    Measure("seconds_to_target", "seconds to target", 0),
    Measure("seconds", "simulated seconds", 0),
    Measure("gini_of_selections", "Gini of selections", 3),
    Measure("jain_of_selections", "Jain of selections", 3),
    Measure("participation_gap", "participation gap", 3),
    Measure("gini_of_clients", "Gini of client accuracy", 3),
    Measure("jain_of_clients", "Jain of client accuracy", 3),
)
TESTED = {
    "last_rounds_accuracy": ("accuracy of the last 10 rounds", True),
    "accuracy_at_100_percent_of_megabytes": ("accuracy at equal megabytes", True),
    "rounds_to_target": ("rounds to the target, restricted", False),
}
"""Metrics with a verdict: name -> description, and whether higher is better."""
TESTED_IN_SECONDS = {
    "accuracy_at_equal_seconds": ("accuracy at equal seconds", True),
    "seconds_to_target": ("seconds to the target, restricted", False),
}
"""More such metrics, of settings with a clock."""


class Row(NamedTuple):
    """A row of the table."""

    name: str
    numbers: dict[str, np.ndarray]  # metrics by name, [seeds]
    seeds: int
    megabytes_down: float  # total of a run, mean over seeds
    megabytes_up: float
    selection_seconds: float  # per round of one replicate; NaN: not timed


class Pair(NamedTuple):
    """Comparison of a row with its baseline."""

    measure: str
    row: str
    baseline: str
    found: Comparison


class Standings(NamedTuple):
    """Content of a setting's page."""

    shared: Common
    rows: list[Row]
    pairs: list[Pair]
    leaders: dict[tuple[str, str], Comparison]  # pairs of rows that are better than their baselines, but `full`

    def verdict(self, measure: str, row: str) -> str:
        """Return the verdict on a row in a metric; empty if the row has no baseline."""
        found = [pair.found.verdict for pair in self.pairs if (pair.measure, pair.row) == (measure, row)]
        return found[0] if found else ""


def of_setting(
    rows: Mapping[str, Series],
    num_classes: int,
    selection: Mapping[str, float],
    fairness: Mapping[str, Mapping[str, Sequence[float]]] = MappingProxyType({}),
) -> Standings:
    """Return a setting's standings.

    A family of tests is one metric; the pairs of leaders form another family.

    Args:
        rows: series by row name.
        num_classes: number of classes.
        selection: selection time per round, seconds, for the rows whose selection was timed.
        fairness: fairness measures by name, one value per seed, for the rows that have them.
    """
    shared = measures.common(rows, num_classes)
    table = [
        Row(
            name,
            measures.of_row(series, shared) | _fairness(name, series, fairness),
            len(series.seeds),
            float(series.bytes_down.sum(axis=1).mean() / 1e6),
            float(series.bytes_up.sum(axis=1).mean() / 1e6),
            selection.get(name, np.nan),
        )
        for name, series in rows.items()
    ]
    pairs = [pair for name, (_, higher) in _tested(shared).items() for pair in _pairs(table, rows, name, higher)]
    better = {pair.row for pair in pairs if pair.measure == main(shared) and pair.found.verdict == statistics.BETTER}
    values = {row.name: row.numbers[main(shared)] for row in table if row.name in better - {UPPER_REFERENCE}}
    return Standings(shared, table, pairs, statistics.head_to_head(values))


def main(shared: Common) -> str:
    """Return the metric that decides which rows lead."""
    return "last_rounds_accuracy" if shared.seconds is None else "accuracy_at_equal_seconds"


def _fairness(row: str, series: Series, fairness: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, np.ndarray]:
    """Return the fairness measures of a row, [seeds]; NaN without a measurement."""
    known = [name for name in measures.FAIRNESS if any(name in one for one in fairness.values())]
    unknown = [np.nan] * len(series.seeds)
    return {name: np.array(fairness.get(row, {}).get(name, unknown)) for name in known}


def has_fairness(standings: Standings) -> bool:
    """Return whether a row has fairness measures."""
    return measures.FAIRNESS[0] in standings.rows[0].numbers


def _tested(shared: Common) -> dict[str, tuple[str, bool]]:
    return TESTED if shared.seconds is None else TESTED | TESTED_IN_SECONDS


def _pairs(table: Sequence[Row], rows: Mapping[str, Series], measure: str, higher_is_better: bool) -> list[Pair]:
    """Compare each row with its baseline; all comparisons form one family."""
    numbers = {row.name: row.numbers[measure] for row in table if measure in row.numbers}
    against = {row: contender(row).baseline.name for row in numbers}
    names = [
        row for row, base in against.items() if row != base and base in rows and rows[row].seeds == rows[base].seeds
    ]
    differences = [numbers[name] - numbers[against[name]] for name in names]
    found = statistics.compare(differences, higher_is_better) if names else []
    return [Pair(measure, name, against[name], one) for name, one in zip(names, found)]


def as_csv(standings: Standings) -> str:
    """Return the table as CSV: one line per row, with mean, deviation and verdict per metric."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [measure.name for measure in MEASURES if measure.name in standings.rows[0].numbers]
    tested = _tested(standings.shared)
    writer.writerow(
        ["row", "algo", "optimizer", "seeds", "rounds", "target", "equal_megabytes", "share_arrived", "at_least",
         "megabytes_down", "megabytes_up", "times_random", "selection_milliseconds",
         *(f"{name}_{what}" for name in names for what in ("mean", "sd")), *(f"{name}_verdict" for name in tested)]
    )  # fmt: skip
    shared = standings.shared
    totals = {row.name: row.megabytes_down + row.megabytes_up for row in standings.rows}
    for row in standings.rows:
        who = contender(row.name)
        arrived = row.numbers["arrived"].mean() if shared.target is not None else np.nan
        start = [row.name, who.algo, who.optimizer, row.seeds, shared.rounds, shared.target, shared.megabytes, arrived,
                 _at_least(row), row.megabytes_down, row.megabytes_up, totals[row.name] / totals.get(BASELINE, np.nan),
                 1000 * row.selection_seconds]  # fmt: skip
        spreads = [value for name in names for value in mean_and_sd(row.numbers[name])]
        verdicts = [standings.verdict(name, row.name) for name in tested]
        writer.writerow([plain(value) for value in (*start, *spreads, *verdicts)])
    return text.getvalue()


def seeds_as_csv(rows: Mapping[str, Series], standings: Standings) -> str:
    """Return all metrics of each seed as CSV: one line per row and seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(standings.rows[0].numbers)
    writer.writerow(["row", "seed", *names])
    for row in standings.rows:
        for place, seed in enumerate(rows[row.name].seeds):
            writer.writerow([row.name, seed, *(plain(row.numbers[name][place]) for name in names)])
    return text.getvalue()


def pairs_as_csv(standings: Standings) -> str:
    """Return the comparisons as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["measure", "row", "baseline", *Comparison._fields])
    leaders = f"{main(standings.shared)}_of_leaders"
    pairs = [*standings.pairs, *(Pair(leaders, *names, found) for names, found in standings.leaders.items())]
    for pair in pairs:
        writer.writerow([pair.measure, pair.row, pair.baseline, *map(plain, pair.found)])
    return text.getvalue()


_TABLES = (
    ("last_rounds_accuracy", "accuracy_at_100_percent_of_megabytes", "rounds_at_equal_megabytes",
     "accuracy_at_50_percent_of_megabytes", "accuracy_at_25_percent_of_megabytes", "accuracy_at_equal_megabytes_up"),
    ("arrived", "rounds_to_target", "megabytes_down_to_target", "megabytes_up_to_target", "seconds_to_target"),
    ("area_by_rounds", "area_by_megabytes", "worst_decile_accuracy", "accuracy_at_equal_seconds", "seconds"),
    ("megabytes_down", "megabytes_up", "selection"),
    measures.FAIRNESS,
)  # fmt: skip
"""Columns of the tables in Markdown: accuracy, targets, further measures, costs, fairness."""
_OTHERS = {
    "arrived": "seeds that arrive",
    "megabytes_down": "MB down",
    "megabytes_up": "MB up",
    "selection": "ms of selection",
}


def as_markdown(standings: Standings) -> str:
    """Return the standings as Markdown: tables of at most seven columns."""
    measured = {measure.name: measure for measure in MEASURES if measure.name in standings.rows[0].numbers}
    tables = []
    for names in _TABLES:
        here = [name for name in names if name in measured or name in _OTHERS]
        if not here or (standings.shared.target is None and "arrived" in here):
            continue
        heads = [measured[name].heading if name in measured else _OTHERS[name] for name in here]
        lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
        for row in standings.rows:
            cells = [_cell(row, name, measured.get(name)) for name in here]
            if any(cells):
                lines.append(f"| {cell(row.name)} | " + " | ".join(cells) + " |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _cell(row: Row, name: str, measure: Measure | None) -> str:
    if measure is not None:
        in_time = "arrived_in_seconds" if name == "seconds_to_target" else "arrived"
        bound = _at_least(row, in_time) if name.endswith("_to_target") else ""
        return f"{bound} {_shown(*mean_and_sd(row.numbers[name]), measure.digits)}".lstrip()
    if name == "arrived":
        return f"{row.numbers['arrived'].mean():.0%}".replace("%", " %")
    if name == "selection":
        return "" if np.isnan(row.selection_seconds) else f"{1000 * row.selection_seconds:.2g}"
    return f"{row.megabytes_down if name == 'megabytes_down' else row.megabytes_up:.0f}"


def _at_least(row: Row, arrived: str = "arrived") -> str:
    """Return "≥" if a seed does not reach the target, so that the row's means to the target are lower bounds."""
    return "≥" if row.numbers.get(arrived, np.ones(1)).min() < 1 else ""


def pairs_as_markdown(standings: Standings) -> str:
    """Return the comparisons as Markdown: one line per row, one column per metric."""
    tested = _tested(standings.shared)
    names = [name for name in tested if any(pair.measure == name for pair in standings.pairs)]
    if not names:
        return ""
    found = {(pair.measure, pair.row): pair for pair in standings.pairs}
    compared = {pair.row: pair.baseline for pair in standings.pairs}
    lines = ["| | " + " | ".join(tested[name][0] for name in names) + " |", "|---|" + "---|" * len(names)]
    for row, baseline in compared.items():
        cells = [difference(found[name, row].found, 1 if name.endswith("_to_target") else 3) for name in names]
        lines.append(f"| {cell(row)} minus {cell(baseline)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


LEADERS = """\
Rows that are better than their baselines in the {words},
compared with each other: at most the four with the best means, without `full`. These pairs are one family."""


def leaders_as_markdown(leaders: Mapping[tuple[str, str], Comparison]) -> str:
    """Return the comparisons of leaders as a Markdown table."""
    lines = ["| leaders | difference | 95 % interval | joint p | leads in seeds | verdict |", "|---" * 6 + "|"]
    for (first, second), one in leaders.items():
        interval, leads = f"{one.low:+.3f} to {one.high:+.3f}", f"{one.leads} of {one.seeds}"
        cells = [f"{one.difference:+.3f}", interval, f"{one.p_family:.2g}", leads, one.verdict]
        lines.append(f"| {cell(first)} minus {cell(second)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def difference(found: Comparison, digits: int) -> str:
    """Return a paired difference with interval, joint p-value, verdict and seeds that lead; bold if significant.

    Args:
        found: the comparison.
        digits: number of decimals.
    """
    ends = "" if np.isnan(found.low) else f" ({found.low:+.{digits}f} to {found.high:+.{digits}f})"
    if found.verdict == statistics.TOO_FEW_SEEDS:  # p has no meaning then
        return f"{found.difference:+.{digits}f}{ends}: {found.verdict}"
    words = f"{found.difference:+.{digits}f}{ends}, p = {found.p_family:.2g}: {found.verdict}"
    words += f", leads in {found.leads} of {found.seeds}"
    return f"**{words}**" if found.is_significant else words


def mean_and_sd(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the sample standard deviation over seeds; the latter is NaN with one seed."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def _shown(mean: float, deviation: float, digits: int) -> str:
    if np.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" + ("" if np.isnan(deviation) else f" ± {deviation:.{digits}f}")
