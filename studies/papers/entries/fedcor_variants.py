"""FedCor and FedGP: update interval of the process, and annealing coefficient."""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel import Config, Result, statistics
from fedjax_sel.strategies.fedcor_presets import look_up
from studies.papers import curves, tables, verdicts
from studies.papers.entries.fedcor import COLUMNS, about, accuracy, configuration, task_of
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

MARGIN = verdicts.ACCURACY_MARGIN  # fixed before the runs for these claims
MEASURES: dict[str, Callable[[Result], np.ndarray]] = {
    "ends": tables.last_accuracy,
    "has an accuracy over all rounds": tables.mean_accuracy,
}
_CLOSE = (
    'Accuracies are means of the last ten rounds (the end of a run) and of all rounds (its speed). "Hardly changes" '
    "concerns the paired difference from the main comparison's value. It is reproduced if the 95 % interval lies "
    f"within {MARGIN} of zero, and contradicted if it lies entirely outside. An interval that crosses the margin is "
    'inconclusive if it contains zero; else the difference is not shown to be smaller than the margin. "Above random '
    'selection" is an order, one claim per accuracy.'
)
_FREQUENCY = (
    "Reproduced if the standard deviation over clients of the selection counts is smaller with each coefficient than "
    "with the next larger one."
)
INTERVALS = BETAS = f"{_CLOSE} {verdicts.ORDER}"
FREQUENCY = f"{_FREQUENCY} {verdicts.ORDER}"
BOTH = f"{_FREQUENCY} {_CLOSE} {verdicts.ORDER}"


def _main(task: str) -> tuple[str, str]:
    """Return the row names of the main comparison's interval and coefficient."""
    numbers = look_up("fedcor", "paper", task)
    return f"interval={numbers.interval}", f"beta={numbers.anneal}"


def of_main_names(algo: str, column: str, what: str) -> str:
    """Translate a row's quantity from this module's names to the main comparison's names.

    Args:
        algo: "fedcor" or "fedgp", the paper of the page.
        column: setting of the row.
        what: quantity of the row.
    """
    main = _main(task_of(column))

    def named(match: re.Match[str]) -> str:
        return algo if match[0] in main else f"{algo} {match[0]}"

    return re.sub(r"\b(?:interval|beta)=\S+", named, what).replace(
        "has an accuracy over all rounds above", "has a higher accuracy over all rounds than"
    )


def _judge_close(results: Results, scale: Scale) -> Page:
    rows = _close_rows(results, scale)
    for column in dict.fromkeys(cell.column for cell in results):
        here = {cell: result for cell, result in results.items() if cell.column == column}
        for words, measure in MEASURES.items():
            rows += _above_random(here, column, scale, words, measure)
    return Page(rows, about(results), _pictures(results))


def _judge_frequency(results: Results, scale: Scale) -> Page:
    return Page(_frequency_rows(results, scale), about(results), _pictures(results))


def _judge_both(results: Results, scale: Scale) -> Page:
    close = _judge_close(results, scale)
    return close._replace(rows=[*_frequency_rows(results, scale), *close.rows])


def _close_rows(results: Results, scale: Scale) -> list[Row]:
    """Evaluate "it hardly matters": each variant against the main comparison's variant."""
    rows: list[Row] = []
    for cell, result in results.items():
        main = next((row for row in _main(task_of(cell.column)) if Cell(cell.column, row) in results), None)
        if main is None or cell.row in (main, "random"):
            continue
        for words, measure in MEASURES.items():
            ours, usual = measure(result), measure(results[Cell(cell.column, main)])
            low, high = map(float, statistics.mean_interval(ours - usual))
            verdict = (
                verdicts.of_closeness(low, high, len(ours), MARGIN) if scale.whole_rounds else verdicts.NOT_COMPARABLE
            )
            rows.append(
                Row(cell.column, f"{cell.row} {words} within {MARGIN} of {main}", "about the same",
                    f"{ours.mean():.3f} against {usual.mean():.3f}", len(ours),
                    tables.interval(float((ours - usual).mean()), low, high, 3), verdict)
            )  # fmt: skip
    return rows


def _above_random(
    results: Results, column: str, scale: Scale, words: str, measure: Callable[[Result], np.ndarray]
) -> list[Row]:
    """Evaluate "it still beats random", with the variants of a setting as a family."""
    random = results.get(Cell(column, "random"))
    others = {cell.row: measure(result) for cell, result in results.items() if cell.row != "random"}
    if random is None or not others:
        return []
    base = measure(random)
    found = statistics.compare(np.stack([ours - base for ours in others.values()]))
    return [
        Row(column, f"{name} {words} above random", "yes",
            f"{ours.mean():.3f} against {base.mean():.3f} (p = {one.p_family:.2g})", one.seeds,
            tables.interval(one.difference, one.low, one.high, 3),
            verdicts.of_order(one, scale.whole_rounds))
        for (name, ours), one in zip(others.items(), found)
    ]  # fmt: skip


def _frequency_rows(results: Results, scale: Scale) -> list[Row]:
    """Evaluate "a smaller coefficient is more uniform", each coefficient against the next larger one."""
    rows: list[Row] = []
    for column in dict.fromkeys(cell.column for cell in results):
        spread = {
            float(cell.row.removeprefix("beta=")): result.selection_counts.std(axis=1)
            for cell, result in results.items()
            if cell.column == column and cell.row != "random"
        }
        ordered = sorted(spread)
        if len(ordered) < 2:
            continue
        pairs = list(itertools.pairwise(ordered))
        found = statistics.compare(np.stack([spread[low] - spread[high] for low, high in pairs]), False)
        rows += [
            Row(column, f"selection counts vary less with beta={low} than with beta={high}", "yes (picture)",
                f"sd {spread[low].mean():.1f} against {spread[high].mean():.1f} (p = {one.p_family:.2g})", one.seeds,
                tables.interval(one.difference, one.low, one.high, 1),
                verdicts.of_order(one, scale.whole_rounds))
            for (low, high), one in zip(pairs, found)
        ]  # fmt: skip
    return rows


def _pictures(results: Results) -> dict[str, Any]:
    if not results:
        return {}
    return {"accuracy.png": accuracy(results), "frequency.png": curves.selection_frequency(results)}


_INTERVALS = {"fmnist": {10: 0.95, 20: 0.95, 500: 0.99}, "cifar10": {50: 0.97, 100: 0.97, 2000: 0.999}}
_BETAS = {"fmnist": (0.5, 0.75, 0.9, 0.95), "cifar10": (0.9, 0.95, 0.97, 0.99)}  # union of both papers' lists
_GP_BETAS = (0.5, 0.75, 0.95)


def _random(columns: Iterable[str]) -> dict[Cell, Config]:
    return {Cell(column, "random"): configuration(column, "random") for column in columns}


def _intervals(algo: str) -> dict[Cell, Config]:
    return {
        **_random(COLUMNS),
        **{
            Cell(column, f"interval={interval}"): configuration(column, algo, interval=interval, anneal=anneal)
            for column in COLUMNS
            for interval, anneal in _INTERVALS[task_of(column)].items()
        },
    }


def _of(runs: Mapping[Cell, Config], *starts: str) -> dict[Cell, Config]:
    return {cell: config for cell, config in runs.items() if cell.column.startswith(starts)}


_ANNEALED = {
    Cell(column, f"beta={beta}"): configuration(column, "fedcor", anneal=beta)
    for column in COLUMNS
    for beta in _BETAS[task_of(column)]
}
_FMNIST = tuple(column for column in COLUMNS if task_of(column) == "fmnist")
_GP_ANNEALED = {
    Cell(column, f"beta={beta}"): configuration(column, "fedgp", anneal=beta)
    for column in _FMNIST
    for beta in _GP_BETAS
}
_FIG8 = {**_random(COLUMNS), **_ANNEALED}

ENTRIES = (
    Entry("fedgp/fig3", INTERVALS, _intervals("fedgp"), _judge_close,
          "Fashion-MNIST about 20 minutes beside fedgp/table1; CIFAR-10 days on a CPU"),
    Entry("fedgp/fig5", BETAS, {**_random(_FMNIST), **_GP_ANNEALED}, _judge_close,
          "about 20 minutes beside fedgp/table1"),
    Entry("fedgp/fig6", FREQUENCY, _GP_ANNEALED, _judge_frequency, "none beside fedgp/fig5"),
    Entry("fedcor/fig5", INTERVALS, _intervals("fedcor"), _judge_close,
          "Fashion-MNIST about 20 minutes beside fedcor/table1; CIFAR-10 days on a CPU"),
    Entry("fedcor/fig6", BOTH, _of(_FIG8, "fmnist-2spc", "cifar10-2spc"), _judge_both, "none beside fedcor/fig8"),
    Entry("fedcor/fig8", BETAS, _FIG8, _judge_close,
          "Fashion-MNIST about 30 minutes beside fedcor/table1; CIFAR-10 days on a CPU"),
    Entry("fedcor/fig10", FREQUENCY, _of(_ANNEALED, "fmnist"), _judge_frequency, "none beside fedcor/fig8"),
    Entry("fedcor/fig11", FREQUENCY, _of(_ANNEALED, "cifar10"), _judge_frequency, "none beside fedcor/fig8"),
)  # fmt: skip
