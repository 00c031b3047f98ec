"""Checks of robustness: identical clients, extreme losses, updates that are not finite."""

from fedjax_sel.strategies.base import keep_state
from fedjax_sel.testing.bench import Bench
from fedjax_sel.testing.report import Violation

ADVICE = {
    "ordinary": "look for a division by zero or the logarithm of zero",
    "alike": "look for a division by a spread or a distance that is zero if all clients are identical",
    "twins": "look for a division by a distance that is zero between two clients",
    "extreme": "look for exp of a large loss (subtract the maximum), or squares of it",
    "diverging": "mask the updates of clients with outcome.finite False (jnp.where) before any computation",
}


def no_nan(bench: Bench, world: str) -> None:
    """Check that the state has no NaN after any round of a world."""
    nan = bench.games[world].nan
    if nan.any():
        rounds = nan.any(axis=0).argmax()
        raise Violation(f"the state holds NaN after round {rounds}; {ADVICE[world]}")


def no_nan_where_few_are_available(bench: Bench) -> None:
    """Check that the state has no NaN if some or all places of the cohort are empty."""
    nan = bench.sparse_games.nan
    if nan.any():
        raise Violation(
            f"the state holds NaN after round {nan.any(axis=0).argmax()}, whose cohort has empty places; ignore places "
            "with mask False"
        )


def keys_matter(bench: Bench) -> None:
    """Check that different keys give different cohorts if all clients are identical."""
    if bench.options.num_selected == bench.options.num_clients:
        return
    games = bench.games["alike"]
    for round in range(games.ids.shape[1]):
        cohorts = {tuple(sorted(ids)) for ids in games.ids[:, round].tolist()}
        if len(cohorts) == 1:
            raise Violation(
                f"all clients are identical, but every key gives the cohort {next(iter(cohorts))} in round {round}; "
                "break ties at random (sampling.top_k)"
            )


def rounds_matter(bench: Bench) -> None:
    """Check that a strategy without memory selects different cohorts over the rounds if all clients are identical."""
    strategy = bench.strategy
    if bench.options.num_selected == bench.options.num_clients:
        return
    if strategy.update is not keep_state or strategy.observe is not keep_state:
        return
    games = bench.games["alike"]
    first = [sorted(game[0]) for game in games.ids.tolist()]
    if all(sorted(ids) == cohort for game, cohort in zip(games.ids.tolist(), first) for ids in game):
        raise Violation("every round repeats the first cohort; use the round's key, not one stored in the state")
