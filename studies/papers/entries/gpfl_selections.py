"""GPFL Fig. 4 and 5: rounds until every client has been selected, and selection frequencies."""

from typing import Any

import numpy as np
from scipy import stats

from fedjax_sel import Result, metrics, statistics
from studies.papers import curves, published, tables, verdicts
from studies.papers.entries.fedcor import about
from studies.papers.entries.gpfl import AS_PUBLISHED, AS_THEY_RAN, COHERENT, SELECTIONS, as_published, as_they_ran, who
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

PRINTED = "gpfl, Eq. 8 as printed"
AS_PRINTED: dict[str, Any] = {"algo": "gpfl", "algo_args": {"preset": "gpfl-ref", "outcome": "printed"}}
ROUGHLY = 0.25  # relative tolerance of "about" and "nearly"
_ROWS_OF_GPFL = ("gpfl", COHERENT, PRINTED)  # all start with a sweep over the clients
_NEAR = f"within {100 * ROUGHLY:g} % of the number, differ if it lies outside, and are inconclusive otherwise"
COVERED = (
    '"Within 50" agrees if the 95 % interval of the mean round in which the last client is first selected lies below '
    f'50. "Nearly 100" and "about 200" agree if the whole interval lies {_NEAR}. A seed that never selects all '
    "clients counts all rounds. The orders are GPFL before random selection and power-of-choice, a family per reading "
    "of GPFL, and FedCor after all others. All readings of GPFL start with a sweep over the clients. So its results "
    "hold by construction: within 50, and each order with GPFL that would be reproduced. Eq. 8 as printed was added "
    f"after the first runs. {verdicts.ORDER}"
)
TAILS = (
    '"About 500", "about 120" and the peaks have 95 % intervals of means over seeds. They agree if the whole interval '
    f"lies {_NEAR} (so since the first runs were judged). They concern the selections of the most selected client, "
    'and the peak of the smoothed histogram of selections: its position and its number of clients. "An average around '
    '20" is not judged (at first it was). This mean follows from the numbers of clients and rounds, which would have '
    "to be others. Eq. 8 as printed was added at the same time."
)
_RUNS = {
    **{Cell(SELECTIONS, row): as_they_ran(SELECTIONS, it) for row, it in AS_THEY_RAN.items()},
    Cell(SELECTIONS, COHERENT): as_published(SELECTIONS, AS_PUBLISHED[COHERENT]),
    Cell(SELECTIONS, PRINTED): as_they_ran(SELECTIONS, AS_PRINTED),
}


def _seen(result: Result) -> np.ndarray:
    """Return the number of distinct clients selected so far, [seeds, rounds]."""
    return metrics.clients_seen(result.cohorts, result.config.partition.num_clients)


def _until_covered(result: Result) -> np.ndarray:
    """Return the round after which every client has been selected, [seeds]; NaN: never."""
    return metrics.rounds_until_all_seen(_seen(result), result.config.partition.num_clients)


def _covered(result: Result) -> np.ndarray:
    """Return the round after which every client has been selected, [seeds]; all rounds if that never happens."""
    return statistics.restricted(_until_covered(result), result.num_rounds)


_OTHERS_HERE = "the coherent reading, and theirs with Eq. 8 as printed"


def _judge_coverage(results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    numbers = published.get("gpfl/fig4").numbers
    for cell, result in results.items():
        value = numbers[0].cell("gpfl" if cell.row in _ROWS_OF_GPFL else cell.row, "rounds")
        assert value is not None
        rounds, arrived = _covered(result), np.isfinite(_until_covered(result))
        low, high = map(float, statistics.mean_interval(rounds))
        if value.bound == "at most":
            verdict = verdicts.of_number(low, high, len(rounds), -np.inf, value.value)
        else:
            verdict = _near(value.value, low, high, len(rounds))
        if cell.row in _ROWS_OF_GPFL:
            verdict = verdicts.by_construction(verdict)
        if not scale.whole_rounds and not arrived.all():
            verdict = verdicts.NOT_COMPARABLE
        paper = f"within {value.value:.0f}" if value.bound == "at most" else f"about {value.value:.0f}"
        words = f"{rounds.mean():.0f} ({low:.0f} to {high:.0f})"
        if not arrived.all():
            words = f"{arrived.sum()} of {len(rounds)} seeds within {result.num_rounds}"
            words += f"; {rounds.mean():.0f} restricted to them" if arrived.any() else ""
        rows.append(Row(cell.column, f"{cell.row}: round in which all clients were selected once", paper, words,
                        len(rounds), "", verdict))  # fmt: skip
    words, whole = "has selected everyone {} than", scale.whole_rounds
    orders: list[Row] = []
    for gpfl in _ROWS_OF_GPFL:
        sooner = words.format("sooner")
        orders += tables.contest_rows(results, gpfl, _covered, sooner, 1, False, ("random", "pow_d"), whole)
    orders += tables.contest_rows(results, "fedcor", _covered, words.format("later"), 1, whole=whole)
    rows += [
        row._replace(verdict=verdicts.by_construction(row.verdict)) if "gpfl" in row.what else row for row in orders
    ]
    if not results:
        return Page(rows)
    pictures = {"clients_seen.png": curves.by_round(results, _seen, "clients selected at least once", window=0)}
    return Page(rows, [who(_OTHERS_HERE), *about(results)], pictures)


def _near(number: float, low: float, high: float, count: int) -> str:
    """Return the verdict on the claim that a mean is about `number`."""
    return verdicts.of_number(low, high, count, (1 - ROUGHLY) * number, (1 + ROUGHLY) * number)


def peak(counts: np.ndarray) -> tuple[float, float]:
    """Return the mode of a smoothed histogram of selections, and its height in clients.

    Args:
        counts: selections per client, int [N].
    """
    if np.ptp(counts) == 0:
        return float(counts[0]), float(len(counts))
    selections = np.linspace(counts.min(), counts.max(), 501)
    clients = len(counts) * stats.gaussian_kde(counts)(selections)
    highest = int(np.argmax(clients))
    return float(selections[highest]), float(clients[highest])


def _judge_tails(results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    numbers = published.get("gpfl/fig5").numbers
    tails, peaks, centre = numbers
    for cell, result in results.items():
        name = "gpfl" if cell.row in _ROWS_OF_GPFL else cell.row
        highest = np.array([peak(counts) for counts in result.selection_counts], np.float64)
        for what, paper, quantity, ours in (
            ("selections of the most selected client", tails, "longest tail", result.selection_counts.max(axis=1)),
            ("mean selections of a client", centre, "mean", result.selection_counts.mean(axis=1)),
            ("selections at the histogram's peak", peaks, "selections", highest[:, 0]),
            ("clients at the histogram's peak", peaks, "clients", highest[:, 1]),
        ):
            value = paper.cell(name, quantity) if name in paper.rows else None
            low, high = map(float, statistics.mean_interval(ours))
            judged = None if paper is centre else value
            verdict = "" if judged is None else _near(judged.value, low, high, len(ours))
            if judged is not None and not scale.whole_rounds:
                verdict = verdicts.NOT_COMPARABLE
            number = "" if value is None else f"about {value.value:.0f}"
            words = f"{tables.mean_and_sd(ours, 1)} ({low:.1f} to {high:.1f})"
            rows.append(Row(cell.column, f"{cell.row}: {what}", number, words, len(ours), "", verdict))
    pictures = {"frequency.png": curves.selection_frequency(results)} if results else {}
    return Page(rows, [who(_OTHERS_HERE), *about(results)], pictures)


ENTRIES = (
    Entry("gpfl/fig4", COVERED, _RUNS, _judge_coverage, "4 minutes beside gpfl/table2"),
    Entry("gpfl/fig5", TAILS, _RUNS, _judge_tails, "none beside gpfl/fig4"),
)
