"""FedCor and FedGP: rounds to a target, and the curves of the same runs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.papers import preset, published
from fedjax_sel.papers.fedcor import TARGETS
from fedjax_sel.papers.published import Numbers
from fedjax_sel.reproduction import curves, tables, verdicts
from fedjax_sel.reproduction.entry import Cell, Entry, Results, Scale
from fedjax_sel.reproduction.page import Page
from fedjax_sel.strategies.fedcor import presets

PAPER_SEEDS = 5
SEEDS = 10  # five cannot tell three orders from chance
BASELINES = ("random", "afl", "pow_d")
ROUNDED = 0.05  # by which a number with one decimal may be off
COLUMNS = ("fmnist-2spc", "fmnist-1spc", "fmnist-dir", "cifar10-2spc", "cifar10-1spc", "cifar10-dir")
GP_TARGETS = {**TARGETS, "cifar10-dir": 0.53}
CURVES = f"The orders are those of the mean test accuracy of the last ten rounds, and of all rounds. {verdicts.ORDER}"


def task_of(column: str) -> str:
    """Return which numbers of the strategies go with a setting."""
    return "cifar10" if column.startswith("cifar10") else "fmnist"


def configuration(column: str, algo: str, **numbers: Any) -> Config:
    """Return the run of a strategy under a setting.

    Args:
        column: the setting.
        algo: the strategy.
        **numbers: of FedCor or FedGP; those that are the preset's are left out, so that equal runs share a folder.
    """
    config = preset(f"fedcor/{column}").replace(algo=algo, seeds=SEEDS)
    if algo not in ("fedcor", "fedgp"):
        return config
    usual = presets.look_up(algo, "fedgp" if algo == "fedgp" else "paper", task_of(column))._asdict()
    others = {name: value for name, value in numbers.items() if usual.get(name) != value}
    return config.replace(algo_args={"task": task_of(column), **others})


_ROUNDS = dict.fromkeys(configuration(column, "random").run.rounds for column in COLUMNS)
TABLE = (
    f"Means are compared by Welch's interval. {verdicts.NUMBERS} {tables.ARRIVAL} An N/A agrees if some seed here does "
    "not reach the target either, in all of the entry's rounds, and is inconclusive if all "
    f"do. {tables.restriction(*_ROUNDS)} How much faster than power-of-choice the text says that it is, a range over "
    "the settings, agrees in a setting if the whole 95 % interval of the ratio of the mean rounds, with all rounds for "
    "who does not arrive, lies within the range, differs if it lies outside, and is inconclusive otherwise (added "
    "after the first runs; at first an overlap agreed). The orders are those of rounds to the target, "
    "the paper's own strategy before each of its baselines, where a seed that does not arrive counts all rounds. "
    f"{verdicts.ORDER}"
)
MOST_OF_ALL = (
    f'{CURVES} How smooth the curves are, the loss, and "most of all under 1SPC" are not judged: the pictures show '
    "them."
)


def accuracy(results: Results) -> Any:
    """Draw the test accuracy over the rounds."""
    return curves.by_round(results, lambda result: result.measured[result.test_measure], "test accuracy")


def about(results: Results) -> list[str]:
    """Return how much of the runs' time was compilation, where the speed of all of them is known."""
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
    """Return the upper end of a range that a text gives, or the table's own where that does not bear it out.

    The ratio of means is power-of-choice's rounds over the winner's; FedGP's 2.3 is AFL's.
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
