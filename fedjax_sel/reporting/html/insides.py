"""A strategy's state from its last checkpoint, prepared for plots."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.reporting.html.numbers import shades, short
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.manifest import DamagedError

MOST_CLIENTS = 250


class View(NamedTuple):
    """The plot type and texts for a field of a strategy's state."""

    field: str
    kind: str  # "embeddings" [d, N], "matrix" [N, N] or "values" [N]
    title: str
    about: str


class Inside(NamedTuple):
    """A field of a strategy's state for the first seed."""

    view: View
    rounds: int  # completed rounds at the checkpoint
    values: np.ndarray


_CORRELATION = View(
    "embeddings",
    "embeddings",
    "Client embeddings X and their Gram matrix X^T X",
    "The covariance of the clients' loss changes is X^T X + noise^2 I: losses of clients in the same direction from "
    "the origin change together. The map shows the first two principal components.",
)
VIEWS: dict[str, tuple[View, ...]] = {
    "fedcor": (_CORRELATION,),
    "fedgp": (_CORRELATION,),
    "fl_dp3s": (
        View(
            "similarity",
            "matrix",
            "Similarity S of the clients' data profiles",
            "A cohort Y is drawn with probability proportional to det(L_Y), L = S^T S: two similar clients seldom "
            "train together.",
        ),
    ),
    "divfl": (
        View(
            "distances",
            "matrix",
            "Distances D between the clients' gradients",
            "The cohort is chosen so that each client is close to one of its members.",
        ),
    ),
    "oort": (
        View(
            "utilities", "values", "Utility per client", "Clients with high utility are preferred; 0: not yet explored."
        ),
    ),
    "gpfl": (View("reward_sum", "values", "Sum of rewards per client", "The sum is over a client's training rounds."),),
}


def of(path: Path, algo: str, left_out: list[str]) -> list[Inside]:
    """Return the plotted fields of a strategy's state; an empty list without views or without an intact checkpoint.

    Args:
        path: the run's folder.
        algo: name of the strategy.
        left_out: list of notes on omitted content; a missing checkpoint is appended.
    """
    views = VIEWS.get(algo, ())
    if not views:
        return []
    for place in checkpoint.list_all(path / run_files.CHECKPOINTS):
        try:
            about, arrays = checkpoint.read(place)
        except DamagedError:
            continue
        found = [(view, arrays.get(f".strategy.{view.field}")) for view in views]
        return [
            Inside(view, about["rounds"], np.asarray(values[0], np.float64))
            for view, values in found
            if values is not None and values.ndim >= 2 and np.isfinite(values[0]).any()
        ]
    left_out.append(f"State of {algo}: {path} has no intact checkpoint.")
    return []


def as_json(inside: Inside) -> dict[str, Any]:
    """Return the plot data, for at most MOST_CLIENTS evenly spaced clients."""
    view, values = inside.view, inside.values
    chosen = np.unique(np.linspace(0, values.shape[-1] - 1, min(values.shape[-1], MOST_CLIENTS)).round().astype(int))
    about = {"kind": view.kind, "title": view.title, "about": view.about, "rounds": inside.rounds}
    about |= {"clients": chosen.tolist(), "of": values.shape[-1]}
    if view.kind == "values":
        return about | {"values": short(values)}
    if view.kind == "matrix":
        return about | {"matrix": shades(values[np.ix_(chosen, chosen)])}
    x, y, shares = _two_directions(values.T)
    return about | {
        "x": short(x),
        "y": short(y),
        "shares": short(shares),
        "matrix": shades((values.T @ values)[np.ix_(chosen, chosen)]),
    }


def _two_directions(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each point's first two principal components, [N] each, and their shares of the variance."""
    centered = points - points.mean(axis=0)
    left, scale, _ = np.linalg.svd(centered, full_matrices=False)
    variance = scale**2 / max(float((scale**2).sum()), 1e-300)
    two = np.zeros((len(points), 2))
    two[:, : len(scale[:2])] = (left * scale)[:, :2]
    return two[:, 0], two[:, 1], np.pad(variance, (0, 2))[:2]
