"""Sampling laws of cohorts by enumeration: sorted tuple of clients -> probability."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats


def without_replacement(weights: Mapping[int, float] | Sequence[float], k: int) -> dict[tuple[int, ...], float]:
    """Return the law of k clients drawn one after another with these weights: every order, added up."""
    weights = weights if isinstance(weights, Mapping) else dict(enumerate(weights))
    law = dict.fromkeys(itertools.combinations(sorted(weights), k), 0.0)
    for order in itertools.permutations(weights, k):
        probability, left = 1.0, sum(weights.values())
        for client in order:
            probability *= weights[client] / left
            left -= weights[client]
        law[tuple(sorted(order))] += probability
    return law


def assert_law(cohorts: np.ndarray, law: Mapping[tuple[int, ...], float]) -> None:
    """Check cohorts [draws, k] against a law; one without a chance must not occur."""
    found = dict.fromkeys(law, 0)
    for row in np.sort(cohorts, axis=1).tolist():
        found[tuple(row)] += 1
    expected, counts = np.array(list(law.values())) * len(cohorts), np.array(list(found.values()))
    likely = expected > 1e-6
    assert counts[~likely].sum() == 0
    expected = expected[likely] * counts.sum() / expected[likely].sum()
    assert likely.sum() == 1 or stats.chisquare(counts[likely], expected).pvalue > 1e-5
