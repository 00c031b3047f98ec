"""Checks of exchangeability: a selection may depend on the clients' data, but not on their indices.

Frequencies over many games are compared at LIMIT standard errors. For a few hundred comparisons the probability of a
false alarm is below 1e-3, and the seed is fixed.
"""

import numpy as np

from fedjax_sel.testing.bench import Bench, Games
from fedjax_sel.testing.report import NotApplicable, Violation

LIMIT = 5.0  # standard errors


def uniform(bench: Bench) -> None:
    """Check that identical clients are selected equally often, in every round."""
    _need_a_choice(bench)
    chosen = _chosen(bench, bench.games["alike"])  # [games, T, N]
    expected = chosen.sum(axis=-1).mean(axis=0) / chosen.shape[-1]  # [T]
    for round in range(chosen.shape[1]):
        worst, distance = _largest(chosen[:, round], expected[round])
        if distance > LIMIT:
            raise Violation(
                f"identical clients are not selected equally often: in round {round} client {worst} is in "
                f"{chosen[:, round, worst].mean():.0%} of the cohorts instead of {expected[round]:.0%}; "
                "break ties at random (sampling.top_k), never by index"
            )
    worst, distance = _largest(chosen.sum(axis=1), expected.sum())
    if distance > LIMIT:
        raise Violation(
            f"identical clients are not selected equally often: client {worst} is selected "
            f"{chosen.sum(axis=1)[:, worst].mean():.2f} times in {chosen.shape[1]} rounds instead of "
            f"{expected.sum():.2f}; break ties at random"
        )


def uniform_pairs(bench: Bench) -> None:
    """Check that all pairs of identical clients are selected together equally often."""
    _need_a_choice(bench)
    pairs, names = _pairs(_chosen(bench, bench.games["alike"]))
    worst, distance = _largest(pairs, pairs.mean())
    if distance > LIMIT:
        raise Violation(
            f"clients are identical, but {names[worst]} are selected together {pairs[:, worst].mean():.2f} times per "
            f"game instead of {pairs.mean():.2f}; shuffle before grouping, and break ties at random"
        )


def equivariant(bench: Bench) -> None:
    """Check that relabeling the clients relabels the cohorts in distribution: single clients and pairs."""
    _need_a_choice(bench)
    here = _chosen(bench, bench.games["ordinary"])
    relabelled = np.empty_like(here)
    relabelled[..., bench.order] = _chosen(bench, bench.games["relabelled"])
    for round in range(here.shape[1]):
        worst, distance = _apart(here[:, round], relabelled[:, round])
        if distance > LIMIT:
            new = int(np.argwhere(bench.order == worst)[0, 0])
            raise Violation(
                f"in round {round} client {worst} is in {here[:, round, worst].mean():.0%} of the cohorts, and in "
                f"{relabelled[:, round, worst].mean():.0%} if its index is {new}; do not use a client's index"
            )
    for a, b, names in (
        (here.sum(axis=1), relabelled.sum(axis=1), [f"client {i}" for i in range(here.shape[-1])]),
        (*(_pairs(table)[0] for table in (here, relabelled)), _pairs(here)[1]),
    ):
        worst, distance = _apart(a, b)
        if distance > LIMIT:
            raise Violation(
                f"{names[worst]}: selected {a[:, worst].mean():.2f} times per game, and {b[:, worst].mean():.2f} times "
                "with other indices; do not use a client's index"
            )


def _need_a_choice(bench: Bench) -> None:
    if bench.options.num_selected == bench.options.num_clients:
        raise NotApplicable("every client is selected")


def _chosen(bench: Bench, games: Games) -> np.ndarray:
    """Return selection counts, [games, T, N]; with replacement, repetitions count."""
    counts = np.zeros((*games.ids.shape[:2], bench.options.num_clients))
    places = np.ones_like(games.mask) if bench.strategy.with_replacement else games.mask
    np.add.at(counts, (*np.indices(games.ids.shape)[:2], games.ids), places)
    return counts


def _pairs(chosen: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return how often each pair of clients was selected together, [games, pairs], and the pairs' names."""
    first, second = np.triu_indices(chosen.shape[-1], 1)
    both = np.minimum(chosen[..., first], chosen[..., second]).sum(axis=1)
    return both, [f"clients {a} and {b}" for a, b in zip(first, second)]


def _largest(samples: np.ndarray, expected: float) -> tuple[int, float]:
    """Return the column of [games, columns] whose mean is farthest from `expected`, in standard errors."""
    # The columns have equal distributions, so variances are pooled; the last term keeps the variance positive.
    variance = samples.var(axis=0).mean() + 1 / len(samples)
    distance = np.abs(samples.mean(axis=0) - expected) / np.sqrt(variance / len(samples))
    return int(distance.argmax()), float(distance.max())


def _apart(a: np.ndarray, b: np.ndarray) -> tuple[int, float]:
    """Return the column with the largest difference of means of two samples [games, columns], in standard errors."""
    variance = np.concatenate([a, b]).var(axis=0) + 1 / len(a)
    distance = np.abs(a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(2 * variance / len(a))
    return int(distance.argmax()), float(distance.max())
