"""GPFL Fig. 6: the time of 200 rounds."""

from collections.abc import Iterator

import numpy as np

from fedjax_sel import Result
from studies.papers import verdicts
from studies.papers.entries.fedcor import about
from studies.papers.entries.gpfl import AS_THEY_RAN, COLUMNS, as_they_ran, who
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

ROUNDS = 200
TIMINGS = 5  # runs of each strategy in each setting, one seed each
ORDER = (("random", "gpfl"), ("gpfl", "pow_d"), ("pow_d", "fedcor"))
LEAST = 0.1
RULE = (
    "Only the order is judged: random selection before GPFL before power-of-choice before FedCor, in seconds of a run "
    f'of one seed without compilation. "Slightly" and "by far" are not judged. Each strategy runs {TIMINGS} times in '
    "each setting, and the median counts (before the last runs: one run). Reproduced if the order holds in all three "
    f"settings by more than {100 * LEAST:g} % of the longer time; contradicted if the opposite does; else "
    "inconclusive. Times on a busy machine are not comparable. Power-of-choice, as its authors ran it, selects by its "
    "candidates' training. The selected ones need not train again, but do here. So its time lies between the measured "
    "time and that minus the time of random selection's run. Its orders are judged only if both ends agree. (Added "
    'after a first page, where "before FedCor" was contradicted and "GPFL before it" reproduced.) Each round is a '
    "chunk, so all rounds but the first count. On the first page, the first ten did not count, in which FedCor "
    "measures most."
)
TWICE = "pow_d"  # selected candidates train twice


def _seconds(result: Result) -> float:
    return result.num_rounds * len(result.seeds) / result.seed_rounds_per_second


def _timings(row: str) -> Iterator[str]:
    """Return the rows of a strategy's timings; the first has the strategy's name."""
    return (row if timing == 0 else f"{row}, again {timing}" for timing in range(TIMINGS))


def _judge(results: Results, scale: Scale) -> Page:
    timed: dict[Cell, list[Result]] = {}
    for cell, result in results.items():
        timed.setdefault(Cell(cell.column, cell.row.split(",")[0]), []).append(result)
    measured = {cell: [_seconds(result) for result in several] for cell, several in timed.items()}
    seconds = {cell: float(np.median(values)) for cell, values in measured.items()}
    seeds = {cell: sum(len(result.seeds) for result in several) for cell, several in timed.items()}
    rows = [
        Row(cell.column, f"{cell.row}: seconds of {timed[cell][0].num_rounds} rounds", "",
            f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})", seeds[cell], "", "")
        for cell, values in measured.items()
    ]  # fmt: skip
    least = {
        cell: max(0.0, value - seconds.get(Cell(cell.column, "random"), np.inf)) if cell.row == TWICE else value
        for cell, value in seconds.items()
    }
    columns = list(dict.fromkeys(cell.column for cell in seconds))
    for first, later in ORDER:
        pairs = [(Cell(column, first), Cell(column, later)) for column in columns]
        there = [pair for pair in pairs if seconds.keys() >= set(pair)]
        both, low = (
            np.array([[of[cell] for cell in pair] for pair in there], np.float64).reshape(-1, 2)
            for of in (seconds, least)
        )
        if not len(both):
            continue
        verdict = verdicts.INCONCLUSIVE
        if len(both) < len(COLUMNS) or np.isnan(both).any() or not scale.whole_rounds:
            verdict = verdicts.NOT_COMPARABLE
        elif (both[:, 0] < (1 - LEAST) * low[:, 1]).all():
            verdict = verdicts.REPRODUCED
        elif (both[:, 1] < (1 - LEAST) * low[:, 0]).all():
            verdict = verdicts.CONTRADICTED
        means = both.mean(axis=0)
        words = f"{means[0]:.1f} against {means[1]:.1f} s"
        what = f"{first} takes less time than {later}"
        difference = f"{means[0] - means[1]:+.1f}"
        rows.append(Row("all settings", what, "yes (picture)", words, max(seeds.values()), difference, verdict))
    return Page(rows, [who(), *about(results)] if results else [])


_RUNS = {
    Cell(column, name): as_they_ran(column, changes).replace(seeds=(seed,), rounds=ROUNDS, chunk=1)
    for column in COLUMNS
    for row, changes in AS_THEY_RAN.items()
    for seed, name in enumerate(_timings(row))
}

ENTRIES = (Entry("gpfl/fig6", RULE, _RUNS, _judge, "about 15 minutes, with nothing else on the machine"),)
