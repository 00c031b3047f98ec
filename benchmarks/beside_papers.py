"""A comparison's results next to the papers' numbers, with the significance of differences.

    python benchmarks/beside_papers.py               prints the tables of results/fmnist_eleven/README.md

Reads the committed comparison.csv, without any run. Differences of means over seeds have 95 % Welch intervals, computed
from means and standard deviations. A paired analysis would be sharper, but the file lacks the values per seed. N/A
marks a comparison in which some seed missed the target.
"""

import argparse
import csv
import math
from pathlib import Path

from scipy import stats

from studies.papers import published
from studies.papers.published import Cell, Numbers

FILE = Path(__file__).parents[1] / "results" / "fmnist_eleven" / "comparison.csv"
SETTINGS = {"fedcor/fmnist-1spc": "1SPC", "fedcor/fmnist-2spc": "2SPC", "fedcor/fmnist-dir": "Dir"}
ROUNDS, ACCURACY, DOWN = "rounds_to_target", "last_rounds_accuracy", "megabytes_down_to_target"

Runs = dict[str, dict[str, dict[str, str]]]  # setting -> strategy -> the row's cells


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=FILE, help="a comparison.csv of FedCor's three settings")
    print(page(read(parser.parse_args().file)))


def read(path: Path) -> Runs:
    """Return the rows of a comparison.csv by setting and strategy."""
    runs: Runs = {setting: {} for setting in SETTINGS}
    with path.open() as file:
        for row in csv.DictReader(file):
            runs[row["setting"]][row["algo"]] = row
    return runs


def page(runs: Runs) -> str:
    """Return all tables as Markdown."""
    return "\n\n".join(
        [
            beside("rounds to the target: here / FedCor's Table 1", runs, ROUNDS, 1, numbers("fedcor/table1", 0)),
            beside(
                "accuracy of the last 10 rounds: here / GPFL's Table II", runs, ACCURACY, 3, numbers("gpfl/table2", 2)
            ),
            less("accuracy of the last 10 rounds, less random's", runs, ACCURACY, 3, "random"),
            less("accuracy of the last 10 rounds, less FedCor's", runs, ACCURACY, 3, "fedcor"),
            less("rounds to the target, less FedCor's", runs, ROUNDS, 0, "fedcor"),
            less("MB down until the target, less FedCor's", runs, DOWN, 0, "fedcor"),
        ]
    )


def numbers(entry: str, place: int) -> Numbers:
    """Return one set of numbers of a published table, by index."""
    return published.get(entry).numbers[place]


def beside(about: str, runs: Runs, field: str, digits: int, paper: Numbers) -> str:
    """Return a table of our numbers and a paper's.

    Args:
        about: the heading of the first column.
        runs: the comparison, from `read`.
        field: a column of the comparison, without its suffix.
        digits: the number of decimals.
        paper: the paper's numbers; `paper.spread` defines the meaning of ±.
    """
    rows = {}
    for algo in paper.rows:
        cells = [_mean_and_deviation(runs[setting][algo], field, digits) for setting in SETTINGS]
        theirs = [_published(paper.cell(algo, setting.removeprefix("fedcor/")), digits) for setting in SETTINGS]
        rows[algo] = [f"{ours} / {other}" for ours, other in zip(cells, theirs)]
    return _table(about, rows)


def _published(cell: Cell | None, digits: int) -> str:
    return "N/A" if cell is None else f"{cell.value:.{digits}f} ± {cell.spread:.{min(digits, 2)}f}"


def less(about: str, runs: Runs, field: str, digits: int, reference: str) -> str:
    """Return a table of differences to one strategy, ± half a 95 % interval; bold if the interval excludes zero.

    Args:
        about: the heading of the first column.
        runs: the comparison, from `read`.
        field: a column of the comparison, without its suffix.
        digits: the number of decimals.
        reference: the reference strategy.
    """
    rows = {}
    for algo in next(iter(runs.values())):
        if algo != reference:
            pairs = [(runs[setting][algo], runs[setting][reference]) for setting in SETTINGS]
            rows[algo] = [_difference(ours, other, field, digits) for ours, other in pairs]
    return _table(about, rows)


def interval(ours: tuple[float, float], other: tuple[float, float], seeds: int) -> tuple[float, float]:
    """Return a difference of two means and half its 95 % interval (Welch).

    Args:
        ours: mean and sample standard deviation.
        other: mean and sample standard deviation of the reference.
        seeds: the number of seeds of each.
    """
    variances = [deviation**2 / seeds for _, deviation in (ours, other)]
    total = sum(variances)
    if total == 0:
        return ours[0] - other[0], 0.0
    freedom = total**2 / sum(variance**2 / (seeds - 1) for variance in variances)
    return ours[0] - other[0], float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)


def _difference(ours: dict[str, str], other: dict[str, str], field: str, digits: int) -> str:
    numbers = [(row[f"{field}_mean"], row[f"{field}_sd"]) for row in (ours, other)]
    if any("N/A" in pair for pair in numbers):
        return "N/A"
    means = [(float(mean), float(deviation)) for mean, deviation in numbers]
    difference, half = interval(means[0], means[1], int(ours["seeds"]))
    text = f"{difference:+.{digits}f} ± {half:.{digits}f}"
    return f"**{text}**" if abs(difference) > half else text


def _mean_and_deviation(row: dict[str, str], field: str, digits: int) -> str:
    if row[f"{field}_mean"] == "N/A":
        return f"N/A ({row[f'{field}_seeds_reached']} of {row['seeds']})"
    return f"{float(row[f'{field}_mean']):.{digits}f} ± {float(row[f'{field}_sd']):.{digits}f}"


def _table(about: str, rows: dict[str, list[str]]) -> str:
    lines = [f"| {about} | " + " | ".join(SETTINGS.values()) + " |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {algo} | " + " | ".join(cells) + " |" for algo, cells in rows.items())])


if __name__ == "__main__":
    main()
