"""How often slow and fast clients are selected."""

from typing import Any

import numpy as np

from fedjax_sel import Experiment, Result
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run

SLOWEST, FASTEST = "selections_of_slowest", "selections_of_fastest"


def of_result(result: Result) -> dict[str, Any]:
    """Return the share of the selections that go to the slowest class of devices, divided by its share of the clients.

    The same is returned for the fastest class, each with one value per seed: 1 if speed makes no difference.
    """
    federation = run.prepare(pose(Experiment(result.config))).federation
    assert federation.timing is not None  # all configurations have a clock
    seconds = np.asarray(federation.timing.seconds_per_example)  # [S, N]
    counts = np.stack([np.bincount(own[own >= 0], minlength=seconds.shape[1]) for own in result.cohorts])
    shares = counts / counts.sum(axis=1, keepdims=True)

    def relative(extreme: np.ndarray) -> list[float]:
        chosen = seconds == extreme
        return [float(f"{one:.6g}") for one in (shares * chosen).sum(axis=1) / chosen.mean(axis=1)]

    return {
        SLOWEST: relative(seconds.max(axis=1, keepdims=True)), FASTEST: relative(seconds.min(axis=1, keepdims=True))
    }  # fmt: skip
