"""Checks of what must not break a strategy: equal clients, extreme losses, updates that are not finite."""

from fedjax_sel.strategies.base import keep_state
from fedjax_sel.testing.bench import Bench
from fedjax_sel.testing.report import Violation

ADVICE = {
    "ordinary": "look for a division by zero or the logarithm of zero",
    "alike": "look for a division by a spread or a distance that is zero where all clients are alike",
    "twins": "look for a division by a distance that is zero between two clients",
    "extreme": "look for exp of a large loss (subtract the maximum), or squares of it",
    "diverging": "leave out clients where outcome.finite is False, with jnp.where, before anything is computed from "
    "their update",
}


def no_nan(bench: Bench, world: str) -> None:
    """Check that the state holds no NaN after any round of a world."""
    nan = bench.games[world].nan
    if nan.any():
        rounds = nan.any(axis=0).argmax()
        raise Violation(f"the state holds NaN after round {rounds}; {ADVICE[world]}")


def no_nan_where_few_are_available(bench: Bench) -> None:
    """Check that the state holds no NaN where some, or all, places of the cohort are empty."""
    nan = bench.sparse_games.nan
    if nan.any():
        raise Violation(
            f"the state holds NaN after round {nan.any(axis=0).argmax()}, in which not all places of the cohort were "
            "filled; leave out places whose mask is False"
        )


def keys_matter(bench: Bench) -> None:
    """Check that where all clients are alike, different keys give different cohorts."""
    if bench.options.num_selected == bench.options.num_clients:
        return
    games = bench.games["alike"]
    for round in range(games.ids.shape[1]):
        cohorts = {tuple(sorted(ids)) for ids in games.ids[:, round].tolist()}
        if len(cohorts) == 1:
            raise Violation(
                f"all clients are alike and every key gives the cohort {next(iter(cohorts))} in round {round}; break "
                "ties at random (sampling.top_k)"
            )


def rounds_matter(bench: Bench) -> None:
    """Check that a strategy without memory, whose clients are alike, does not choose one cohort in every round."""
    strategy = bench.strategy
    if bench.options.num_selected == bench.options.num_clients:
        return
    if strategy.update is not keep_state or strategy.observe is not keep_state:
        return
    games = bench.games["alike"]
    first = [sorted(game[0]) for game in games.ids.tolist()]
    if all(sorted(ids) == cohort for game, cohort in zip(games.ids.tolist(), first) for ids in game):
        raise Violation("every round has the cohort of the first; use the round's key, not one kept in the state")
