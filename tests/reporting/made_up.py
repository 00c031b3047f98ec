"""Runs that nobody ran, for pages: curves that rise, and cohorts drawn at random."""

from pathlib import Path

import numpy as np

import fedjax_sel
from fedjax_sel import tasks
from fedjax_sel.reporting.html import Chapter, Run
from fedjax_sel.runs.run_files import Result
from fedjax_sel.simulation.ledger import Ledger

CLIENTS, SELECTED, ROUNDS, SEEDS = 12, 3, 20, 10


def config(**changes):
    return fedjax_sel.preset("quickstart").replace(
        **{
            "rounds": ROUNDS, "num_clients": CLIENTS, "num_selected": SELECTED, "algo": "random", "seeds": SEEDS,
            "target_accuracy": 0.5, **changes,
        }
    )  # fmt: skip


def result(final=0.8, rounds=ROUNDS, seconds=None, **changes):
    """A run whose accuracy rises to `final`; the first half of its rounds waited for the compiler.

    With a clock, each round takes `seconds`.
    """
    of, rng = config(**changes), np.random.default_rng(round(1000 * final))
    shape = (len(of.run.seeds), rounds)
    rising = np.linspace(0.1, final, rounds) + 0.03 * rng.normal(size=shape)
    measured = dict.fromkeys(tasks.names(tasks.classification()), np.clip(rising, 0, 1))
    measured |= {"test_loss": 2.3 - rising, "gemd": np.abs(rng.normal(0.1, 0.1, shape))}
    measured |= {} if seconds is None else {"seconds": np.full(shape, seconds, np.float32)}
    cohorts = np.stack([[rng.permutation(CLIENTS)[:SELECTED] for _ in range(rounds)] for _ in range(shape[0])])
    ledger = Ledger(*[np.full(shape, 10**6, np.int64)] * len(Ledger._fields))
    steady = np.where(np.arange(rounds) < rounds // 2, np.nan, 0.5)
    return Result(
        of, "made up", of.run.seeds, measured, cohorts.astype(np.int32), ledger, np.linspace(9, 20, rounds),
        round_seconds=steady,
    )  # fmt: skip


def run(name, final, **changes):
    found = result(final, **{"algo": name.partition("[")[0], **changes})
    return Run(name, Path("runs") / "nowhere", found)


def chapter(runs, title="a setting", differs=""):
    return Chapter(title, differs, runs)


def chapters():
    """Two settings, with every kind of picture between them."""
    first = [run("random", 0.6), run("fedcor", 0.8), run("fl_dp3s", 0.75), run("oort", 0.65)]
    second = [run("random", 0.5, learning_rate=0.1), run("fl_dp3s", 0.55, learning_rate=0.1)]
    return [chapter(first), chapter(second, "another setting", "learning_rate 0.1, not 0.05")]
