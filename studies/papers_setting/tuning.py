"""Equal hyperparameter tuning for all strategies: random search on separate seeds, then a run of the best draw.

Each strategy has the same number of distinct draws from the ranges below, plus its default settings. The ranges were
fixed before any run. Random selection has no draws, because its variants are other strategies.

Some draws change which facts a strategy requests: the schedule of `fedcor` and `fedgp`, the active rounds of `fedsae`,
the candidates of `pow_d` and `ocs`, and the profile of `fl_dp3s`. No draw of `divfl` requests gradients of all clients.
All communication is billed.
"""

import math
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import Config, UserError, strategies
from studies.boards import measures
from studies.boards.grid import Contender
from studies.boards.series import Setting as Held
from studies.papers_setting import settings
from studies.papers_setting.settings import Setting

DRAWS = 8
USUAL = 0  # draw number of the default settings
TUNING_SEEDS = (100, 101, 102)
DIGITS = 3
_TRIES = 1000


class Choice(NamedTuple):
    """Uniform choice among several values; None: the parameter keeps its default."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw one of the values."""
        return self.values[int(rng.integers(len(self.values)))]

    def __str__(self) -> str:
        return " / ".join("usual" if value is None else str(value) for value in self.values)


class Uniform(NamedTuple):
    """Uniform distribution on an interval."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number, rounded to three digits."""
        return _rounded(rng.uniform(self.low, self.high))

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


class LogUniform(NamedTuple):
    """Log-uniform distribution on an interval."""

    low: float
    high: float
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number, rounded to three digits or to an integer."""
        value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return round(value) if self.whole else _rounded(value)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}, by its logarithm{', whole' if self.whole else ''}"


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


Range = Choice | Uniform | LogUniform
Ranges = dict[str, Range]

_GAUSSIAN: Ranges = {
    "warmup": LogUniform(5, 30, whole=True),
    "interval": LogUniform(5, 50, whole=True),
    "anneal": Uniform(0.5, 1.0),
    "discount": Uniform(0.7, 0.99),
    "dimension": LogUniform(10, 40, whole=True),
    "steps": LogUniform(30, 300, whole=True),
}
_ACTIVE: Ranges = {"active_rounds": Choice((None, 25, 50))}
_LINKAGE: Ranges = {"linkage": Choice(("condensed", "square"))}
_GREEDY: Ranges = {"greedy": Choice(("exact", "stochastic")), "weights": Choice(("samples", "cluster-size"))}
FIXED: dict[str, dict[str, Any]] = {"gpfl": {"scale": "update"}}  # the default at the time of the runs
RANGES: dict[str, tuple[Ranges, ...]] = {
    "random": (),
    "fedgp": (_GAUSSIAN,),
    "fedcor": (_GAUSSIAN,),
    "gpfl": (
        {
            "alpha": Choice(("linear", "const", "decay", "tent")),
            "rho": LogUniform(0.1, 10.0),
            "outcome": Choice(("corrected", "printed", "sign")),
            "direction": Choice(("previous", "current")),
            "softmax": Choice(("cohort", "all-with-stale")),
            "mean": Choice(("selections", "rounds")),
        },
    ),
    "fl_dp3s": (
        {
            "profile": Choice(("fc1", "fc1-relu", "gradient", "representative-gradient")),
            "pool": Choice((None, 50, 25)),
        },
    ),
    "afl": ({"alpha1": Uniform(0.0, 0.9), "alpha2": LogUniform(0.001, 1.0), "alpha3": Uniform(0.0, 0.5)},),
    "pow_d": (
        {
            "variant": Choice(("pow-d", "cpow-d", "rpow-d")),
            "num_candidates": LogUniform(6, 50, whole=True),
        },
    ),
    "fedsae": (
        {"variant": Choice(("softmax",)), "temperature": LogUniform(0.001, 1.0), **_ACTIVE},
        {"variant": Choice(("greedy",)), **_ACTIVE},
    ),
    "clustered": (
        {"distance": Choice(("arccos",)), "unseen": Choice(("group", "zero")), **_LINKAGE},
        {"distance": Choice(("l2", "l1")), **_LINKAGE},
        {"variant": Choice(("size",))},
    ),
    "divfl": (_GREEDY, {**_GREEDY, "mixing": Uniform(0.0, 0.5)}),
    "oort": (
        {
            "exploration": Uniform(0.3, 1.0),
            "exploration_decay": Uniform(0.9, 0.999),
            "exploration_min": Uniform(0.0, 0.3),
            "cap": Uniform(0.8, 1.0),
            "cut": Uniform(0.5, 1.0),
            "explore_pool": Uniform(1.0, 10.0),
        },
    ),
    "hics_fl": (
        {
            "temperature": LogUniform(0.0005, 1.0),
            "entropy_weight": LogUniform(1.0, 100.0),
            "gamma": LogUniform(0.5, 20.0),
            **_LINKAGE,
        },
    ),
    "fedlecc": ({"num_clusters": Choice((5, None, 20, 50)), "clusters_per_round": Choice((None, 1, 2, 3, 5))},),
    "fed_cbs": ({"exploration": LogUniform(0.01, 1000.0)},),
    "greedyfed": ({"memory": Uniform(0.0, 0.95), "truncation": LogUniform(1e-5, 0.01)},),
    "e3cs": (
        {"quota": Uniform(0.05, 1.0), "quota_start": Choice((0.0, 0.25, 0.5)), "learning_rate": LogUniform(0.05, 5.0)},
    ),
    "cyclic": ({"num_groups": LogUniform(2, 20, whole=True)},),
    "ocs": ({"num_candidates": LogUniform(10, 80, whole=True)},),
    "kvib": ({"theta": Uniform(0.05, 1.0), "law": Choice(("root", "linear"))},),
    "osmd": ({"alpha": Uniform(0.05, 0.95)},),
    "delta": ({"score": Choice(("share-diversity",))},),  # its only parameter has two values
}
"""Search space by strategy: equally probable alternatives, each a mapping from parameter to distribution. An
alternative omits parameters that have no effect given its other values."""


@cache
def drawn(algo: str) -> tuple[Mapping[str, Any], ...]:
    """Return the distinct draws of a strategy, without its default settings.

    Args:
        algo: the strategy.

    Returns:
        The non-default hyperparameters of `DRAWS` draws; () for a strategy without ranges.
    """
    rng = np.random.default_rng(zlib.crc32(algo.encode()))
    usual = {name: parameter.default for name, parameter in strategies.parameters(algo).items()}
    found: list[Mapping[str, Any]] = []
    for _ in range(_TRIES if RANGES[algo] else 0):
        alternative = RANGES[algo][int(rng.integers(len(RANGES[algo])))]
        one = {name: value for name, given in alternative.items() if (value := given.draw(rng)) != usual[name]}
        if one and one not in found:
            found.append(one)
        if len(found) == DRAWS:
            break
    return tuple(found)


def arguments(algo: str, number: int) -> dict[str, Any]:
    """Return the hyperparameters of a draw.

    Args:
        algo: the strategy.
        number: number of the draw, from 1; 0: the default settings.
    """
    return {**FIXED.get(algo, {}), **({} if number == USUAL else drawn(algo)[number - 1])}


def numbers(algo: str) -> range:
    """Return the numbers of a strategy's draws, including the default settings; empty without draws."""
    return range(len(drawn(algo)) + 1) if drawn(algo) else range(0)


def row_of_draw(algo: str, number: int) -> str:
    """Return the row name of a draw."""
    return f"{algo} usual" if number == USUAL else f"{algo} draw={number}"


def draws(setting: Setting) -> dict[str, Config]:
    """Return the tuning runs of all strategies, by row.

    Args:
        setting: the setting.
    """
    return {
        row_of_draw(algo, number): settings.configuration(setting, Contender(algo), **arguments(algo, number)).replace(
            seeds=TUNING_SEEDS
        )
        for algo in RANGES
        for number in numbers(algo)
    }


def accuracy(held: Held, algo: str) -> dict[int, float]:
    """Return the accuracy of each finished draw of a strategy, averaged over seeds and the last ten rounds.

    Args:
        held: results of the draws.
        algo: the strategy.
    """
    rows = {number: held.rows.get(row_of_draw(algo, number)) for number in numbers(algo)}
    return {number: float(measures.last_rounds(one).mean()) for number, one in rows.items() if one is not None}


def best(held: Held, algo: str) -> int | None:
    """Return the number of a strategy's best draw; ties go to the lowest number. None if all draws diverged.

    A diverged draw (non-finite numbers) counts as finished but is never the best.

    Args:
        held: results of the draws.
        algo: the strategy.

    Raises:
        UserError: a draw is missing, or was run with other hyperparameters.
    """
    if not numbers(algo):
        return USUAL
    tried = accuracy(held, algo)
    found = {number: value for number, value in tried.items() if math.isfinite(value)}
    failed = [number for number in numbers(algo) if row_of_draw(algo, number) in held.about.get("failed_for_good", ())]
    if len(tried) + len(failed) < len(numbers(algo)):
        raise UserError(
            f"PART: {len(tried)} of {len(numbers(algo))} draws of {algo} are there; run the part with the draws to its "
            "end first"
        )
    for number in tried:
        if held.about["rows"][row_of_draw(algo, number)]["algo_args"] != arguments(algo, number):
            raise UserError(
                f"PART: {row_of_draw(algo, number)} was run with other hyperparameters than this version draws; remove "
                "the folder of the draws, and run its part again"
            )
    return max(found, key=lambda number: (found[number], -number), default=None)


def chosen(setting: Setting, held: Held) -> Mapping[str, Config]:
    """Return the runs of the best draws on the main tables' seeds, by row.

    Strategies whose draws all failed, or were not run yet while those of others were, have no row.

    Args:
        setting: the setting.
        held: results of the draws.

    Raises:
        UserError: a draw is missing.
    """
    begun = {algo for algo in RANGES if any(row_of_draw(algo, number) in held.rows for number in numbers(algo))}
    found = {algo: best(held, algo) for algo in RANGES if algo in begun or not numbers(algo) or not begun}
    return {
        algo: settings.configuration(setting, Contender(algo), **arguments(algo, number))
        for algo, number in found.items()
        if number is not None
    }
