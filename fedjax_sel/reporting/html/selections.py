"""Cohorts, selection counts, and final per-client results, encoded for the page."""

from typing import Any

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.reporting.html.numbers import packed
from fedjax_sel.reporting.html.series import over_seeds
from fedjax_sel.reporting.html.sources import Run

MOST_IDS = 150_000
"""The maximum per run; longer runs have fewer seeds on the page, and a single seed fewer rounds."""
NO_CLIENT = 65_535


def cohorts(run: Run) -> dict[str, Any] | None:
    """Return the client IDs of the cohorts; None if no cohort is saved yet, or the IDs exceed two bytes."""
    ids = run.result.cohorts[:, : run.cohorts_known]
    if not ids.size or run.result.config.partition.num_clients >= NO_CLIENT:
        return None
    seeds = max(1, min(len(ids), MOST_IDS // max(ids[0].size, 1)))
    every = -(-ids[0].size // MOST_IDS)
    kept = ids[:seeds, ::every]
    return {
        "seeds": list(run.result.seeds[:seeds]),
        "of": len(ids),
        "rounds": kept.shape[1],
        "every": every,
        "selected": kept.shape[2],
        "ids": packed(kept),
    }


def counts(run: Run) -> dict[str, Any] | None:
    """Return the training rounds per client in descending order; None if no cohort is saved yet."""
    if not run.cohorts_known:
        return None
    saved = run.result.cohorts[:, : run.cohorts_known]
    found = metrics.selection_counts(saved, run.result.config.partition.num_clients)
    return _ranked(-np.sort(-found.astype(np.float64), axis=1))


def clients(run: Run) -> dict[str, Any] | None:
    """Return the measure of the final models on each client's data, worst first; None if not evaluated."""
    if run.clients is None:
        return None
    ascending = np.sort(run.clients.astype(np.float64), axis=1)
    return _ranked(ascending if run.result.higher_is_better else ascending[:, ::-1])


def _ranked(values: np.ndarray, most: int = 400) -> dict[str, Any]:
    """Return a curve over ranks from values [seeds, N], for at most `most` evenly spaced ranks."""
    ranks = np.unique(np.linspace(0, values.shape[1] - 1, min(values.shape[1], most)).round().astype(int))
    return {"rank": (ranks + 1).tolist(), **over_seeds(values[:, ranks])}
