"""Who trained when, packed for a page; how often, and how well each client is served at the end."""

from typing import Any

import numpy as np

from fedjax_sel import metrics
from fedjax_sel.reporting.html.numbers import packed
from fedjax_sel.reporting.html.series import over_seeds
from fedjax_sel.reporting.html.sources import Run

MOST_IDS = 150_000
"""Of one run; a page with more shows fewer seeds, and of a single one fewer rounds."""
NOBODY = 65_535


def cohorts(run: Run) -> dict[str, Any] | None:
    """Return the ids of the cohorts; None where none are known, or ids do not fit."""
    ids = run.result.cohorts[:, : run.cohorts_known]
    if not ids.size or run.result.config.partition.num_clients >= NOBODY:
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
    """Return in how many rounds clients trained, the busiest first; None where no cohort is known."""
    if not run.cohorts_known:
        return None
    known = run.result.cohorts[:, : run.cohorts_known]
    found = metrics.selection_counts(known, run.result.config.partition.num_clients)
    return _ranked(-np.sort(-found.astype(np.float64), axis=1))


def clients(run: Run) -> dict[str, Any] | None:
    """Return the measure of the final models on the clients' data, the worst served client first; None: not known."""
    if run.clients is None:
        return None
    ascending = np.sort(run.clients.astype(np.float64), axis=1)
    return _ranked(ascending if run.result.higher_is_better else ascending[:, ::-1])


def _ranked(values: np.ndarray, most: int = 400) -> dict[str, Any]:
    """Return a curve over ranks, [seeds, N]; of many clients some, evenly spaced."""
    ranks = np.unique(np.linspace(0, values.shape[1] - 1, min(values.shape[1], most)).round().astype(int))
    return {"rank": (ranks + 1).tolist(), **over_seeds(values[:, ranks])}
