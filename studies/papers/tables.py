"""Tables of strategies by settings: rounds to a target, and accuracies, each beside the paper's."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

import numpy as np

from fedjax_sel import metrics, statistics
from fedjax_sel.runs.records import Result
from studies.papers import published, verdicts
from studies.papers.entry import Cell, Results
from studies.papers.page import Row
from studies.papers.published import Numbers

LATE = 0.9  # of the rounds run: who does not arrive by their end may have a mean that lies so late
ARRIVAL = (
    "Where the paper has a number, all of its seeds arrive. If some here do not, it differs where so many would fall "
    "on our seeds alone with a probability of at most 5 %, and is inconclusive otherwise (until the first runs "
    "were judged: it differed wherever one did not arrive); it is not comparable if it lies beyond "
    f"{100 * LATE:.4g} % of the rounds run, or if these are fewer than the entry's."
)


def restriction(*rounds: int) -> str:
    """Return what "restricted to" says on a page that counts rounds to a target.

    Args:
        *rounds: of the entry's runs.
    """
    words = " or ".join(map(str, rounds))
    return f'"Restricted to {words}" is the mean in which a seed that does not arrive counts that many rounds.'


def rounds_rows(
    results: Results,
    paper: Numbers | None,
    paper_seeds: int,
    targets: Mapping[str, float],
    measure: str = "test",
    whole: bool = True,
) -> list[Row]:
    """Return the rows of a table that counts rounds to a target.

    Where some seed does not arrive, as the papers, "N/A"; beside it the share that does and the restricted mean.

    Args:
        results: finished runs.
        paper: its table, strategies by settings; None where it has no such numbers.
        paper_seeds: over how many seeds its means are.
        targets: of the columns, in the unit of the measure.
        measure: "test" or "train": whose accuracy has to reach the target.
        whole: whether the runs have all their rounds; else who has not arrived may still do so.
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
    """Return what paired differences say of "the winner takes fewer rounds than each of the others".

    A seed that does not arrive counts all rounds. Where the rounds are fewer than the paper's, and in some seed neither
    of the two arrives, they are not comparable.

    Args:
        results: finished runs.
        winner: the row of the strategy that the paper claims to be best.
        targets: of the columns.
        measure: whose accuracy has to reach the target.
        against: rows that the claim is about; None: all others.
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
    """Return by how much the winner is faster, in rounds to a target, beside the range that a paper's text gives.

    Args:
        results: finished runs.
        winner: the row of the paper's own strategy.
        other: the row that it is held against.
        targets: of the columns.
        ranges: column -> least and most.
        less: what is taken off the ratio of the rounds: 1 where the text says "faster by".
        whole: whether the runs have all their rounds.
    """
    rows = []
    for column, (least, most) in ranges.items():
        ours, theirs = results.get(Cell(column, winner)), results.get(Cell(column, other))
        if ours is None or theirs is None:
            continue
        late, soon = (restricted_rounds(one, targets[column]) for one in (theirs, ours))
        low, high = map(float, statistics.ratio_interval(late, soon))
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
    """Return what paired differences say of "the winner ends with a higher accuracy than each of the others".

    Args:
        results: finished runs.
        winner: the row of the strategy that the paper claims to be best.
        against: rows that the claim is about; None: all others.
        whole: whether the runs have all their rounds; else this is not their end.
        claimed: whether the paper claims it; else it is our question.
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
    """Return what paired differences say of "the winner is better than each of the others" in every setting.

    A family of Holm's correction is one column.

    Args:
        results: finished runs, or what is known of them.
        winner: the row of the strategy that the paper claims to be best.
        values: of a run, one a seed, finite.
        words: that stand between the winner and another.
        digits: behind the point, of differences.
        higher_is_better: whether the claim is that the winner's values are higher.
        against: rows that the claim is about; None: all others.
        whole: whether the runs have all their rounds; else they are not comparable.
        claimed: whether the paper claims it; else it is our question, and nothing is reproduced or contradicted.
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
            means = f"{ours.mean():.{digits}f} against {other.mean():.{digits}f} (p = {one.p_holm:.2g})"
            difference = interval(one.difference, one.low, one.high, digits)
            verdict = verdicts.of_order(one, whole) if claimed or not whole else one.verdict
            paper = "yes" if claimed else ""
            rows.append(Row(column, f"{winner} {words} {name}", paper, means, one.seeds, difference, verdict))
    return rows


def accuracy_rows(results: Results, papers: Mapping[float, Numbers], whole: bool = True) -> list[Row]:
    """Return the rows of tables of accuracies after shares of the rounds, of which a paper has one run.

    Args:
        results: finished runs.
        papers: share of the rounds -> its table; at 1 it is the mean of the last ten rounds, before that one round.
        whole: whether the runs have all their rounds; else these are shares of fewer.
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
    """Return the row of an accuracy of which a paper has one run, held against a run of ours.

    Args:
        setting: the row's.
        what: the row's.
        paper: the accuracy, or a difference of two; None where it has none.
        ours: one value a seed, finite.
        digits: behind the point, of ours and of the difference.
        whole: whether the runs have all their rounds; else they are not comparable.
        in_words: how the paper's number is written, as a format.
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
    """Return a test accuracy per seed: of one round, or at the end the mean of the last ten.

    Args:
        result: a finished run.
        share: of its rounds.
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
    """Return the rounds to a target, or all of them for a seed that does not reach it, [seeds]."""
    return statistics.restricted(rounds_to(result, target, measure), result.num_rounds)


def rounds_to(result: Result, target: float, measure: str = "test") -> np.ndarray:
    """Return the first round (from 1) that reaches a target, [seeds]; NaN where none does.

    Args:
        result: a finished run.
        target: of its test measure, or of the accuracy on all training data.
        measure: "test" or "train".
    """
    values = result.measured[result.test_measure if measure == "test" else "train_accuracy"]
    return metrics.rounds_to_target(values, target, result.higher_is_better)


def mean_and_sd(values: np.ndarray, digits: int) -> str:
    """Return a mean over seeds in words, with the standard deviation where there are several."""
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


def interval(mean: float, low: float, high: float, digits: int) -> str:
    """Return a difference in words, with its interval where it has one."""
    ends = "" if np.isnan(low) else f" ({low:+.{digits}f} to {high:+.{digits}f})"
    return f"{mean:+.{digits}f}{ends}"
