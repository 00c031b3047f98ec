"""How often slow and fast clients are selected."""

import functools
from typing import Any

import numpy as np

from fedjax_sel import Config, Experiment, Result
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run

SLOWEST, FASTEST = "selections_of_slowest", "selections_of_fastest"


def of_result(result: Result) -> dict[str, Any]:
    """Return the share of the selections that go to the slowest class of devices, divided by its share of the clients.

    The same is returned for the fastest class, each with one value per seed: 1 if speed makes no difference.
    """
    usual = Config()
    modes = ("algo_args", "concurrency", "deadline", "over_select", "late_reports", "staleness", "eval_every")
    world = result.config.replace(
        **{name: usual.flat()[name] for name in (*modes, "max_seconds", "server_learning_rate", "out")},
        num_selected=1, rounds=1, chunk=1, algo="random",
    )  # fmt: skip
    seconds = _seconds_per_example(world)
    counts = np.stack([np.bincount(own[own >= 0], minlength=seconds.shape[1]) for own in result.cohorts])
    shares = counts / counts.sum(axis=1, keepdims=True)

    def relative(extreme: np.ndarray) -> list[float]:
        chosen = seconds == extreme
        return [float(f"{one:.6g}") for one in (shares * chosen).sum(axis=1) / chosen.mean(axis=1)]

    return {
        SLOWEST: relative(seconds.max(axis=1, keepdims=True)), FASTEST: relative(seconds.min(axis=1, keepdims=True))
    }  # fmt: skip


@functools.cache
def _seconds_per_example(world: Config) -> np.ndarray:
    """Return the speed of each client, [S, N]; rows of a world share it."""
    federation = run.prepare(pose(Experiment(world))).federation
    assert federation.timing is not None  # all configurations have a clock
    return np.asarray(federation.timing.seconds_per_example)
