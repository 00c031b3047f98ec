"""Comparison of tables (strategies by settings) with the papers: rounds to a target, and accuracies."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

import numpy as np

from fedjax_sel import Result, metrics, statistics
from studies import aggregates
from studies.papers import published, verdicts
from studies.papers.entry import Cell, Results
from studies.papers.page import Row
from studies.papers.published import Numbers

LATE = 0.9  # beyond this fraction of our rounds, a paper's mean is not comparable if some of our seeds do not arrive
ARRIVAL = (
    "All of the paper's seeds reach the target where it gives a number. If some of ours do not, our seeds alone "
    "decide. The number differs if they would give it with a probability of at most 5 %, and is inconclusive "
    "otherwise. (Until the first runs were judged, it differed if one seed did not reach the target.) It is not "
    f"comparable if it exceeds {100 * LATE:.4g} % of the rounds run, or if the run is shorter than planned."
)


def restriction(*rounds: int) -> str:
    """Return the explanation of "restricted to" for a page with rounds to a target.

    Args:
        *rounds: numbers of rounds of the entry's runs.
    """
    words = " or ".join(map(str, rounds))
    return f'"Restricted to {words}" is the mean that counts this many rounds for a seed that never reaches the target.'


def rounds_rows(
    results: Results,
    paper: Numbers | None,
    paper_seeds: int,
    targets: Mapping[str, float],
    measure: str = "test",
    whole: bool = True,
) -> list[Row]:
    """Return the rows of a table of rounds to a target.

    If a seed does not reach the target, the row has "N/A" as in the papers, the number of successful seeds, and the
    restricted mean.

    Args:
        results: finished runs by cell.
        paper: the paper's table, strategies by settings; None if it has no such numbers.
        paper_seeds: number of seeds in the paper.
        targets: target by column, in the unit of the metric.
        measure: "test" or "train", the accuracy that must reach the target.
        whole: whether the runs have all their rounds; otherwise further seeds may still reach the target.
    """
    rows = []
    for cell, result in results.items():
        rounds, horizon = rounds_to(result, targets[cell.column], measure), result.num_rounds
        arrived = np.isfinite(rounds)
        ours = mean_and_sd(rounds, 1) if arrived.all() else _censored(rounds, horizon)
        difference, verdict, theirs = "", "", ""
        if paper is not None and _has(paper, cell):
            value = paper.cell(cell.row, cell.column)
            theirs = _paper(value, 1)
            late = value is not None and value.value > LATE * horizon
            if not arrived.all() and (late or not whole):
                verdict = verdicts.NOT_COMPARABLE
            elif value is None or not arrived.all():
                verdict = verdicts.of_reaching(value is not None, paper_seeds, arrived)
            else:
                margin = verdicts.ROUNDS_MARGIN * value.value
                judged = verdicts.of_mean(value.value, value.spread, paper_seeds, rounds, margin)
                difference, verdict = interval(judged.difference, judged.low, judged.high, 1), judged.verdict
        what = f"{cell.row}: rounds to {100 * targets[cell.column]:.4g} %"
        rows.append(Row(cell.column, what, theirs, ours, len(rounds), difference, verdict))
    return rows


def order_rows(
    results: Results,
    winner: str,
    targets: Mapping[str, float],
    measure: str = "test",
    against: Collection[str] | None = None,
    whole: bool = True,
) -> list[Row]:
    """Return the rows on the claim that the winner needs fewer rounds than each other strategy.

    A seed that does not reach the target counts all rounds. Two strategies are not comparable if the runs are shorter
    than the paper's and, for some seed, neither reaches the target.

    Args:
        results: finished runs by cell.
        winner: row of the strategy that the paper claims to be best.
        targets: target by column.
        measure: "test" or "train", the accuracy that must reach the target.
        against: rows to compare with; None: all others.
        whole: whether the runs have all their rounds.
    """
    rows = []
    words = "takes fewer rounds than"
    for column in _columns(results):
        here = {cell: result for cell, result in results.items() if cell.column == column}
        rounds = partial(restricted_rounds, target=targets[column], measure=measure)
        found = contest_rows(here, winner, rounds, words, 1, False, against)
        late = {cell.row: np.isnan(rounds_to(one, targets[column], measure)) for cell, one in here.items()}
        neither = {f"{winner} {words} {name}" for name in late if winner in late and (late[name] & late[winner]).any()}
        rows += [
            row._replace(verdict=verdicts.NOT_COMPARABLE) if not whole and row.what in neither else row for row in found
        ]
    return rows


def gain_rows(
    results: Results,
    winner: str,
    other: str,
    targets: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    less: float = 0.0,
    whole: bool = True,
) -> list[Row]:
    """Return the rows on the winner's speedup in rounds to a target, compared with the range in a paper's text.

    Args:
        results: finished runs by cell.
        winner: row of the paper's own strategy.
        other: row of the other strategy.
        targets: target by column.
        ranges: lower and upper end of the claimed speedup, by column.
        less: number to subtract from the ratio of the rounds; 1 if the text says "faster by".
        whole: whether the runs have all their rounds.
    """
    rows = []
    for column, (least, most) in ranges.items():
        ours, theirs = results.get(Cell(column, winner)), results.get(Cell(column, other))
        if ours is None or theirs is None:
            continue
        late, soon = (restricted_rounds(one, targets[column]) for one in (theirs, ours))
        low, high = map(float, aggregates.ratio_interval(late, soon))
        ends = "" if np.isnan(low) else f" ({low - less:.2f} to {high - less:.2f})"
        words = f"{late.mean() / soon.mean() - less:.2f}{ends}"
        verdict = verdicts.of_number(low - less, high - less, len(soon), least, most)
        what = f"rounds of {other} over rounds of {winner}{f', less {less:g}' if less else ''}"
        rows.append(
            Row(column, what, f"{least:g} to {most:g}", words, len(soon), "",
                verdict if whole else verdicts.NOT_COMPARABLE)
        )  # fmt: skip
    return rows


def best_rows(
    results: Results,
    winner: str,
    against: Collection[str] | None = None,
    whole: bool = True,
    claimed: bool = True,
) -> list[Row]:
    """Return the rows on the claim that the winner has a higher final accuracy than each other strategy.

    Args:
        results: finished runs by cell.
        winner: row of the strategy that the paper claims to be best.
        against: rows to compare with; None: all others.
        whole: whether the runs have all their rounds; otherwise the accuracy is not final.
        claimed: whether the paper makes the claim; otherwise it is our question.
    """
    return contest_rows(results, winner, last_accuracy, "ends above", 3, True, against, whole, claimed)


Run = TypeVar("Run")


def contest_rows(
    results: Mapping[Cell, Run],
    winner: str,
    values: Callable[[Run], np.ndarray],
    words: str,
    digits: int,
    higher_is_better: bool = True,
    against: Collection[str] | None = None,
    whole: bool = True,
    claimed: bool = True,
) -> list[Row]:
    """Return the rows on the claim that the winner is better than each other strategy, in each setting.

    A family of tests is one column.

    Args:
        results: finished runs, or data derived from them, by cell.
        winner: row of the strategy that the paper claims to be best.
        values: function from a run to its values, finite, [seeds].
        words: text between the winner and the other strategy.
        digits: number of decimals of differences.
        higher_is_better: whether the claim is that the winner's values are higher.
        against: rows to compare with; None: all others.
        whole: whether the runs have all their rounds; otherwise they are not comparable.
        claimed: whether the paper makes the claim; otherwise the verdict is the statistical one alone.
    """
    rows = []
    for column in _columns(results):
        best = results.get(Cell(column, winner))
        others = {
            cell.row: result
            for cell, result in results.items()
            if cell.column == column and cell.row != winner and (against is None or cell.row in against)
        }
        if best is None or not others:
            continue
        ours, theirs = values(best), {name: values(result) for name, result in others.items()}
        found = statistics.compare(np.stack([ours - other for other in theirs.values()]), higher_is_better)
        for (name, other), one in zip(theirs.items(), found):
            means = f"{ours.mean():.{digits}f} against {other.mean():.{digits}f} (p = {one.p_family:.2g})"
            difference = interval(one.difference, one.low, one.high, digits)
            verdict = verdicts.of_order(one, whole) if claimed or not whole else one.verdict
            paper = "yes" if claimed else ""
            rows.append(Row(column, f"{winner} {words} {name}", paper, means, one.seeds, difference, verdict))
    return rows


def accuracy_rows(results: Results, papers: Mapping[float, Numbers], whole: bool = True) -> list[Row]:
    """Return the rows of tables of accuracies at fractions of the rounds, for papers with a single run.

    Args:
        results: finished runs by cell.
        papers: the paper's table by fraction of the rounds; at 1, the mean of the last ten rounds, else one round.
        whole: whether the runs have all their rounds; otherwise the fractions refer to fewer rounds.
    """
    rows = []
    for cell, result in results.items():
        for share, paper in papers.items():
            ours = accuracy_at(result, share)
            value = paper.cell(cell.row, cell.column) if _has(paper, cell) else None
            what = f"{cell.row}: accuracy at {100 * share:.3g} % of the rounds"
            rows.append(number_row(cell.column, what, None if value is None else value.value, ours, 3, whole))
    return rows


def number_row(
    setting: str,
    what: str,
    paper: float | None,
    ours: np.ndarray,
    digits: int,
    whole: bool = True,
    in_words: str = "{:.4f}",
) -> Row:
    """Return the row of an accuracy for which a paper has a single run.

    Args:
        setting: `setting` of the row.
        what: `what` of the row.
        paper: the paper's accuracy, or a difference of two; None if it has none.
        ours: our values, finite, [seeds].
        digits: number of decimals of ours and of the difference.
        whole: whether the runs have all their rounds; otherwise they are not comparable.
        in_words: format string of the paper's number.
    """
    words = mean_and_sd(ours, digits)
    if paper is None:
        return Row(setting, what, "", words, len(ours), "", "")
    judged = verdicts.of_mean(paper, None, 1, ours, verdicts.ACCURACY_MARGIN)
    difference = interval(judged.difference, judged.low, judged.high, digits)
    verdict = judged.verdict if whole else verdicts.NOT_COMPARABLE
    return Row(setting, what, in_words.format(paper), words, len(ours), difference, verdict)


def _columns(results: Mapping[Cell, object]) -> list[str]:
    return list(dict.fromkeys(cell.column for cell in results))


def accuracy_at(result: Result, share: float) -> np.ndarray:
    """Return the test accuracy at a fraction of the rounds, [seeds]; at 1, the mean of the last ten rounds.

    Args:
        result: a finished run.
        share: fraction of its rounds.
    """
    values = np.asarray(result.measured[result.test_measure], np.float64)
    if share >= 1:
        return metrics.mean_of_last_rounds(values)
    return values[:, max(0, round(share * values.shape[1]) - 1)]


def last_accuracy(result: Result) -> np.ndarray:
    """Return the mean test accuracy of the last ten rounds, [seeds]."""
    return accuracy_at(result, 1.0)


def mean_accuracy(result: Result) -> np.ndarray:
    """Return the mean test accuracy of all rounds, [seeds]."""
    return metrics.mean_of_measured(result.measured[result.test_measure], axis=1)


def restricted_rounds(result: Result, target: float, measure: str = "test") -> np.ndarray:
    """Return the rounds to a target, [seeds]; all rounds for a seed that does not reach it."""
    return statistics.restricted(rounds_to(result, target, measure), result.num_rounds)


def rounds_to(result: Result, target: float, measure: str = "test") -> np.ndarray:
    """Return the first round (from 1) that reaches a target, [seeds]; NaN if no round does.

    Args:
        result: a finished run.
        target: target of its test metric, or of the accuracy on all training data.
        measure: "test" or "train".
    """
    values = result.measured[result.test_measure if measure == "test" else "train_accuracy"]
    return metrics.rounds_to_target(values, target, result.higher_is_better)


def mean_and_sd(values: np.ndarray, digits: int) -> str:
    """Return a mean over seeds as text, with the standard deviation if there are several."""
    spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"


def _censored(rounds: np.ndarray, horizon: int) -> str:
    arrived = int(np.isfinite(rounds).sum())
    mean = float(statistics.restricted(rounds, horizon).mean())
    return f"N/A: {arrived} of {len(rounds)} arrive; {mean:.1f} restricted to {horizon}"


def _has(paper: Numbers, cell: Cell) -> bool:
    return cell.row in paper.rows and cell.column in paper.columns


def _paper(value: "published.Cell | None", digits: int) -> str:
    if value is None:
        return "N/A"
    spread = "" if value.spread is None else f" ± {value.spread:.{digits}f}"
    return f"{value.value:.{digits}f}{spread}"


def interval(mean: float, low: float, high: float, digits: int) -> str:
    """Return a difference as text, with its interval unless it is NaN."""
    ends = "" if np.isnan(low) else f" ({low:+.{digits}f} to {high:+.{digits}f})"
    return f"{mean:+.{digits}f}{ends}"
