"""FedCor and FedGP: rounds to a target, and the curves of the same runs."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fedjax_sel import Config, metrics, statistics
from fedjax_sel.papers import TARGETS, preset
from fedjax_sel.strategies.fedcor_presets import look_up
from studies.papers import curves, published, tables, verdicts
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row
from studies.papers.published import Numbers

PAPER_SEEDS = 5
SEEDS = 10  # with five seeds, three orders cannot be significant
BASELINES = ("random", "afl", "pow_d")
ROUNDED = 0.05  # rounding error of a number with one decimal
COLUMNS = ("fmnist-2spc", "fmnist-1spc", "fmnist-dir", "cifar10-2spc", "cifar10-1spc", "cifar10-dir")
GP_TARGETS = {**TARGETS, "cifar10-dir": 0.53}
CURVES = f"The orders concern the mean test accuracy of the last ten rounds, and of all rounds. {verdicts.ORDER}"


def task_of(column: str) -> str:
    """Return the task that determines the strategies' hyperparameters in a setting."""
    return "cifar10" if column.startswith("cifar10") else "fmnist"


def configuration(column: str, algo: str, **numbers: Any) -> Config:
    """Return the configuration of a strategy in a setting.

    Args:
        column: the setting.
        algo: the strategy.
        **numbers: hyperparameters of FedCor or FedGP; the preset's values are dropped, so that equal runs share a
            folder.
    """
    config = preset(f"fedcor/{column}").replace(algo=algo, seeds=SEEDS)
    if algo not in ("fedcor", "fedgp"):
        return config
    usual = look_up(algo, "paper", task_of(column))._asdict()
    others = {name: value for name, value in numbers.items() if usual.get(name) != value}
    return config.replace(algo_args={"task": task_of(column), **others})


_ROUNDS = dict.fromkeys(configuration(column, "random").run.rounds for column in COLUMNS)
TABLE = (
    f"Means are compared by Welch's interval. {verdicts.NUMBERS} {tables.ARRIVAL} An N/A agrees if some seed of ours "
    "does not reach the target either, in all planned rounds, and is inconclusive if all do. "
    f"{tables.restriction(*_ROUNDS)} The text claims a range, over the settings, of the speed-up over "
    "power-of-choice. The number is the ratio of mean rounds in a setting. It agrees if its whole 95 % interval lies "
    "within the range, differs if it lies outside, and is inconclusive otherwise. A seed that never reaches the "
    "target counts all rounds. (This was added after the first runs; at first, an overlap agreed.) The orders concern "
    "the rounds to the target, the paper's own strategy before each baseline, with all rounds for a seed that never "
    f"reaches it. {verdicts.ORDER}"
)
SMOOTH = (
    "A curve is smoother if the mean absolute change of its test accuracy between rounds is smaller. The orders are "
    "the paper's own strategy below each baseline. A lead is the accuracy over all rounds minus that of the best "
    "baseline by its mean over seeds. The orders are the lead under 1SPC above the leads under 2SPC and Dir, a "
    "family of two."
)
MOST_OF_ALL = (
    f'{CURVES} {SMOOTH} (Smoothness and "most of all under 1SPC" were added after the last run of 500 rounds. Pages '
    "without these rows are older. results/papers_setting/papers_curves.csv has them for curves of 150 "
    "rounds, where the server holds 5 % of the data.) The loss is not judged: the picture shows it."
)
Curves: TypeAlias = Mapping[Cell, np.ndarray]  # test accuracies, [seeds, rounds]


def roughness(accuracy: np.ndarray) -> np.ndarray:
    """Return the mean absolute change of an accuracy between successive rounds, [seeds].

    Args:
        accuracy: test accuracy, [seeds, rounds], NaN in rounds without evaluation.
    """
    measured = accuracy[:, ~np.isnan(accuracy).all(axis=0)]
    return np.abs(np.diff(measured, axis=1)).mean(axis=1)


def smooth_rows(curves: Curves, winner: str, whole: bool = True) -> list[Row]:
    """Evaluate "the winner's curves are smoother than each baseline's", and "its lead is largest under 1SPC".

    Args:
        curves: test accuracies of the winner and the baselines, by cell.
        winner: row of the paper's own strategy.
        whole: whether the curves have all rounds.
    """
    words = "has a smoother curve than"
    rows = tables.contest_rows(curves, winner, roughness, words, 4, False, BASELINES, whole)
    leads: dict[str, np.ndarray] = {}
    for column in dict.fromkeys(cell.column for cell in curves):
        here = [metrics.mean_of_measured(curves[cell], axis=1) for row in (winner, *BASELINES)
                if (cell := Cell(column, row)) in curves]  # fmt: skip
        if len(here) == 1 + len(BASELINES):
            leads[column] = here[0] - max(here[1:], key=np.mean)
    for task in dict.fromkeys(map(task_of, leads)):
        most, others = leads.get(f"{task}-1spc"), [name for name in (f"{task}-2spc", f"{task}-dir") if name in leads]
        if most is None or not others:
            continue
        found = statistics.compare(np.stack([most - leads[name] for name in others]))
        rows += [
            Row(task, f"{winner}'s lead is larger under {task}-1spc than under {name}", "yes",
                f"{most.mean():+.3f} against {leads[name].mean():+.3f} (p = {one.p_family:.2g})", one.seeds,
                tables.interval(one.difference, one.low, one.high, 3), verdicts.of_order(one, whole))
            for name, one in zip(others, found)
        ]  # fmt: skip
    return rows


def accuracy(results: Results) -> Any:
    """Draw the test accuracy over the rounds."""
    return curves.by_round(results, lambda result: result.measured[result.test_measure], "test accuracy")


def about(results: Results) -> list[str]:
    """Return a note on the runs' compilation time, if it is known for all of them."""
    compiling = sum(result.compilation_seconds for result in results.values() if result.num_rounds)
    if not results or np.isnan(compiling):
        return []
    return [f"{compiling / 60:.1f} minutes of the runs' time were compilation."]


def _judge_table(
    name: str, winner: str, targets: Mapping[str, float], less: float, results: Results, scale: Scale
) -> Page:
    paper = published.get(name).numbers
    assert paper is not None
    table, gains = paper
    rows = tables.rounds_rows(results, table, PAPER_SEEDS, targets, whole=scale.whole_rounds)
    rows += tables.order_rows(results, winner, targets, against=BASELINES, whole=scale.whole_rounds)
    ranges = {
        column: (least.value, _most(table, winner, task_of(column), most.value, less))
        for column in COLUMNS
        for least, most in [(gains.cell(task_of(column), end) for end in gains.columns)]
        if least is not None and most is not None and table.cell("pow_d", column) is not None
    }
    rows += tables.gain_rows(results, winner, "pow_d", targets, ranges, less, scale.whole_rounds)
    return Page(rows, about(results), {"accuracy.png": accuracy(results)} if results else {})


def _most(table: Numbers, winner: str, task: str, stated: float, less: float) -> float:
    """Return the upper end of a text's range, or the table's own maximum if the table does not support it.

    The ratio of means is power-of-choice's rounds over the winner's. FedGP's 2.3 is the ratio for AFL instead.
    """
    pairs = [
        (table.cell("pow_d", column), table.cell(winner, column)) for column in table.columns if task_of(column) == task
    ]
    own = max(late.value / soon.value - less for late, soon in pairs if late is not None and soon is not None)
    return stated if own > stated - ROUNDED else round(own, 1)


def _judge_curves(winner: str, results: Results, scale: Scale) -> Page:
    rows = tables.best_rows(results, winner, BASELINES, scale.whole_rounds)
    rows += tables.contest_rows(
        results, winner, tables.mean_accuracy, "has a higher accuracy over all rounds than", 3, True, BASELINES,
        scale.whole_rounds,
    )  # fmt: skip
    curves_of = {cell: np.asarray(one.measured[one.test_measure], np.float64) for cell, one in results.items()}
    rows += smooth_rows(curves_of, winner, scale.whole_rounds)
    pictures = {"accuracy.png": accuracy(results)} if results else {}
    if results:
        pictures["loss.png"] = curves.by_round(results, lambda result: result.measured["test_loss"], "test loss (nats)")
    return Page(rows, about(results), pictures)


_TABLE1 = {Cell(column, row): configuration(column, row) for column in COLUMNS for row in (*BASELINES, "fedcor")}
_RELEASES = {
    Cell(column, f"fedcor {code}"): configuration(column, "fedcor", preset=code)
    for column in COLUMNS
    for code in ("code-2022", "code-2023")
}
_GP_TABLE1 = {
    Cell(column, row): configuration(column, row).replace(target_accuracy=GP_TARGETS[column])
    for column in COLUMNS
    for row in (*BASELINES, "fedgp")
}

ENTRIES = (
    Entry("fedgp/table1", TABLE, _GP_TABLE1, partial(_judge_table, "fedgp/table1", "fedgp", GP_TARGETS, 0.0),
          "Fashion-MNIST about 10 minutes beside fedcor/table1"),
    Entry("fedgp/fig2", MOST_OF_ALL, _GP_TABLE1, partial(_judge_curves, "fedgp"), "none beside fedgp/table1"),
    Entry("fedcor/table1", TABLE, {**_TABLE1, **_RELEASES},
          partial(_judge_table, "fedcor/table1", "fedcor", TARGETS, 1.0),
          "Fashion-MNIST about 45 minutes; CIFAR-10 days on a CPU"),
    Entry("fedcor/fig4", MOST_OF_ALL, _TABLE1, partial(_judge_curves, "fedcor"), "none beside fedcor/table1"),
)  # fmt: skip
