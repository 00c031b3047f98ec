"""GPFL: Table II and the figures of its runs, with the baselines as its authors ran them and as they should be."""

from typing import Any

import numpy as np

from fedjax_sel import metrics, statistics
from fedjax_sel.config import Config
from fedjax_sel.papers import preset, published
from fedjax_sel.reproduction import curves, tables, verdicts
from fedjax_sel.reproduction.entry import Cell, Entry, Results, Scale
from fedjax_sel.reproduction.page import Page, Row

SEEDS = 5  # the paper has one
COLUMNS = ("fmnist-1spc", "fmnist-2spc", "fmnist-dir")
AS_THEY_RAN: dict[str, dict[str, Any]] = {
    "random": {"algo": "random"},
    "pow_d": {"algo": "pow_d", "algo_args": {"variant": "train-first", "num_candidates": 10}},
    "fedcor": {"algo": "fedcor", "algo_args": {"preset": "gpfl-port"}},
    "gpfl": {"algo": "gpfl", "algo_args": {"preset": "gpfl-ref"}},
}
AS_PUBLISHED: dict[str, dict[str, Any]] = {
    "pow_d as published": {"algo": "pow_d"},
    "fedcor as published": {"algo": "fedcor"},
    "gpfl, coherent reading": {"algo": "gpfl", "algo_args": {"preset": "gpfl-c", "accuracy_on": "test"}},
}
RULE = (
    "The table has one run a cell: it agrees if it lies in the 95 % prediction interval of a run of ours. An order "
    "(GPFL ends above each baseline) is reproduced if paired differences of the last ten rounds are told from chance "
    "by the sign-flip test after Holm's correction and by the bootstrap interval, and contradicted if they are the "
    "other way."
)
COVERED = (
    '"Within 50" agrees if the 95 % interval of the mean round in which the last client is first selected lies below '
    '50; "nearly 100" and "about 200" if it overlaps 75 to 125, 150 to 250. Who comes first is an order, as in table2.'
)
_ABOUT = {"gpfl": (0.0, 50.0), "random": (75.0, 125.0), "pow_d": (75.0, 125.0), "fedcor": (150.0, 250.0)}


def _config(column: str, changes: dict[str, Any]) -> Config:
    return preset(f"gpfl/{column}").replace(seeds=SEEDS, **changes)


_RUNS = {Cell(column, row): _config(column, changes) for column in COLUMNS for row, changes in AS_THEY_RAN.items()}
_OTHERS = {Cell(column, row): _config(column, changes) for column in COLUMNS for row, changes in AS_PUBLISHED.items()}


def _accuracy(results: Results) -> Any:
    return curves.by_round(results, lambda result: result.measured[result.test_measure], "test accuracy")


def _judge_table(results: Results, scale: Scale) -> Page:
    numbers = published.get("gpfl/table2").numbers
    assert numbers is not None
    rows = tables.accuracy_rows(results, dict(zip((0.15, 0.5, 1.0), numbers)))
    theirs = {cell: result for cell, result in results.items() if cell.row in AS_THEY_RAN}
    ours = {cell: result for cell, result in results.items() if cell.row in AS_PUBLISHED or cell.row == "random"}
    rows += tables.best_rows(theirs, "gpfl") + tables.best_rows(ours, "gpfl, coherent reading")
    notes = [
        "Rows with the names of the table are the strategies as GPFL's authors ran them (their power-of-choice trains "
        "its candidates first, with d = 10, which is all of the cohort under 1SPC); the others are as published."
    ]
    return Page(rows, notes, {"accuracy.png": _accuracy(results)} if results else {})


def _judge_curves(results: Results, scale: Scale) -> Page:
    pictures = {"accuracy.png": _accuracy(results)} if results else {}
    return Page(tables.best_rows(results, "gpfl"), (), pictures)


def _covered(result: Any) -> np.ndarray:
    """Return the round in which the last client is first selected, restricted to the rounds, [seeds]."""
    seen = metrics.clients_seen(result.cohorts, result.config.partition.num_clients)
    all_there = seen >= result.config.partition.num_clients
    return np.where(all_there.any(axis=1), all_there.argmax(axis=1) + 1.0, float(result.num_rounds))


def _judge_coverage(results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    for cell, result in results.items():
        rounds = _covered(result)
        low, high = map(float, statistics.mean_interval(rounds)) if len(rounds) > 1 else (np.nan, np.nan)
        least, most = _ABOUT[cell.row]
        fits = high <= most if cell.row == "gpfl" else low <= most and high >= least
        verdict = verdicts.NOT_COMPARABLE if np.isnan(low) else verdicts.AGREES if fits else verdicts.DIFFERS
        paper = (
            f"{'within' if cell.row == 'gpfl' else 'about'} {most if cell.row == 'gpfl' else (least + most) / 2:.0f}"
        )
        rows.append(Row(cell.column, f"{cell.row}: round in which all clients were selected once", paper,
                        f"{rounds.mean():.0f} ({low:.0f} to {high:.0f})", len(rounds), "", verdict))  # fmt: skip
    pictures = {"clients_seen.png": curves.by_round(results, _seen, "clients selected at least once", window=0)}
    return Page(rows, (), pictures if results else {})


def _seen(result: Any) -> np.ndarray:
    return metrics.clients_seen(result.cohorts, result.config.partition.num_clients)


def _judge_tails(results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    numbers = published.get("gpfl/fig5").numbers
    assert numbers is not None
    for cell, result in results.items():
        most = result.selection_counts.max(axis=1).astype(float)
        paper, verdict = "", ""
        if cell.row in numbers[0].rows:
            value = numbers[0].cell(cell.row, numbers[0].columns[0])
            assert value is not None
            judged = verdicts.of_mean(value.value, None, 1, most)
            paper, verdict = f"about {value.value:.0f}", judged.verdict
        words = f"{most.mean():.0f} ± {most.std(ddof=1):.0f}" if len(most) > 1 else f"{most.mean():.0f}"
        rows.append(Row(cell.column, f"{cell.row}: selections of the most selected client", paper, words,
                        len(most), "", verdict))  # fmt: skip
    return Page(rows, (), {"frequency.png": curves.selection_frequency(results)} if results else {})


_ALPHAS = {"const 0": ("const", 0.0), "const 0.1": ("const", 0.1), "const 2": ("const", 2.0), "const 5": ("const", 5.0),
           "linear 1": ("linear", 1.0)}  # fmt: skip
_FIG7 = {
    Cell("fmnist-2spc", f"alpha {name}"): _config(
        "fmnist-2spc",
        {"algo": "gpfl", "algo_args": {"preset": "gpfl-c", "accuracy_on": "test", "alpha": shape, "rho": rho}},
    )
    for name, (shape, rho) in _ALPHAS.items()
}


def _judge_alpha(results: Results, scale: Scale) -> Page:
    return Page(
        tables.best_rows(results, "alpha linear 1"), (), {"accuracy.png": _accuracy(results)} if results else {}
    )


ENTRIES = (
    Entry("gpfl/table2", RULE, {**_RUNS, **_OTHERS}, _judge_table, "Fashion-MNIST about 20 minutes"),
    Entry("gpfl/fig3", RULE, _RUNS, _judge_curves, "none beside table2"),
    Entry("gpfl/fig4", COVERED, _RUNS, _judge_coverage, "none beside table2"),
    Entry("gpfl/fig5", RULE, _RUNS, _judge_tails, "none beside table2"),
    Entry("gpfl/fig7", RULE, _FIG7, _judge_alpha, "about 5 minutes"),
)
