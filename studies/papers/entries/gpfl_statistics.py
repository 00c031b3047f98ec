"""GPFL Table I: statistics of the data sets."""

import numpy as np

from fedjax_sel import Result
from fedjax_sel.experiment.problem import pose
from studies.papers import published, verdicts
from studies.papers.entries import gpfl_writers
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row
from studies.papers.published import Numbers

RULE = (
    "CIFAR-10's mean agrees if it equals the samples divided by the clients of the same table. FEMNIST's column "
    "describes LEAF's files, which Table II does not use. The flags --columns femnist --data-dir DIR give these "
    "files: DIR/femnist holds LEAF's train and test. Then a number agrees if it rounds to the printed one; without "
    "them it is not comparable. Writers' sizes come from the training files, divided by their share of all samples. "
    "The stand-in (--columns writers) has no verdict."
)
WHERE = "not at hand: LEAF's files are the user's own (--columns femnist --data-dir DIR counts them)"
_DIGITS = {"clients": 0, "samples": 0, "mean samples a client": 2, "deviation of samples a client": 2}


def statistics_of(samples: int, held: np.ndarray, share: float) -> dict[str, float]:
    """Return the table's numbers for a data set.

    Args:
        samples: number of training and test samples.
        held: training samples per client, int [N].
        share: fraction of training samples.
    """
    sizes = held / share
    values = len(held), samples, float(sizes.mean()), float(sizes.std(ddof=1))
    return dict(zip(_DIGITS, values, strict=True))


def _of(result: Result) -> dict[str, float]:
    problem = pose(result.config)
    train, test = len(problem.dataset.train_labels), len(problem.dataset.test_labels)
    if result.config.data.dataset.startswith("synthetic"):  # synthetic test samples belong to no client
        test = 0
    return statistics_of(train + test, problem.partitions[0].sizes, train / (train + test))


def _judge(results: Results, scale: Scale) -> Page:
    numbers = published.get("gpfl/table1").numbers
    table = numbers[0]
    by_column = {cell.column: result for cell, result in results.items()}
    rows = [*_femnist(table, by_column.get(gpfl_writers.LEAF)), *_stand_in(by_column.get(gpfl_writers.STAND_IN))]
    samples, clients, printed = (
        table.cell(name, "cifar10") for name in ("samples", "clients", "mean samples a client")
    )
    assert samples is not None and clients is not None and printed is not None
    mean = samples.value / clients.value
    ours = f"{samples.value:g} / {clients.value:g} = {mean:g}"
    rows.append(
        Row("cifar10", "mean samples a client", f"{printed.value:g}", ours,
            0, f"{mean - printed.value:+g}", verdicts.AGREES if mean == printed.value else verdicts.DIFFERS)
    )  # fmt: skip
    return Page(rows)


def _femnist(table: Numbers, result: Result | None) -> list[Row]:
    ours = None if result is None else _of(result)
    rows = []
    for name, digits in _DIGITS.items():
        value = table.cell(name, "femnist")
        assert value is not None
        paper = f"{value.value:.{digits}f}"
        if ours is None:
            rows.append(Row(gpfl_writers.LEAF, name, paper, WHERE, 0, "", verdicts.NOT_COMPARABLE))
            continue
        verdict = verdicts.AGREES if f"{ours[name]:.{digits}f}" == paper else verdicts.DIFFERS
        difference = f"{ours[name] - value.value:+.{digits}f}"
        rows.append(Row(gpfl_writers.LEAF, name, paper, f"{ours[name]:.{digits}f}", 0, difference, verdict))
    return rows


def _stand_in(result: Result | None) -> list[Row]:
    if result is None:
        return []
    return [
        Row(gpfl_writers.STAND_IN, name, "", f"{value:.{_DIGITS[name]}f}", 0, "", "")
        for name, value in _of(result).items()
    ]


_RUNS = {Cell(column, "random"): gpfl_writers.shortest(column) for column in gpfl_writers.COLUMNS}

ENTRIES = (Entry("gpfl/table1", RULE, _RUNS, _judge, "seconds; by writer minutes", on_request=gpfl_writers.COLUMNS),)
