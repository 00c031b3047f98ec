"""FedCor and FedGP: rounds to a target, curves, how often the process is updated, and how it anneals."""

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.config import Config
from fedjax_sel.papers import preset, published
from fedjax_sel.papers.fedcor import TARGETS
from fedjax_sel.reproduction import curves, tables, verdicts
from fedjax_sel.reproduction.entry import Cell, Entry, Results, Scale
from fedjax_sel.reproduction.page import Page, Row

SEEDS = 5  # the papers'
BASELINES = ("random", "afl", "pow_d")
COLUMNS = ("fmnist-2spc", "fmnist-1spc", "fmnist-dir", "cifar10-2spc", "cifar10-1spc", "cifar10-dir")
ORDER = (
    "A mean agrees if zero is in Welch's 95 % interval of ours minus the paper's; an N/A agrees if some seed here does "
    "not reach the target either. An order is reproduced if paired differences over seeds of rounds, where a seed that "
    "does not arrive counts all rounds, are told from chance by the sign-flip test after Holm's correction and by the "
    "bootstrap interval, and contradicted if they are the other way. Fewer than 7 seeds cannot tell three orders."
)
CLOSE = (
    'Accuracies are the means of the last ten rounds. "Hardly changes" is reproduced if the 95 % interval of the '
    "paired difference lies within 0.03 of zero, and contradicted if it lies outside; beating random is an order, by "
    "paired differences as in table1."
)
MARGIN = 0.03


def _config(column: str, algo: str, **changes: Any) -> Config:
    return preset(f"fedcor/{column}").replace(algo=algo, seeds=SEEDS, **changes)


def _fedcor(column: str, **numbers: Any) -> Config:
    task = "cifar10" if column.startswith("cifar10") else "fmnist"
    return _config(column, "fedcor", algo_args={"task": task, **numbers})


def _fedgp(column: str, **numbers: Any) -> Config:
    task = "cifar10" if column.startswith("cifar10") else "fmnist"
    return _config(column, "fedgp", algo_args={"task": task, **numbers})


def _table(column: str) -> dict[str, Config]:
    """Return the runs of a column that both papers' tables have."""
    return {name: _config(column, name) for name in BASELINES}


def _judge_table(name: str, winner: str, targets: Mapping[str, float], results: Results, scale: Scale) -> Page:
    paper = published.get(name).numbers
    assert paper is not None
    rows = tables.rounds_rows(results, paper[0], SEEDS, targets) + tables.order_rows(
        results, winner, targets, against=BASELINES
    )
    pictures = {"accuracy.png": _accuracy(results)} if results else {}
    return Page(rows, _about(results), pictures)


def _accuracy(results: Results) -> Any:
    return curves.by_round(results, lambda result: result.measured[result.test_measure], "test accuracy")


def _about(results: Results) -> list[str]:
    seconds = sum(float(result.elapsed_seconds[-1]) for result in results.values() if result.num_rounds)
    return [f"The runs took {seconds / 60:.0f} minutes here."] if results else []


def _judge_curves(winner: str, results: Results, scale: Scale) -> Page:
    pictures = {"accuracy.png": _accuracy(results)} if results else {}
    if results:
        pictures["loss.png"] = curves.by_round(results, lambda result: result.measured["test_loss"], "test loss (nats)")
    return Page(tables.best_rows(results, winner, BASELINES), _about(results), pictures)


def _judge_close(reference: str, results: Results, scale: Scale) -> Page:
    """Judge "it hardly matters": every variant against the reference, and against random."""
    rows: list[Row] = []
    for cell, result in results.items():
        base = results.get(Cell(cell.column, reference))
        ours = tables.accuracy_at(result, 1.0)
        words = f"{ours.mean():.3f}"
        if base is not None and cell.row not in (reference, "random"):
            difference = ours - tables.accuracy_at(base, 1.0)
            low, high = map(float, statistics.mean_interval(difference))
            close = low >= -MARGIN and high <= MARGIN
            apart = low > MARGIN or high < -MARGIN
            verdict = verdicts.REPRODUCED if close else verdicts.CONTRADICTED if apart else verdicts.UNDECIDED
            rows.append(Row(cell.column, f"{cell.row} is within {MARGIN} of {reference}", "about the same", words,
                            len(ours), f"{difference.mean():+.3f} ({low:+.3f} to {high:+.3f})", verdict))  # fmt: skip
    for column in dict.fromkeys(cell.column for cell in results):
        rows += _above_random({cell: result for cell, result in results.items() if cell.column == column}, column)
    pictures = {"accuracy.png": _accuracy(results), "frequency.png": curves.selection_frequency(results)}
    return Page(rows, _about(results), pictures if results else {})


def _above_random(results: Results, column: str) -> list[Row]:
    random = results.get(Cell(column, "random"))
    others = [(cell.row, result) for cell, result in results.items() if cell.row != "random"]
    if random is None or not others:
        return []
    base = tables.accuracy_at(random, 1.0)
    found = statistics.compare(np.stack([tables.accuracy_at(result, 1.0) - base for _, result in others]))
    return [
        Row(column, f"{name} ends above random", "yes", f"p = {one.p_holm:.2g}", one.seeds,
            f"{one.difference:+.3f} ({one.low:+.3f} to {one.high:+.3f})", verdicts.of_order(one))
        for (name, _), one in zip(others, found)
    ]  # fmt: skip


def _judge_frequency(results: Results, scale: Scale) -> Page:
    """Judge "a smaller beta is more uniform" by the deviation of the selection counts."""
    rows: list[Row] = []
    for column in dict.fromkeys(cell.column for cell in results):
        here = {cell.row: result for cell, result in results.items() if cell.column == column and "beta" in cell.row}
        spread = {name: result.selection_counts.std(axis=1) for name, result in here.items()}
        ordered = sorted(spread, key=lambda name: float(name.split("=")[1]))
        pairs = list(itertools.pairwise(ordered))
        if not pairs:
            continue
        found = statistics.compare(np.stack([spread[low] - spread[high] for low, high in pairs]), False)
        for (low, high), one in zip(pairs, found):
            rows.append(
                Row(column, f"selection counts vary less with {low} than with {high}", "yes (picture)",
                    f"sd {spread[low].mean():.1f} against {spread[high].mean():.1f}", one.seeds,
                    f"{one.difference:+.1f} ({one.low:+.1f} to {one.high:+.1f})", verdicts.of_order(one))
            )  # fmt: skip
    pictures = {"frequency.png": curves.selection_frequency(results), "accuracy.png": _accuracy(results)}
    return Page(rows, _about(results), pictures if results else {})


GP_TARGETS = {**TARGETS, "cifar10-dir": 0.53}
_TABLE1 = {
    Cell(column, row): config
    for column in COLUMNS
    for row, config in {**_table(column), "fedcor": _fedcor(column)}.items()
}
_RELEASES = {
    Cell(column, f"fedcor {code}"): _fedcor(column, preset=code)
    for column in COLUMNS
    for code in ("code-2022", "code-2023")
}
_GP_TABLE1 = {
    Cell(column, row): config.replace(target_accuracy=GP_TARGETS[column])
    for column in COLUMNS
    for row, config in {**_table(column), "fedgp": _fedgp(column)}.items()
}
_INTERVALS = {"fmnist": {10: 0.95, 20: 0.95, 500: 0.99}, "cifar10": {50: 0.97, 100: 0.97, 2000: 0.999}}
_FIG5 = {
    **{Cell(column, "random"): _config(column, "random") for column in COLUMNS},
    **{
        Cell(column, f"interval={interval}"): _fedcor(column, interval=interval, anneal=anneal)
        for column in COLUMNS
        for interval, anneal in _INTERVALS[column.split("-")[0]].items()
    },
}
_BETAS = {"fmnist": (0.5, 0.75, 0.9, 0.95), "cifar10": (0.9, 0.95, 0.97, 0.99)}  # the union of both lists
_FIG8 = {
    Cell(column, f"beta={beta}"): _fedcor(column, anneal=beta)
    for column in COLUMNS
    for beta in _BETAS[column.split("-")[0]]
}


def _of(runs: Mapping[Cell, Config], *starts: str) -> dict[Cell, Config]:
    return {cell: config for cell, config in runs.items() if cell.column.startswith(starts)}


def _reference(results: Results) -> str:
    """Return the row of the main comparison among the intervals or betas."""
    rows = {cell.row for cell in results}
    return next((row for row in ("interval=10", "interval=50", "beta=0.95", "beta=0.9") if row in rows), "")


def _judge_variants(results: Results, scale: Scale) -> Page:
    return _judge_close(_reference(results), results, scale)


ENTRIES = (
    Entry("fedcor/table1", ORDER, {**_TABLE1, **_RELEASES}, partial(_judge_table, "fedcor/table1", "fedcor", TARGETS),
          "Fashion-MNIST about 15 minutes; CIFAR-10 days on a CPU"),
    Entry("fedcor/fig4", ORDER, _TABLE1, partial(_judge_curves, "fedcor"), "none beside table1"),
    Entry("fedcor/fig5", CLOSE, _FIG5, _judge_variants, "Fashion-MNIST about 10 minutes beside table1"),
    Entry("fedcor/fig6", CLOSE, _of(_FIG8, "fmnist-2spc", "cifar10-2spc"), _judge_frequency, "none beside fig8"),
    Entry("fedcor/fig8", CLOSE, _FIG8, _judge_variants, "Fashion-MNIST about 15 minutes"),
    Entry("fedcor/fig10", ORDER, _of(_FIG8, "fmnist"), _judge_frequency, "none beside fig8"),
    Entry("fedcor/fig11", ORDER, _of(_FIG8, "cifar10"), _judge_frequency, "none beside fig8"),
    Entry("fedgp/table1", ORDER, _GP_TABLE1, partial(_judge_table, "fedgp/table1", "fedgp", GP_TARGETS),
          "Fashion-MNIST about 4 minutes beside fedcor/table1"),
    Entry("fedgp/fig2", ORDER, _GP_TABLE1, partial(_judge_curves, "fedgp"), "none beside table1"),
)  # fmt: skip
