"""Checks of exchangeability: who is chosen may depend on what clients are like, never on their numbers.

Frequencies over many games are compared at LIMIT standard errors; for a few hundred comparisons a false alarm has a
probability below 1e-3, and the seed is fixed.
"""

import numpy as np

from fedjax_sel.testing.bench import Bench, Games
from fedjax_sel.testing.report import NotApplicable, Violation

LIMIT = 5.0  # standard errors


def uniform(bench: Bench) -> None:
    """Check that clients that are alike are chosen equally often, in every round."""
    _need_a_choice(bench)
    chosen = _chosen(bench, bench.games["alike"])  # [games, T, N]
    expected = chosen.sum(axis=-1).mean(axis=0) / chosen.shape[-1]  # [T]
    for round in range(chosen.shape[1]):
        worst, distance = _largest(chosen[:, round], expected[round])
        if distance > LIMIT:
            raise Violation(
                f"clients that are alike are not chosen alike: in round {round} client {worst} is in "
                f"{chosen[:, round, worst].mean():.0%} of the cohorts where {expected[round]:.0%} are its share; "
                "break ties at random (sampling.top_k), never by index"
            )
    worst, distance = _largest(chosen.sum(axis=1), expected.sum())
    if distance > LIMIT:
        raise Violation(
            f"clients that are alike are not chosen alike: client {worst} is chosen "
            f"{chosen.sum(axis=1)[:, worst].mean():.2f} times in {chosen.shape[1]} rounds where {expected.sum():.2f} "
            "are its share; break ties at random"
        )


def uniform_pairs(bench: Bench) -> None:
    """Check that clients that are alike are chosen together equally often."""
    _need_a_choice(bench)
    pairs, names = _pairs(_chosen(bench, bench.games["alike"]))
    worst, distance = _largest(pairs, pairs.mean())
    if distance > LIMIT:
        raise Violation(
            f"of clients that are alike, {names[worst]} are chosen together {pairs[:, worst].mean():.2f} times in a "
            f"game where {pairs.mean():.2f} are a pair's share; shuffle before grouping, and break ties at random"
        )


def equivariant(bench: Bench) -> None:
    """Check that relabelling the clients relabels the cohorts, in distribution: clients, and pairs of them."""
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
                f"{relabelled[:, round, worst].mean():.0%} where its number is {new}; nothing may depend on a number"
            )
    for a, b, names in (
        (here.sum(axis=1), relabelled.sum(axis=1), [f"client {i}" for i in range(here.shape[-1])]),
        (*(_pairs(table)[0] for table in (here, relabelled)), _pairs(here)[1]),
    ):
        worst, distance = _apart(a, b)
        if distance > LIMIT:
            raise Violation(
                f"{names[worst]}: chosen {a[:, worst].mean():.2f} times in a game, and {b[:, worst].mean():.2f} times "
                "under other numbers; nothing may depend on a number"
            )


def _need_a_choice(bench: Bench) -> None:
    if bench.options.num_selected == bench.options.num_clients:
        raise NotApplicable("everybody is chosen")


def _chosen(bench: Bench, games: Games) -> np.ndarray:
    """Count how often each client was drawn, [games, T, N]: repetitions count where drawing with replacement."""
    counts = np.zeros((*games.ids.shape[:2], bench.options.num_clients))
    places = np.ones_like(games.mask) if bench.strategy.with_replacement else games.mask
    np.add.at(counts, (*np.indices(games.ids.shape)[:2], games.ids), places)
    return counts


def _pairs(chosen: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Count how often two clients were drawn together, [games, pairs], and return that with the pairs' names."""
    first, second = np.triu_indices(chosen.shape[-1], 1)
    both = np.minimum(chosen[..., first], chosen[..., second]).sum(axis=1)
    return both, [f"clients {a} and {b}" for a, b in zip(first, second)]


def _largest(samples: np.ndarray, expected: float) -> tuple[int, float]:
    """Return the column of [games, columns] whose mean is furthest from what is expected, in standard errors."""
    # The columns are alike, so their variance is one; the last term keeps it positive where nothing varies.
    variance = samples.var(axis=0).mean() + 1 / len(samples)
    distance = np.abs(samples.mean(axis=0) - expected) / np.sqrt(variance / len(samples))
    return int(distance.argmax()), float(distance.max())


def _apart(a: np.ndarray, b: np.ndarray) -> tuple[int, float]:
    """Return the column in which two samples [games, columns] have means furthest apart, in standard errors."""
    variance = np.concatenate([a, b]).var(axis=0) + 1 / len(a)
    distance = np.abs(a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(2 * variance / len(a))
    return int(distance.argmax()), float(distance.max())
