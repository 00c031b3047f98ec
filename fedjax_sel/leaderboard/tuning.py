"""The same tuning for every strategy: random draws of its hyperparameters on seeds of their own, the best one measured.

Every strategy has the same number of draws from the ranges below, which were written down before any run. Draws that
would let a strategy buy other facts than its own (all gradients in every round, for `divfl`) are not in them.
"""

import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.leaderboard import measures, settings
from fedjax_sel.leaderboard.series import Setting as Held
from fedjax_sel.leaderboard.settings import ALGOS, Contender, Setting

DRAWS = 8
TUNING_SEEDS = (100, 101, 102)
DIGITS = 3


class Choice(NamedTuple):
    """One of several values; None: the parameter is not given."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Return one of the values, each with the same probability."""
        return self.values[int(rng.integers(len(self.values)))]

    def __str__(self) -> str:
        return " / ".join("usual" if value is None else str(value) for value in self.values)


class Uniform(NamedTuple):
    """A number between two."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Return a number, to three digits."""
        return _rounded(rng.uniform(self.low, self.high))

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


class LogUniform(NamedTuple):
    """A number between two, whose logarithm is uniform."""

    low: float
    high: float
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> float:
        """Return a number, to three digits, or a whole one."""
        value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return round(value) if self.whole else _rounded(value)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}, by its logarithm{', whole' if self.whole else ''}"


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


Range = Choice | Uniform | LogUniform

_GAUSSIAN: dict[str, Range] = {
    "warmup": LogUniform(5, 30, whole=True),
    "interval": LogUniform(5, 50, whole=True),
    "anneal": Uniform(0.5, 1.0),
    "discount": Uniform(0.7, 0.99),
    "dimension": LogUniform(10, 40, whole=True),
    "steps": LogUniform(30, 300, whole=True),
    "mean": Choice(("zero", "discounted")),
}
RANGES: dict[str, dict[str, Range]] = {
    "random": {"variant": Choice(("uniform-wor", "md", "weighted-wor"))},
    "fedgp": _GAUSSIAN,
    "fedcor": _GAUSSIAN,
    "gpfl": {
        "alpha": Choice(("linear", "const", "decay", "tent")),
        "rho": LogUniform(0.1, 10.0),
        "outcome": Choice(("corrected", "printed", "sign")),
        "direction": Choice(("previous", "current")),
        "softmax": Choice(("cohort", "all-with-stale")),
        "mean": Choice(("selections", "rounds")),
    },
    "fl_dp3s": {
        "profile": Choice(("fc1", "fc1-relu", "gradient", "representative-gradient")),
        "pool": Choice((None, 50, 25)),
    },
    "afl": {"alpha1": Uniform(0.0, 0.9), "alpha2": LogUniform(0.001, 1.0), "alpha3": Uniform(0.0, 0.5)},
    "pow_d": {
        "variant": Choice(("pow-d", "cpow-d", "rpow-d")),
        "num_candidates": LogUniform(6, 50, whole=True),
    },
    "fedsae": {
        "variant": Choice(("softmax", "greedy")),
        "temperature": LogUniform(0.001, 1.0),
        "active_rounds": Choice((None, 25, 50)),
    },
    "clustered": {
        "distance": Choice(("arccos", "l2", "l1")),
        "unseen": Choice(("group", "zero")),
        "linkage": Choice(("condensed", "square")),
    },
    "divfl": {
        "greedy": Choice(("exact", "stochastic")),
        "weights": Choice(("samples", "cluster-size")),
        "mixing": Uniform(0.0, 0.5),
    },
    "oort": {
        "exploration": Uniform(0.3, 1.0),
        "exploration_decay": Uniform(0.9, 0.999),
        "exploration_min": Uniform(0.0, 0.5),
        "cap": Uniform(0.8, 1.0),
        "cut": Uniform(0.5, 1.0),
        "explore_pool": Uniform(1.0, 10.0),
    },
}
"""Strategy -> parameter -> what it is drawn from."""


def draw(algo: str, number: int) -> dict[str, Any]:
    """Return the hyperparameters of a draw: a function of strategy and number alone.

    Args:
        algo: the strategy.
        number: of the draw, from 1.
    """
    rng = np.random.default_rng([zlib.crc32(algo.encode()), number])
    drawn = {name: one.draw(rng) for name, one in RANGES[algo].items()}
    return {name: value for name, value in drawn.items() if value is not None}


def row_of_draw(algo: str, number: int) -> str:
    """Return the name of a draw's row."""
    return f"{algo} draw={number}"


def draws(setting: Setting) -> dict[str, Config]:
    """Return the runs on which strategies are tuned, by row.

    Args:
        setting: what all share.
    """
    return {
        row_of_draw(algo, number): settings.configuration(setting, Contender(algo), **draw(algo, number)).replace(
            seeds=TUNING_SEEDS
        )
        for algo in ALGOS
        for number in range(1, DRAWS + 1)
    }


def accuracy(held: Held, algo: str) -> dict[int, float]:
    """Return the accuracy of each draw of a strategy that was run, mean of the last ten rounds over seeds.

    Args:
        held: of the draws.
        algo: the strategy.
    """
    rows = {number: held.rows.get(row_of_draw(algo, number)) for number in range(1, DRAWS + 1)}
    return {number: float(measures.last_rounds(one).mean()) for number, one in rows.items() if one is not None}


def best(held: Held, algo: str) -> int:
    """Return the number of a strategy's best draw; of equal ones the first.

    Args:
        held: of the draws.
        algo: the strategy.

    Raises:
        UserError: not all of its draws were run.
    """
    found = accuracy(held, algo)
    if len(found) < DRAWS:
        raise UserError(
            f"PART: {len(found)} of {DRAWS} draws of {algo} are there; run the part with the draws to its end first"
        )
    return max(found, key=lambda number: (found[number], -number))


def chosen(setting: Setting, held: Held) -> Mapping[str, Config]:
    """Return the runs of the best draws, on the leaderboard's seeds, by row.

    Args:
        setting: what all share.
        held: of the draws.

    Raises:
        UserError: not all draws were run.
    """
    return {algo: settings.configuration(setting, Contender(algo), **draw(algo, best(held, algo))) for algo in ALGOS}
