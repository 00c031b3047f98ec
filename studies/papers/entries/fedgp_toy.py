"""FedGP Fig. 1: sequential selection of three of thirty clients with correlated neighbors."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.numerics import gaussian_process as gp
from studies.papers import verdicts
from studies.papers.entry import Entry, Results, Scale
from studies.papers.page import Page, Row

NUM_CLIENTS, NUM_SELECTED, WIDTH = 30, 3, 25.0


def _judge(results: Results, scale: Scale) -> Page:
    places = np.arange(NUM_CLIENTS)
    covariance = np.exp(-((places[:, None] - places) ** 2) / WIDTH)  # Sigma(i, j)
    with enable_x64(True):
        steps = _steps(covariance)
    picks = [pick for pick, *_ in steps]
    thirds = sorted(pick * 3 // NUM_CLIENTS for pick in picks)
    scores = ", ".join(f"{score:.4f}" for *_, score in steps)
    mean = [float(after.mean()) for _, _, _, after, _, _ in steps]
    falling = all(later < earlier for earlier, later in zip([0.0, *mean], mean))
    rows = [
        Row("30 clients", "the picks lie apart: one in each third", "yes (picture)", f"clients {picks}", 0, "",
            verdicts.REPRODUCED if thirds == [0, 1, 2] else verdicts.NOT_REPRODUCED),
        Row("30 clients", "each pick lowers the expected overall loss change", "yes (picture)",
            ", ".join(f"{value:.3f}" for value in mean), 0, "",
            verdicts.REPRODUCED if falling else verdicts.NOT_REPRODUCED),
    ]  # fmt: skip
    notes = [
        f"Scores of the picks (Eq. 28, p uniform, alpha = 1): {scores}. The first pick ties with its mirror image, so "
        f"{[NUM_CLIENTS - 1 - pick for pick in picks]} are as good. The covariance is exp(-(i - j)^2 / 25): the "
        "caption has lost the minus sign."
    ]
    return Page(rows, notes, {"picks.png": _figure(steps)}, {"posterior.csv": _csv(steps)})


def _steps(covariance: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]]:
    """Return, for each pick, the client, mean and deviation before, mean and deviation after, and its score."""
    mean, left, found = np.zeros(NUM_CLIENTS), covariance, []
    for _ in range(NUM_SELECTED):
        deviation = np.sqrt(np.maximum(np.diag(left), 0.0))
        alive = deviation > 1e-6
        scores = np.where(alive, left.mean(axis=0) / np.where(alive, deviation, 1.0), -np.inf)  # Eq. 28
        pick = int(np.argmax(np.round(scores, 12)))
        value = mean[pick] - deviation[pick]  # Eq. 23, alpha = 1
        after, left = (np.asarray(part) for part in gp.posterior(jnp.asarray(mean), jnp.asarray(left), pick, value))
        deviation_after = np.sqrt(np.maximum(np.diag(left), 0.0))
        found.append((pick, mean, deviation, after, deviation_after, float(scores[pick])))
        mean = after
    return found


def _csv(steps: list[Any]) -> str:
    lines = ["pick,client,mean_before,deviation_before,mean_after,deviation_after"]
    for number, (_, *columns, _) in enumerate(steps, start=1):
        for client, values in enumerate(zip(*columns)):
            lines.append(f"{number},{client}," + ",".join(f"{value:.6g}" for value in values))
    return "\n".join(lines) + "\n"


def _figure(steps: list[Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(steps), 3.6), layout="constrained")
    axes = figure.subplots(1, len(steps), sharey=True)
    places = np.arange(NUM_CLIENTS)
    for number, (axis, (pick, mean, deviation, after, _, _)) in enumerate(zip(axes, steps), start=1):
        axis.plot(places, mean, color="#0072B2", label="expected before")
        axis.fill_between(places, mean - deviation, mean + deviation, color="#0072B2", alpha=0.15, linewidth=0)
        axis.plot(places, after, color="#D55E00", label="expected after")
        axis.plot([pick], [after[pick]], "x", color="#D55E00", markersize=9, label=f"client {pick}")
        axis.set_title(f"pick {number}")
        axis.set_xlabel("client")
        axis.legend(frameon=False)
    axes[0].set_ylabel("change of the loss")
    return figure


RULE = (
    "Reproduced if the three selected clients are in three different thirds of the clients, and each decreases the "
    "expected overall loss change. The computation has no randomness."
)
ENTRIES = (Entry("fedgp/fig1", RULE, {}, _judge, "seconds"),)
