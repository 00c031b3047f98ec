"""Checks of selections: shapes, distinct clients, weights, cohort sizes, availability."""

import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.strategies import contract
from fedjax_sel.testing import synthetic_clients
from fedjax_sel.testing.bench import Bench, Games
from fedjax_sel.testing.report import NotApplicable, Violation, violations

TOLERANCE = 1e-5  # tolerance of the sum of weights


def answer(bench: Bench) -> None:
    """Check that `select` returns a Selection with the right shapes and dtypes."""
    with violations():
        contract.selection(bench.selection, bench.options.num_selected)
        if bench.strategy.candidates is not None:
            named = contract.trace("candidates", bench.hooks()["candidates"])
            contract.candidates(named, bench.options.num_clients)


def cohort(bench: Bench) -> None:
    """Check that, with all clients available, K distinct valid clients are selected and weights sum to 1."""
    n = bench.options.num_clients
    for games in bench.games.values():
        _check(bench, games, np.ones((*games.ids.shape[:2], n), bool))


def sizes(bench: Bench) -> str:
    """Check cohorts with K = 1, N - 1 and N; a K that `init` rejects with a UserError is skipped."""
    n, rejected = bench.options.num_clients, []
    for k in sorted({1, n - 1, n}):
        try:
            games = bench.small_games(k)
        except UserError as error:
            rejected.append(f"rejects K = {k}: {error}")
            continue
        except Exception as error:
            raise Violation(f"with K = {k} of N = {n} it raises {type(error).__name__}: {_line(error)}") from error
        try:
            _check(bench, games, np.ones((*games.ids.shape[:2], n), bool))
        except Violation as violation:
            raise Violation(f"with K = {k} of N = {n}: {violation}") from violation
    return "; ".join(rejected)


def availability(bench: Bench) -> None:
    """Check that no unavailable client is selected, and that all are selected if at most K are available."""
    world = synthetic_clients.sparse(bench.world, bench.options.num_selected)
    try:
        games = bench.sparse_games
    except Exception as error:
        raise Violation(
            f"with `available` as bool [N] it raises {type(error).__name__}: {_line(error)}; "
            "support both None and an array"
        ) from error
    _check(bench, games, np.broadcast_to(world.available, (*games.ids.shape[:2], bench.options.num_clients)))


def _check(bench: Bench, games: Games, available: np.ndarray) -> None:
    """Check all selections, with `available` as bool [games, T, N]; raise at the first broken rule."""
    n, repeats = bench.options.num_clients, bench.strategy.with_replacement
    ids, mask, k = games.ids, games.mask, games.ids.shape[-1]
    if ((ids < 0) | (ids >= n)).any():
        wrong = int(ids[(ids < 0) | (ids >= n)][0])
        raise Violation(f"client ID {wrong} is outside 0 to {n - 1}; clip IDs, also where the mask is False")
    counts = np.zeros((*ids.shape[:2], n), int)  # number of places with mask True, per client
    np.add.at(counts, (*np.indices(ids.shape)[:2], ids), mask)
    if (counts > 1).any():
        advice = (
            "set the mask to first_occurrence(ids)"
            if repeats
            else "draw without replacement, or declare with_replacement=True"
        )
        raise Violation(f"a client appears twice in the cohort with mask True; {advice}")
    if ((counts > 0) & ~available).any():
        raise Violation("an unavailable client is selected; give it the score -inf and set mask=available[ids]")
    chosen, reachable = mask.sum(axis=-1), available.sum(axis=-1)
    if repeats:
        if ((chosen == 0) & (reachable > 0)).any():
            raise Violation("no client is selected, but clients are available; check the mask")
        drawn = np.zeros(counts.shape, bool)
        drawn[(*np.indices(ids.shape)[:2], ids)] = True
        if (available.all(axis=-1) & (chosen != drawn.sum(axis=-1))).any():
            raise Violation("a drawn client has mask False in all of its places; use first_occurrence(ids)")
    elif (chosen != np.minimum(k, reachable)).any():
        where = np.argwhere(chosen != np.minimum(k, reachable))[0]
        raise Violation(
            f"{chosen[tuple(where)]} clients are selected, but {reachable[tuple(where)]} are available and K = {k}; "
            "fill all places while available clients remain"
        )
    if games.candidates is not None:
        _check_candidates(games.candidates, n)
    if games.weights is not None:
        _check_weights(games.weights, mask)


def _check_candidates(candidates: np.ndarray, num_clients: int) -> None:
    ordered = np.sort(candidates, axis=-1)
    if (ordered < 0).any() or (ordered >= num_clients).any():
        raise Violation(f"`candidates` returns an ID outside 0 to {num_clients - 1}; clip IDs")
    if (np.diff(ordered, axis=-1) == 0).any():
        raise Violation("`candidates` returns a client twice; draw without replacement")


def _check_weights(weights: np.ndarray, mask: np.ndarray) -> None:
    if not np.isfinite(weights[mask]).all() or (weights[mask] < 0).any():
        raise Violation("a weight is negative or not finite; return nonnegative weights with sum 1")
    sums = np.where(mask, weights, 0.0).sum(axis=-1)[mask.any(axis=-1)]
    if (np.abs(sums - 1) > TOLERANCE).any():
        worst = sums[np.abs(sums - 1).argmax()]
        raise Violation(f"weights sum to {worst:.4g} over the mask and must sum to 1; divide them by their sum")


def weights_declared(bench: Bench) -> None:
    """Check that a strategy that draws with replacement returns weights, because repeated draws must count."""
    if not bench.strategy.with_replacement:
        raise NotApplicable("it draws without replacement")
    if bench.selection.weights is None:
        raise Violation("it draws with replacement but returns no weights; a client drawn r times has weight r / K")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
