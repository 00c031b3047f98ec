"""The conformance kit: one battery of checks for built-in and user-defined strategies.

    from fedjax_sel.testing import check_strategy
    check_strategy(my_strategy)          # raises an error that lists all failed checks
    print(examine(my_strategy))          # prints the result of every check

    python -m fedjax_sel test my_module:my_strategy

Clients' answers are synthetic and follow the strategy's requests. Only the last check trains.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError
from fedjax_sel.strategies import checks
from fedjax_sel.strategies.contract import Now, Strategy
from fedjax_sel.strategies.from_numpy import own_errors
from fedjax_sel.strategies.protocol import fields_read
from fedjax_sel.testing.bench import Bench, ConformanceError, Finding, NotApplicable, Options, Record, Report, Violation

__all__ = ["CHECKS", "Check", "ConformanceError", "Finding", "Report", "check_strategy", "examine"]


def contract(bench: Bench) -> None:
    """Check the requests, and by tracing that every hook reads only requested facts and returns the right shapes."""
    options, strategy = bench.options, bench.strategy
    checks.requests(strategy)
    sizes = (options.num_clients, options.num_selected, options.rounds)
    checks.check(strategy, sizes, everyone_available=True, has_clock=strategy.needs_clock)
    checks.knows_inclusion(strategy, sizes, everyone_available=True, has_clock=strategy.needs_clock)
    if strategy.with_replacement and bench.selection.weights is None:
        raise Violation("it draws with replacement but returns no weights; a client drawn r times has weight r / K")


def pure(bench: Bench) -> None:
    """Check that tracing a hook twice gives the same program."""
    for name, hook in bench.own_hooks().items():
        try:
            same = checks.program(name, hook) == checks.program(name, hook)
        except Exception as error:
            raise Violation(
                f"`{name}` fails when it is traced a second time ({type(error).__name__}): it stores values "
                "outside the state; store them in the state"
            ) from error
        if not same:
            raise Violation(
                f"`{name}` gives a different program each time it is traced: it changes or draws values outside JAX; "
                "store them in the state, and draw with the key"
            )


def facts_read(bench: Bench) -> None:
    """Check that some hook reads every bought kind of fact."""
    strategy = bench.strategy
    if not strategy.requests:
        raise NotApplicable("it buys nothing")
    kinds = set()
    for name, (hook, arguments) in bench.own_hooks().items():
        with enable_x64(name == "init"):
            marks = fields_read(hook, *arguments)
        info = next(mark.info for mark in marks if isinstance(mark, Now))
        kinds |= {kind for kind in info.kinds() if any(getattr(info, kind))}
        if name == "update" and any(jax.tree.leaves(marks[-1].metrics)):
            kinds.add("server_metrics")
        if name == "update" and any(jax.tree.leaves(marks[-1].subset_loss)):
            kinds.add("subset_loss")
    for request in strategy.requests:
        if request.kind not in kinds:
            raise Violation(f"it buys {request.kind!r} from {request.who!r} and never reads it; remove that Request")


def key_used(bench: Bench) -> None:
    """Check that `select` uses its key."""
    if bench.num_places == bench.options.num_clients:
        raise NotApplicable("a cohort has a place for every client")
    select, arguments = bench.hooks["select"]
    if not fields_read(select, *arguments)[0]:
        raise Violation(
            "`select` does not use its key: use it to break ties (sampling.top_k) and to draw, instead of a key "
            "created elsewhere or stored in the state"
        )


def key_used_once(bench: Bench) -> str:
    """Check that no key is consumed twice, with JAX's key-reuse checker."""
    try:
        bench.play_alone(check_keys=True)
    except jax.errors.KeyReuseError as error:
        raise Violation(
            f"a key is consumed twice ({parsing.first_line(error)}); split it into one key per draw"
        ) from error
    except Exception as error:  # JAX's key checker does not support every operation
        return f"not checked: {type(error).__name__}"
    return ""


def same_key(bench: Bench) -> None:
    """Check that the same keys give the same cohorts in a second game, and in a scan over rounds under a vmap."""
    first = bench.play_alone()
    for how, cohorts in (("a second game", bench.play_alone()), ("scan and vmap", bench.games["ordinary"].ids[0])):
        differs = (first != cohorts).any(axis=1)
        if differs.any():
            raise Violation(
                f"the same keys give another cohort in round {differs.argmax()} of {how}: store values in the state, "
                "draw with the key, and break ties at random instead of by rounding"
            )


ADVICE = {
    "ordinary": "look for a division by zero or the logarithm of zero",
    "alike": "look for a division by a spread or a distance that is zero if all clients are identical",
    "twins": "look for a division by a distance that is zero between two clients",
    "extreme": "look for exp of a large loss (subtract the maximum), or squares of it",
    "sparse": "ignore places of the cohort with mask False",
    "diverging": "mask the updates of clients with outcome.finite False (jnp.where) before any computation",
    "losing": "ignore places of the cohort with outcome.reported False, which are zero",
}


def no_nan(bench: Bench) -> None:
    """Check that the state has no NaN after any round of any world."""
    games = bench.games | bench.sparse_games
    for world, advice in ADVICE.items():
        nan = games[world].nan
        if nan.any():
            raise Violation(f"the state holds NaN after round {nan.any(axis=0).argmax()}; {advice}")


# Exchangeability: a selection may depend on the clients' data, but not on their indices. Frequencies over many games
# are compared at LIMIT standard errors. For a few hundred comparisons the probability of a false alarm is below 1e-3.
LIMIT = 5.0  # standard errors


def uniform(bench: Bench) -> None:
    """Check that identical clients are selected equally often, in every round and in total, and so are their pairs."""
    for when, samples, names, rounds in _groups(_chosen(bench, bench.games["alike"])):
        # The columns have equal distributions, so variances are pooled; the last term keeps the variance positive.
        variance = samples.var(axis=0).mean() + 1 / len(samples)
        distance = np.abs(samples.mean(axis=0) - samples.mean()) / np.sqrt(variance / len(samples))
        worst = int(distance.argmax())
        if distance[worst] > LIMIT:
            raise Violation(
                f"identical clients are not selected equally often: {when}, {names[worst]}: in "
                f"{samples[:, worst].mean() / rounds:.0%} of the cohorts instead of {samples.mean() / rounds:.0%}; "
                "break ties at random (sampling.top_k), never by index, and shuffle before grouping"
            )


def equivariant(bench: Bench) -> None:
    """Check that relabeling the clients relabels the cohorts in distribution: single clients and pairs."""
    here = _chosen(bench, bench.games["ordinary"])
    relabelled = np.empty_like(here)
    relabelled[..., bench.order] = _chosen(bench, bench.games["relabelled"])
    for (when, a, names, _), (_, b, _, _) in zip(_groups(here), _groups(relabelled)):
        variance = np.concatenate([a, b]).var(axis=0) + 1 / len(a)
        distance = np.abs(a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(2 * variance / len(a))
        worst = int(distance.argmax())
        if distance[worst] > LIMIT:
            raise Violation(
                f"{when}, {names[worst]}: selected {a[:, worst].mean():.2f} times per game, and "
                f"{b[:, worst].mean():.2f} times with other indices; do not use a client's index"
            )


def _chosen(bench: Bench, games: Record) -> np.ndarray:
    """Return selection counts, [games, T, N]; with replacement, repetitions count."""
    counts = np.zeros((*games.ids.shape[:2], bench.options.num_clients))
    places = np.ones_like(games.mask) if bench.strategy.with_replacement else games.mask
    np.add.at(counts, (*np.indices(games.ids.shape)[:2], games.ids), places)
    return counts


def _groups(chosen: np.ndarray) -> Iterator[tuple[str, np.ndarray, list[str], int]]:
    """Yield the selection counts [games, columns] of clients per round and in total, and of pairs, from [games, T, N].

    Each item is (when, counts, names of the columns, number of rounds).
    """
    num_rounds, num_clients = chosen.shape[1:]
    clients = [f"client {client}" for client in range(num_clients)]
    for round in range(num_rounds):
        yield f"in round {round}", chosen[:, round], clients, 1
    yield "over all rounds", chosen.sum(axis=1), clients, num_rounds
    first, second = np.triu_indices(num_clients, 1)
    together = np.minimum(chosen[..., first], chosen[..., second]).sum(axis=1)
    yield "over all rounds", together, [f"clients {a} and {b} together" for a, b in zip(first, second)], num_rounds


TOLERANCE = 1e-5  # tolerance of the sum of weights


def cohort(bench: Bench) -> None:
    """Check that, with all clients available, K distinct valid clients are selected and weights sum to 1.

    If a strategy has `inclusion` or a random cohort size, its weights need to sum to 1 only in expectation. `inclusion`
    is positive for every client, and the expected number of its selections.
    """
    for games in bench.games.values():
        _check(bench, games, True)
    games = bench.games["ordinary"]
    if games.inclusion is not None:
        counts = _chosen(bench, games).sum(axis=1)
        excess = counts - games.inclusion.sum(axis=1)
        allowed = LIMIT * excess.std(axis=0) / np.sqrt(len(excess)) + 1e-3
        worst = int((np.abs(excess.mean(axis=0)) - allowed).argmax())
        if abs(excess[:, worst].mean()) > allowed[worst]:
            raise Violation(
                f"client {worst} is selected {counts[:, worst].mean():.2f} times per game, but `inclusion` adds up to "
                f"{games.inclusion[:, :, worst].sum(axis=1).mean():.2f}; return the expected number of selections"
            )


def sizes(bench: Bench) -> str:
    """Check cohorts with K = 1, N - 1 and N; a K that the strategy rejects with a UserError is skipped."""
    n, rejected = bench.options.num_clients, []
    for k in sorted({1, n - 1, n}):
        try:
            _check(bench, bench.small_games(k), True)
        except UserError as error:
            rejected.append(f"rejects K = {k}: {error}")
        except Violation as violation:
            raise Violation(f"with K = {k} of N = {n}: {violation}") from violation
        except Exception as error:
            raise Violation(f"with K = {k} of N = {n} it raises {parsing.reason(error)}") from error
    return "; ".join(rejected)


def availability(bench: Bench) -> None:
    """Check that no unavailable client is selected, and that all are selected if at most K are available."""
    world = bench.world.sparse(bench.options.num_selected)
    try:
        games = bench.sparse_games["sparse"]
    except Exception as error:
        raise Violation(
            f"with `available` as bool [N] it raises {parsing.reason(error)}; support None and arrays"
        ) from error
    _check(bench, games, world.available)


def silence(bench: Bench) -> None:
    """Check that no cohort depends on the table entries of clients that never answered."""
    zeros, others = (np.where(games.mask, games.ids, -1) for games in bench.sparse_games.values())
    if (zeros != others).any():
        round = (zeros != others).any(axis=(0, 2)).argmax()
        raise Violation(
            f"the cohort of round {round} depends on the entries of clients that never answered; give these clients a "
            "value of your own where the fact's age is NEVER"
        )


def _check(bench: Bench, games: Record, available: Any) -> None:
    """Check all selections, with `available` as bool [T, N], or True; raise at the first broken rule."""
    n, repeats = bench.options.num_clients, bench.strategy.with_replacement
    ids, mask, k = games.ids, games.mask, games.ids.shape[-1]
    available = np.broadcast_to(available, (*ids.shape[:2], n))
    wrong = ids[(ids < 0) | (ids >= n)]
    if wrong.size:
        raise Violation(f"client ID {wrong[0]} is outside 0 to {n - 1}; clip IDs, also where the mask is False")
    counts = np.zeros((*ids.shape[:2], n), int)  # number of places with mask True, per client
    np.add.at(counts, (*np.indices(ids.shape)[:2], ids), mask)
    if (counts > 1).any():
        advice = "draw without replacement, or declare with_replacement=True"
        advice = "set the mask to first_occurrence(ids)" if repeats else advice
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
    elif bench.strategy.max_selected is not None:
        if reachable.any() and not chosen.any():
            raise Violation("no client is ever selected; check the mask")
    elif (chosen != np.minimum(k, reachable)).any():
        where = np.argwhere(chosen != np.minimum(k, reachable))[0]
        raise Violation(
            f"{chosen[tuple(where)]} clients are selected, but {reachable[tuple(where)]} are available and K = {k}; "
            "select the clients of now.available (None: all), as many as there are places"
        )
    if games.candidates is not None:
        ordered = np.sort(games.candidates, axis=-1)
        if (ordered < 0).any() or (ordered >= n).any():
            raise Violation(f"`candidates` returns an ID outside 0 to {n - 1}; clip IDs")
        if (np.diff(ordered, axis=-1) == 0).any():
            raise Violation("`candidates` returns a client twice; draw without replacement")
    if games.inclusion is not None:
        drawable = available
        if games.candidates is not None:
            drawable = available & (games.candidates[..., None] == np.arange(n)).any(axis=-2)
        if (drawable & ~(games.inclusion > 0)).any():
            raise Violation("`inclusion` is 0 for an available client; keep every probability above a small floor")
    if games.weights is not None:
        unbiased = bench.strategy.inclusion is not None or bench.strategy.max_selected is not None
        _check_weights(games.weights, mask, reachable > 0, unbiased)


def _check_weights(weights: np.ndarray, mask: np.ndarray, reachable: np.ndarray, unbiased: bool) -> None:
    """Check that weights are nonnegative with sum 1; unbiased ones need this sum only in expectation."""
    if not np.isfinite(weights[mask]).all() or (weights[mask] < 0).any():
        raise Violation("a weight is negative or not finite; return nonnegative weights with sum 1")
    sums = np.where(mask, weights, 0.0).sum(axis=-1)[reachable if unbiased else mask.any(axis=-1)]
    if unbiased and len(sums):
        error = np.std(sums) / np.sqrt(len(sums))
        if abs(sums.mean() - 1) > LIMIT * error + TOLERANCE:
            raise Violation(
                f"weights sum to {sums.mean():.4g} on average and must sum to 1; divide the data share of a client by "
                "its expected number of draws"
            )
    elif (np.abs(sums - 1) > TOLERANCE).any():
        worst = sums[np.abs(sums - 1).argmax()]
        raise Violation(f"weights sum to {worst:.4g} over the mask and must sum to 1; divide them by their sum")


def real_run(bench: Bench) -> None:
    """Check that a small real run, with lost reports, trains with the strategy."""
    if not bench.options.run:
        raise NotApplicable("run=False")
    import fedjax_sel

    n, rounds = bench.options.num_clients, bench.options.rounds
    experiment = fedjax_sel.Experiment.of(
        dataset=f"synthetic:train_size={20 * n},test_size=60,num_classes=4,image_size=4",
        num_clients=n, num_selected=bench.options.num_selected, local_steps=2, batch_size=8, holdout=0.2, rounds=rounds,
        chunk=rounds, eval_every=rounds, report_failure_rate=0.2, algo=bench.strategy,
        timing="tiers" if bench.strategy.needs_clock else "none",
    )  # fmt: skip
    fedjax_sel.run(experiment)


class Check(NamedTuple):
    """A check: a function of a bench that returns a remark or None, and raises Violation or NotApplicable."""

    name: str
    run: Callable[[Bench], str | None]
    needs: tuple[str, ...] = ()


CHECKS: tuple[Check, ...] = (
    Check("contract", contract),
    Check("pure", pure, ("contract",)),
    Check("facts read", facts_read, ("contract",)),
    Check("key used", key_used, ("contract",)),
    Check("key used once", key_used_once, ("contract",)),
    Check("same key", same_key, ("contract",)),
    Check("cohort", cohort, ("contract",)),
    Check("uniform", uniform, ("contract", "cohort")),
    Check("equivariant", equivariant, ("contract", "cohort")),
    Check("availability", availability, ("contract",)),
    Check("silence", silence, ("contract", "availability")),
    Check("no NaN", no_nan, ("contract", "cohort", "availability")),
    Check("K = 1, N - 1, N", sizes, ("contract", "cohort")),
    Check("real run", real_run, ("contract", "cohort")),
)


def examine(
    factory: Callable[[], Strategy] | Strategy,
    *,
    num_clients: int = 12,
    num_selected: int = 3,
    rounds: int = 8,
    games: int = 256,
    seed: int = 0,
    run: bool = True,
    skip: Collection[str] = (),
) -> Report:
    """Run the battery and return its report: for each check its status (passed, failed or skipped) and the reason.

    Args:
        factory: a strategy, or a function without arguments that returns one.
        num_clients: number of clients N of the synthetic federation.
        num_selected: cohort size K, below N.
        rounds: rounds per game; enough for the strategy to reach all of its phases.
        games: games over which frequencies are counted; fewer games are faster and less sensitive.
        seed: random seed.
        run: whether to run a small real experiment.
        skip: names of checks to skip.

    Raises:
        ValueError: a size is out of range, or a check name is unknown.
    """
    skip = {skip} if isinstance(skip, str) else {*skip}
    if unknown := skip - {check.name for check in CHECKS}:
        raise ValueError(f"skip: no check is named {sorted(unknown)[0]!r}; choose from {[c.name for c in CHECKS]}")
    for name, value, least in (("num_clients", num_clients, 2), ("rounds", rounds, 1), ("games", games, 3)):
        if value < least:
            raise ValueError(f"{name}: {value} is below {least}; give at least {least}")
    if not 1 <= num_selected < num_clients:
        raise ValueError(f"num_selected: {num_selected} is out of range; give 1 to {num_clients - 1}")
    try:
        strategy = factory if isinstance(factory, Strategy) else factory()
    except RAISED_BY_PLUGINS as error:
        why = f"calling it without arguments raises {parsing.reason(error)}; bind its arguments in a lambda"
        return _invalid_factory(factory, why)
    if not isinstance(strategy, Strategy):
        kind = type(strategy).__name__
        return _invalid_factory(factory, f"it returns {kind} and must return a fedjax_sel.strategies.contract.Strategy")
    bench = Bench(strategy, Options(num_clients, num_selected, rounds, games, seed, run))
    findings: dict[str, Finding] = {}
    for check in CHECKS:
        findings[check.name] = _run(check, bench, findings, skip)
    return Report(strategy.name, findings)


def check_strategy(factory: Callable[[], Strategy] | Strategy, **options: Any) -> None:
    """Raise a ConformanceError, an AssertionError with one line per failed check, unless a strategy passes.

    Args:
        factory: a strategy, or a function without arguments that returns one.
        **options: options of `examine`.
    """
    examine(factory, **options).require()


def _run(check: Check, bench: Bench, findings: dict[str, Finding], skip: Collection[str]) -> Finding:
    if check.name in skip:
        return Finding("skipped", "by request")
    for need in check.needs:
        if findings[need].status == "failed":
            return Finding("skipped", f"{need!r} failed")
    try:
        with own_errors():
            return Finding("passed", check.run(bench) or "")
    except NotApplicable as reason:
        return Finding("skipped", str(reason))
    except (Violation, UserError) as violation:
        return Finding("failed", str(violation))
    except RAISED_BY_PLUGINS as error:
        return Finding("failed", f"it raises {parsing.reason(error)}")


def _invalid_factory(factory: Any, why: str) -> Report:
    name = getattr(factory, "__name__", type(factory).__name__)
    return Report(name, {"factory": Finding("failed", why)})
