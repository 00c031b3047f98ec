"""Tables of strategies by settings: rounds to a target, and accuracies, each beside the paper's."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from fedjax_sel import metrics, statistics
from fedjax_sel.papers import published
from fedjax_sel.papers.published import Numbers
from fedjax_sel.reproduction import verdicts
from fedjax_sel.reproduction.entry import Cell, Results
from fedjax_sel.reproduction.page import Row
from fedjax_sel.runs.records import Result

LAST_ROUNDS = 10


def rounds_rows(
    results: Results, paper: Numbers, paper_seeds: int, targets: Mapping[str, float], measure: str = "test"
) -> list[Row]:
    """Return the rows of a table that counts rounds to a target.

    Where some seed does not arrive, as the papers, "N/A"; beside it the share that does and the restricted mean.

    Args:
        results: finished runs.
        paper: its table, strategies by settings.
        paper_seeds: over how many seeds its means are.
        targets: of the columns, in the unit of the measure.
        measure: "test" or "train": whose accuracy has to reach the target.
    """
    rows = []
    for cell, result in results.items():
        rounds, horizon = rounds_to(result, targets[cell.column], measure), result.num_rounds
        arrived = np.isfinite(rounds)
        ours = _mean_and_sd(rounds, 1) if arrived.all() else _censored(rounds, horizon)
        difference, verdict, theirs = "", "", ""
        if _has(paper, cell):
            value = paper.cell(cell.row, cell.column)
            theirs = _paper(value, 1)
            if value is None or not arrived.all():
                verdict = verdicts.of_reaching(value is not None, arrived)
            else:
                judged = verdicts.of_mean(value.value, value.spread, paper_seeds, rounds)
                difference, verdict = _difference(judged.difference, judged.low, judged.high, 1), judged.verdict
        what = f"{cell.row}: rounds to {100 * targets[cell.column]:.4g} %"
        rows.append(Row(cell.column, what, theirs, ours, len(rounds), difference, verdict))
    return rows


def order_rows(
    results: Results,
    winner: str,
    targets: Mapping[str, float],
    measure: str = "test",
    against: Collection[str] | None = None,
) -> list[Row]:
    """Return what paired differences say of "the winner takes fewer rounds than each of the others".

    A family of Holm's correction is one column. A seed that does not arrive counts the horizon.

    Args:
        results: finished runs.
        winner: the row of the strategy that the paper claims to be best.
        targets: of the columns.
        measure: whose accuracy has to reach the target.
        against: rows that the claim is about; None: all others.
    """
    rows = []
    for column, best, others in _contests(results, winner, against):
        horizon = min(result.num_rounds for result in [best, *others.values()])
        of_best, *of_others = (
            statistics.restricted(rounds_to(result, targets[column], measure), horizon)
            for result in [best, *others.values()]
        )
        found = statistics.compare(np.stack([of_best - other for other in of_others]), higher_is_better=False)
        for name, one in zip(others, found):
            ours = _difference(one.difference, one.low, one.high, 1)
            what = f"{winner} takes fewer rounds than {name}"
            rows.append(Row(column, what, "yes", f"p = {one.p_holm:.2g}", one.seeds, ours, verdicts.of_order(one)))
    return rows


def accuracy_rows(results: Results, papers: Mapping[float, Numbers]) -> list[Row]:
    """Return the rows of tables of accuracies after shares of the rounds, of which a paper has one run.

    Args:
        results: finished runs.
        papers: share of the rounds -> its table; at 1 it is the mean of the last ten rounds, before that one round.
    """
    rows = []
    for cell, result in results.items():
        for share, paper in papers.items():
            ours = accuracy_at(result, share)
            theirs, difference, verdict = "", "", ""
            value = paper.cell(cell.row, cell.column) if _has(paper, cell) else None
            if value is not None:
                judged = verdicts.of_mean(value.value, None, 1, ours)
                theirs = f"{value.value:.4f}"
                difference, verdict = _difference(judged.difference, judged.low, judged.high, 3), judged.verdict
            what = f"{cell.row}: accuracy at {100 * share:.3g} % of the rounds"
            rows.append(Row(cell.column, what, theirs, _mean_and_sd(ours, 3), len(ours), difference, verdict))
    return rows


def best_rows(results: Results, winner: str, against: Collection[str] | None = None) -> list[Row]:
    """Return what paired differences say of "the winner ends with a higher accuracy than each of the others".

    Args:
        results: finished runs.
        winner: the row of the strategy that the paper claims to be best.
        against: rows that the claim is about; None: all others.
    """
    rows = []
    for column, best, others in _contests(results, winner, against):
        ours = accuracy_at(best, 1.0)
        found = statistics.compare(np.stack([ours - accuracy_at(result, 1.0) for result in others.values()]))
        for name, one in zip(others, found):
            rows.append(
                Row(
                    column, f"{winner} ends above {name}", "yes", f"p = {one.p_holm:.2g}", one.seeds,
                    _difference(one.difference, one.low, one.high, 3), verdicts.of_order(one),
                )
            )  # fmt: skip
    return rows


def _contests(
    results: Results, winner: str, against: Collection[str] | None
) -> Iterator[tuple[str, Result, dict[str, Result]]]:
    """Yield each column's claimed winner and those that it is held against, where both are there."""
    for column in dict.fromkeys(cell.column for cell in results):
        best = results.get(Cell(column, winner))
        others = {
            cell.row: result
            for cell, result in results.items()
            if cell.column == column and cell.row != winner and (against is None or cell.row in against)
        }
        if best is not None and others:
            yield column, best, others


def accuracy_at(result: Result, share: float) -> np.ndarray:
    """Return a test accuracy per seed: of one round, or at the end the mean of the last ten.

    Args:
        result: a finished run.
        share: of its rounds.
    """
    values = np.asarray(result.measured[result.test_measure], np.float64)
    if share >= 1:
        return metrics.mean_of_last_rounds(values, LAST_ROUNDS)
    return values[:, max(0, round(share * values.shape[1]) - 1)]


def rounds_to(result: Result, target: float, measure: str = "test") -> np.ndarray:
    """Return the first round (from 1) that reaches a target, [seeds]; NaN where none does.

    Args:
        result: a finished run.
        target: of its test measure, or of the accuracy on all training data.
        measure: "test" or "train".
    """
    values = result.measured[result.test_measure if measure == "test" else "train_accuracy"]
    return metrics.rounds_to_target(values, target, result.higher_is_better)


def _mean_and_sd(values: np.ndarray, digits: int) -> str:
    spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"


def _censored(rounds: np.ndarray, horizon: int) -> str:
    arrived = int(np.isfinite(rounds).sum())
    mean = float(statistics.restricted_mean(rounds, horizon))
    return f"N/A: {arrived} of {len(rounds)} arrive; {mean:.1f} restricted to {horizon}"


def _has(paper: Numbers, cell: Cell) -> bool:
    return cell.row in paper.rows and cell.column in paper.columns


def _paper(value: "published.Cell | None", digits: int) -> str:
    if value is None:
        return "N/A"
    spread = "" if value.spread is None else f" ± {value.spread:.{digits}f}"
    return f"{value.value:.{digits}f}{spread}"


def _difference(mean: float, low: float, high: float, digits: int) -> str:
    interval = "" if np.isnan(low) else f" ({low:+.{digits}f} to {high:+.{digits}f})"
    return f"{mean:+.{digits}f}{interval}"
