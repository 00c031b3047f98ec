"""GPFL Fig. 1: descent with momentum against plain gradient descent, on an ill-conditioned quadratic."""

from typing import Any

import numpy as np

from fedjax_sel.reproduction import verdicts
from fedjax_sel.reproduction.entry import Entry, Results, Scale
from fedjax_sel.reproduction.page import Page, Row

CONDITION, START, NEAR, MOST_STEPS = 100.0, (1.0, 1.0), 1e-3, 10_000
PAPERS_MOMENTUM = 0.1
RULE = (
    f"f(x, y) = (x^2 + {CONDITION:g} y^2) / 2 from (1, 1), counted until the distance to the optimum is {NEAR:g} of "
    "that of the start; the oscillation is the length of the way in the steep coordinate y. Reproduced if momentum "
    "takes fewer steps, and if its oscillation is less: once with the step size and momentum that are best for this f "
    "against the step size that is best without, once with the paper's momentum of 0.1 and that step size. There is "
    "no randomness."
)


def descend(rate: float, momentum: float) -> np.ndarray:
    """Return the points of heavy-ball descent until it is near the optimum, [steps + 1, 2].

    Args:
        rate: step size.
        momentum: factor of the previous direction (Eq. 1-2).
    """
    point, direction = np.array(START), np.zeros(2)
    path = [point]
    while np.linalg.norm(point) > NEAR * np.linalg.norm(START) and len(path) <= MOST_STEPS:
        direction = momentum * direction + np.array([1.0, CONDITION]) * point
        point = point - rate * direction
        path.append(point)
    return np.array(path)


def steps(path: np.ndarray) -> float:
    """Return how many steps a path has.

    Args:
        path: [steps + 1, 2].
    """
    return len(path) - 1


def oscillation(path: np.ndarray) -> float:
    """Return the length of the way in the steep coordinate.

    Args:
        path: [steps + 1, 2].
    """
    return float(np.abs(np.diff(path[:, 1])).sum())


def _paths() -> dict[str, np.ndarray]:
    rate, root = 2 / (1 + CONDITION), np.sqrt(CONDITION)
    return {
        "plain": descend(rate, 0.0),
        "best momentum": descend(4 / (root + 1) ** 2, ((root - 1) / (root + 1)) ** 2),
        f"momentum {PAPERS_MOMENTUM}": descend(rate, PAPERS_MOMENTUM),
    }


def _judge(results: Results, scale: Scale) -> Page:
    plain, *others = _paths().items()
    rows = []
    for name, path in others:
        for what, count in (("fewer steps", steps), ("less oscillation", oscillation)):
            ours, usual = count(path), count(plain[1])
            verdict = verdicts.REPRODUCED if ours < usual else verdicts.CONTRADICTED
            rows.append(Row("a quadratic", f"{name}: {what} than plain descent", "yes (drawing)",
                            f"{ours:.4g} against {usual:.4g}", 0, "", verdict))  # fmt: skip
    return Page(rows, (), {"descent.png": _figure()})


def _figure() -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axis = figure.subplots()
    for name, path in _paths().items():
        axis.plot(*path.T, ".-", markersize=3, linewidth=0.8, label=name)
    axis.set_xlabel("flat coordinate x")
    axis.set_ylabel("steep coordinate y")
    axis.legend(frameon=False)
    return figure


ENTRIES = (Entry("gpfl/fig1", RULE, {}, _judge, "seconds"),)
