"""FedCor Fig. 3 and 9: change of the loss changes' covariance between successive updates of the process."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import Config, Result
from fedjax_sel.strategies.fedcor_presets import look_up
from studies.papers import loss_changes, normality, published, verdicts
from studies.papers.entries.fedcor import COLUMNS, configuration, task_of
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

SEEDS = 5
NON_IID = ("fmnist-2spc", "cifar10-2spc")  # "Non-IID FL [23]"
ABOUT = (
    f"In a run with random selection, {loss_changes.COHORTS} new random cohorts are drawn at every interval of "
    "FedCor. The covariance of the clients' loss changes is compared with the next interval's by the cosine of Eq. "
    "151, with the missing square root."
)
THROUGHOUT = (
    f"{ABOUT} The paper's bound for the whole training agrees if no pair of any seed lies below it, and differs "
    "otherwise."
)
MOSTLY = (
    f'{ABOUT} "More than 0.9 in most cases" concerns the share of pairs above 0.9 in each seed. The number is the '
    "mean share over seeds, with Student's 95 % interval. It agrees if the interval lies above one half, differs if "
    "it lies below, and is inconclusive if it contains one half. The first rule compared the share itself with one "
    "half. The second, under which two labels agreed, treated all pairs as independent, but pairs of one seed "
    "resemble each other."
)


class Similarities(NamedTuple):
    """Similarities of adjacent covariances in one run, float64 [seeds, pairs]."""

    rounds: tuple[int, ...]  # round of the first covariance in each pair
    cosines: np.ndarray
    printed: np.ndarray  # Eq. 151 as printed
    halves: np.ndarray  # cosine between two halves of the first covariance's samples: the effect of sampling alone


def similarities(changes: Mapping[int, np.ndarray], interval: int) -> Similarities:
    """Compare the covariances of rounds that are one interval apart.

    Args:
        changes: loss changes by round, [seeds, cohorts, N].
        interval: interval between the two covariances, rounds.
    """
    every = {round: [normality.covariance(one) for one in seeds] for round, seeds in changes.items()}
    pairs = [(one, other) for one, other in itertools.pairwise(sorted(every)) if other - one == interval]
    cosines = [[normality.cosine(*both) for both in zip(every[one], every[other])] for one, other in pairs]
    printed = [[_printed(*both) for both in zip(every[one], every[other])] for one, other in pairs]
    halves = [[_halves(seed) for seed in changes[one]] for one, _ in pairs]
    rounds = tuple(one for one, _ in pairs)
    return Similarities(rounds, *(np.array(values, np.float64).T for values in (cosines, printed, halves)))


def _printed(one: np.ndarray, other: np.ndarray) -> float:
    return float((one * other).sum() / ((one * one).sum() * (other * other).sum()))


def _halves(samples: np.ndarray) -> float:
    middle = len(samples) // 2
    return normality.cosine(*(normality.covariance(half) for half in (samples[:middle], samples[middle:])))


def _found(results: Results, scale: Scale) -> dict[str, Similarities]:
    """Return the similarities by setting."""
    found = {}
    for cell, result in results.items():
        every = result.config.run.checkpoint_every
        assert every is not None, "these runs keep their states on the way"
        one = similarities(loss_changes.read(result, scale), every)
        if one.rounds:
            found[cell.column] = one
    return found


def _complete(found: Similarities, result: Result) -> bool:
    """Return whether all pairs of a run are measured."""
    return len(found.rounds) == len(loss_changes.rounds_of(result.config)) - 1


def _judge_throughout(results: Results, scale: Scale) -> Page:
    numbers = published.get("fedcor/fig3").numbers
    found, rows = _found(results, scale), []
    for column, one in found.items():
        value = numbers[0].cell(task_of(column), "similarity")
        assert value is not None
        least = float(one.cosines.min())
        verdict = verdicts.AGREES if least > value.value else verdicts.DIFFERS
        words = f"least {least:.3f}, median {np.median(one.cosines):.3f}; {_share(one, value.value)} of the pairs above"
        rows.append(_row(column, one, "cosine of adjacent covariances", f"above {value.value:g}", words,
                         _comparable(verdict, one, results, column, scale)))  # fmt: skip
        rows += _beside(column, one)
    return _page(rows, found, results)


def _judge_mostly(results: Results, scale: Scale) -> Page:
    numbers = published.get("fedcor/fig9").numbers
    value = numbers[0].cell("fmnist and cifar10", "similarity")
    assert value is not None
    found, rows = _found(results, scale), []
    for column, one in found.items():
        low, high, verdict = verdicts.of_share((one.cosines > value.value).mean(axis=1), 0.5)
        share = f"{_share(one, value.value)} ({100 * low:.0f} to {100 * high:.0f} %)"
        words = f"{share}; median {np.median(one.cosines):.3f}, least {one.cosines.min():.3f}"
        rows.append(_row(column, one, f"share of pairs with a cosine above {value.value:g}", "most", words,
                         _comparable(verdict, one, results, column, scale)))  # fmt: skip
        rows += _beside(column, one)
    return _page(rows, found, results)


def _comparable(verdict: str, one: Similarities, results: Results, column: str, scale: Scale) -> str:
    [result] = [result for cell, result in results.items() if cell.column == column]
    return verdict if scale.whole_rounds and _complete(one, result) else verdicts.NOT_COMPARABLE


def _share(one: Similarities, bound: float) -> str:
    return f"{100 * (one.cosines > bound).mean():.0f} % of {one.cosines.size}"


def _beside(column: str, one: Similarities) -> list[Row]:
    printed = f"{one.printed.min():.2g} to {one.printed.max():.2g}"
    halves = f"least {one.halves.min():.3f}, median {np.median(one.halves):.3f}"
    return [
        _row(column, one, "the same of two halves of a round's cohorts", "", halves, ""),
        _row(column, one, "Eq. 151 as printed", "", printed, ""),
    ]


def _row(column: str, one: Similarities, what: str, paper: str, ours: str, verdict: str) -> Row:
    return Row(column, what, paper, ours, len(one.cosines), "", verdict)


def _page(rows: list[Row], found: Mapping[str, Similarities], results: Results) -> Page:
    if not found:
        return Page(rows)
    seeds = {cell.column: result.seeds for cell, result in results.items()}
    lines = ["setting,seed,round,cosine,as_printed,halves"]
    lines += [
        f"{column},{seed},{round},{one.cosines[number, place]:.6g},{one.printed[number, place]:.6g},"
        f"{one.halves[number, place]:.6g}"
        for column, one in found.items()
        for number, seed in enumerate(seeds[column])
        for place, round in enumerate(one.rounds)
    ]
    note = (
        "Two halves of one round's cohorts differ by chance alone, with half the samples. No covariance that is "
        "estimated so can be much closer to another."
    )
    return Page(rows, [note], {"cosines.png": _figure(found)}, {"cosines.csv": "\n".join(lines) + "\n"})


def _figure(found: Mapping[str, Similarities]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(found), 3.8), layout="constrained")
    for axis, (column, one) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items()):
        axis.plot(one.rounds, one.cosines.T, color="#0072B2", linewidth=1.2)
        axis.plot(one.rounds, one.halves.T, color="#999999", linewidth=0.8, linestyle=":")
        axis.set_ylim(top=1.0)
        axis.set_title(column)
        axis.set_xlabel("round")
        axis.set_ylabel("cosine with the next one")
        axis.grid(alpha=0.25)
    return figure


def _run(column: str) -> Config:
    interval = look_up("fedcor", "paper", task_of(column)).interval
    config = configuration(column, "random")
    kept = config.run.rounds // interval + 1
    return config.replace(seeds=SEEDS, chunk=interval, checkpoint_every=interval, keep=kept)


_RUNS = {Cell(column, "random"): _run(column) for column in COLUMNS}

ENTRIES = (
    Entry("fedcor/fig3", THROUGHOUT, {cell: run for cell, run in _RUNS.items() if cell.column in NON_IID},
          _judge_throughout, "none beside fedcor/fig9", loss_changes.MEASURE),
    Entry("fedcor/fig9", MOSTLY, _RUNS, _judge_mostly,
          "Fashion-MNIST 25 minutes a column; CIFAR-10 days on a CPU", loss_changes.MEASURE),
)  # fmt: skip
