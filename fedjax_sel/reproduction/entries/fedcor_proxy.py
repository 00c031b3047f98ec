"""FedCor, appendix B: the proxy strategy converges at the rate O(1/t) on smooth, strongly convex clients."""

from typing import Any

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.reporting.styles import styles_of
from fedjax_sel.reproduction import tables, verdicts
from fedjax_sel.reproduction.entry import Entry, Results, Scale
from fedjax_sel.reproduction.page import Page, Row

PROBLEMS, CLIENTS, SELECTED, DIMENSION, ROUNDS, LOCAL_STEPS, SAMPLES, EVERY = 10, 20, 4, 5, 4000, 3, 100, 10
FALLS, STANDS = -0.8, -0.2  # slopes: by this one it falls nearly like 1/t, by that one it hardly does
RULE = (
    f"{PROBLEMS} federations of {CLIENTS} quadratics; each round trains the {SELECTED} clients with the largest "
    f"covariance with the global loss, estimated every {EVERY} rounds from the changes that {SAMPLES} random cohorts "
    f"cause, for {LOCAL_STEPS} steps of size 2 / (mu (t + 8 L / mu)). The number is the slope of log |w - w*|^2 over "
    "log t in the last tenfold of the rounds: 1/t is a slope of -1. Reproduced if the 95 % interval of the mean slope "
    f"lies below {FALLS:g}, contradicted if it lies above {STANDS:g} (it stands still)."
)


def distances(rng: np.random.Generator, at_random: bool = False) -> np.ndarray:
    """Return |w^t - w*|^2 after every round, [T].

    Args:
        rng: of the problem and its random cohorts.
        at_random: whether cohorts are random in place of the proxy's.
    """
    curvature = np.stack([_curvature(rng) for _ in range(CLIENTS)])  # [N, D, D]
    centre = rng.normal(size=(CLIENTS, DIMENSION))
    optimum = np.linalg.solve(curvature.sum(axis=0), np.einsum("nij,nj->i", curvature, centre))
    eigenvalues = np.linalg.eigvalsh(curvature)
    mu, smooth = float(eigenvalues.min()), float(eigenvalues.max())

    def losses(points: np.ndarray) -> np.ndarray:  # [M, D] -> [M, N]
        apart = points[:, None] - centre
        return 0.5 * np.einsum("mni,nij,mnj->mn", apart, curvature, apart)

    point, found, cohort = rng.normal(size=DIMENSION) * 3, [], np.arange(SELECTED)
    for t in range(ROUNDS):
        rate = 2 / (mu * (t + 8 * smooth / mu))
        trained = np.tile(point, (CLIENTS, 1))
        for _ in range(LOCAL_STEPS):
            trained -= rate * np.einsum("nij,nj->ni", curvature, trained - centre)
        if at_random:
            cohort = rng.choice(CLIENTS, SELECTED, replace=False)
        elif t % EVERY == 0:
            tried = rng.permuted(np.tile(np.arange(CLIENTS), (SAMPLES, 1)), axis=1)[:, :SELECTED]
            changes = losses(trained[tried].mean(axis=1)) - losses(point[None])
            cohort = np.argsort(-np.cov(changes.T).mean(axis=0))[:SELECTED]  # Eq. 59-63, p uniform
        point = trained[cohort].mean(axis=0)
        found.append(float(((point - optimum) ** 2).sum()))
    return np.array(found)


def _curvature(rng: np.random.Generator) -> np.ndarray:
    rotation, _ = np.linalg.qr(rng.normal(size=(DIMENSION, DIMENSION)))
    return rotation @ np.diag(rng.uniform(0.5, 2.0, DIMENSION)) @ rotation.T


def slope(squares: np.ndarray) -> float:
    """Return the slope of the logarithm over that of the round, in the last tenfold of the rounds.

    Args:
        squares: |w^t - w*|^2, [T].
    """
    rounds = np.arange(1, len(squares) + 1)
    last = rounds >= len(squares) / 10
    return float(np.polyfit(np.log(rounds[last]), np.log(squares[last]), 1)[0])


def _judge(results: Results, scale: Scale) -> Page:
    squares = {
        name: np.stack([distances(np.random.default_rng(number), name == "random") for number in range(PROBLEMS)])
        for name in ("proxy", "random")
    }
    slopes = {name: np.array([slope(one) for one in values]) for name, values in squares.items()}
    low, high = map(float, statistics.mean_interval(slopes["proxy"]))
    verdict = verdicts.of_bound(low, high, PROBLEMS, FALLS, above=False, other=STANDS)
    words = f"{tables.mean_and_sd(slopes['proxy'], 2)} ({low:.2f} to {high:.2f})"
    rows = [
        Row(f"{PROBLEMS} problems", "slope of log |w - w*|^2 over log t with the proxy", "at most -1", words, PROBLEMS,
            "", verdict),
        Row(f"{PROBLEMS} problems", "the same with random cohorts", "", tables.mean_and_sd(slopes["random"], 2),
            PROBLEMS, "", ""),
        *(Row(f"{PROBLEMS} problems", f"median |w - w*|^2 in the end: {name}", "", f"{np.median(values[:, -1]):.2g}",
              PROBLEMS, "", "") for name, values in squares.items()),
    ]  # fmt: skip
    return Page(rows, (), {"convergence.png": _figure(squares)})


def _figure(squares: dict[str, np.ndarray]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axis = figure.subplots()
    rounds, styles = np.arange(1, ROUNDS + 1), styles_of(squares)
    for name, values in squares.items():
        axis.loglog(rounds, np.median(values, axis=0), color=styles[name].color, label=f"{name} (median)")
    axis.loglog(rounds, np.median(squares["random"][:, 0]) / rounds, "k:", label="1 / t")
    axis.set_xlabel("round t")
    axis.set_ylabel("|w - w*|^2")
    axis.legend(frameon=False)
    return figure


ENTRIES = (Entry("fedcor/appendix_b", RULE, {}, _judge, "half a minute"),)
