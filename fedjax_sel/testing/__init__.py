"""The conformance kit: one battery of checks for built-in and user-defined strategies.

    from fedjax_sel.testing import check_strategy
    check_strategy(my_strategy)          # raises an error that lists all failed checks
    print(examine(my_strategy))          # prints the result of every check

    python -m fedjax_sel test my_module:my_strategy

Clients' answers are synthetic and follow the strategy's requests. Only the last check trains: it compares the ledger of
a small real run with the cost implied by the requests.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError
from fedjax_sel.strategies import checks
from fedjax_sel.strategies.contract import ALL, CANDIDATES, SELECTED, Now, Request, Schedule, Strategy, keep_state
from fedjax_sel.strategies.from_numpy import own_errors
from fedjax_sel.strategies.protocol import fields_read
from fedjax_sel.testing.bench import (
    UNCHECKED,
    Bench,
    ConformanceError,
    Finding,
    NotApplicable,
    Options,
    Record,
    Report,
    Violation,
)

__all__ = ["CHECKS", "Check", "ConformanceError", "Finding", "Report", "check_strategy", "examine"]


def requests(bench: Bench) -> None:
    """Check that each request has a known kind, a group that can answer it, and a valid schedule."""
    checks.requests(bench.strategy)


def traceable(bench: Bench) -> None:
    """Check that every hook can be traced, and reads only requested facts."""
    _ = bench.state
    with checks.explained("select"):
        checks.is_selection(bench.selection)
    for name, hook in bench.hooks().items():
        checks.trace(name, hook)


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


def state(bench: Bench) -> None:
    """Check that every hook keeps the structure, shapes and dtypes of the state."""
    for name, hook in bench.own_hooks().items():
        if name in ("observe", "update"):
            checks.same_state(name, bench.state, checks.trace(name, hook))


def key_used(bench: Bench) -> None:
    """Check that `select` uses its key."""
    if bench.num_places == bench.options.num_clients:
        raise NotApplicable("a cohort has a place for every client")
    select, arguments = bench.hooks()["select"]
    if not fields_read(select, *arguments)[0]:
        raise Violation(
            "`select` does not use its key: use it to break ties (sampling.top_k) and to draw, instead of a key "
            "created elsewhere or stored in the state"
        )


def key_used_once(bench: Bench) -> str:
    """Check that no key is consumed twice, with JAX's key-reuse checker."""
    remark = bench.loop.key_reuse
    if remark and not remark.startswith(UNCHECKED):
        raise Violation(f"a key is consumed twice ({remark}); split it into one key per draw")
    return remark


def same_key(bench: Bench) -> None:
    """Check that the same keys give the same cohorts."""
    for round, (a, b) in enumerate(zip(bench.loop.records, bench.repeat())):
        if (np.asarray(a.ids) != np.asarray(b.ids)).any():
            raise Violation(
                f"the same keys give another cohort in round {round} of a second game: the strategy stores values "
                "outside the state or draws without the key; use the state and the key"
            )


def scan_and_vmap(bench: Bench) -> None:
    """Check that a scan over rounds under a vmap over seeds gives the same cohorts as a Python loop over rounds."""
    together = bench.games["ordinary"].ids
    for game, records in enumerate((bench.loop.records, *bench.loop.others)):
        for round, record in enumerate(records):
            if (np.asarray(record.ids) != together[game, round]).any():
                raise Violation(
                    f"under scan and vmap the cohort of round {round} is {together[game, round].tolist()}, but in a "
                    f"Python loop {record.ids.tolist()}; look for Python state, and for ties decided by rounding"
                )


def eager(bench: Bench) -> None:
    """Check that the cohort of the last round is the same without jit."""
    round = bench.options.rounds - 1
    try:
        ids = bench.eager_round(round).ids.tolist()
    except Exception as error:
        raise Violation(f"without jit, round {round} raises {parsing.reason(error)}") from error
    compiled = bench.loop.records[round].ids.tolist()
    if ids != compiled:
        raise Violation(
            f"without jit the cohort of round {round} is {ids}, but with jit {compiled}; look for Python state, and "
            "for ties decided by rounding"
        )


def no_retrace(bench: Bench) -> None:
    """Check that a compiled round serves all rounds."""
    # `init` may return weak types and `update` strong types, which costs one more trace, but not one per round.
    for name in ("select", "observe", "update"):
        count = bench.loop.traces[name]
        if count > 2:
            raise Violation(
                f"`{name}` is traced {count} times in {bench.options.rounds} rounds; store values that change between "
                "rounds as arrays in the state"
            )


ADVICE = {
    "ordinary": "look for a division by zero or the logarithm of zero",
    "alike": "look for a division by a spread or a distance that is zero if all clients are identical",
    "twins": "look for a division by a distance that is zero between two clients",
    "extreme": "look for exp of a large loss (subtract the maximum), or squares of it",
    "sparse": "ignore places of the cohort with mask False",
    "diverging": "mask the updates of clients with outcome.finite False (jnp.where) before any computation",
}


def no_nan(bench: Bench, world: str) -> None:
    """Check that the state has no NaN after any round of a world."""
    nan = (bench.sparse_games if world == "sparse" else bench.games)[world].nan
    if nan.any():
        raise Violation(f"the state holds NaN after round {nan.any(axis=0).argmax()}; {ADVICE[world]}")


def keys_matter(bench: Bench) -> None:
    """Check that different keys give different cohorts if all clients are identical."""
    games = bench.games["alike"]
    _skip_full(bench, games)
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
    if strategy.update is not keep_state or strategy.observe is not keep_state:
        return
    games = bench.games["alike"]
    _skip_full(bench, games)
    first = [sorted(game[0]) for game in games.ids.tolist()]
    if all(sorted(ids) == cohort for game, cohort in zip(games.ids.tolist(), first) for ids in game):
        raise Violation("every round repeats the first cohort; use the round's key, not one stored in the state")


def _skip_full(bench: Bench, games: Record) -> None:
    """Skip a check of random draws if every cohort consists of all clients."""
    if games.mask.all() and bench.num_places == bench.options.num_clients:
        raise NotApplicable("it selects all clients")


# Exchangeability: a selection may depend on the clients' data, but not on their indices. Frequencies over many games
# are compared at LIMIT standard errors. For a few hundred comparisons the probability of a false alarm is below 1e-3.
LIMIT = 5.0  # standard errors


def uniform(bench: Bench) -> None:
    """Check that identical clients are selected equally often, in every round and in total."""
    chosen = _chosen(bench, bench.games["alike"])  # [games, T, N]
    num_rounds = chosen.shape[1]
    for when, samples, rounds in (
        *((f"in round {round}", chosen[:, round], 1) for round in range(num_rounds)),
        ("over all rounds", chosen.sum(axis=1), num_rounds),
    ):
        worst, distance = _largest(samples)
        if distance > LIMIT:
            raise Violation(
                f"identical clients are not selected equally often: {when} client {worst} is in "
                f"{samples[:, worst].mean() / rounds:.0%} of the cohorts instead of {samples.mean() / rounds:.0%}; "
                "break ties at random (sampling.top_k), never by index"
            )


def uniform_pairs(bench: Bench) -> None:
    """Check that all pairs of identical clients are selected together equally often."""
    pairs, names = _pairs(_chosen(bench, bench.games["alike"]))
    worst, distance = _largest(pairs)
    if distance > LIMIT:
        raise Violation(
            f"clients are identical, but {names[worst]} are selected together {pairs[:, worst].mean():.2f} times per "
            f"game instead of {pairs.mean():.2f}; shuffle before grouping, and break ties at random"
        )


def equivariant(bench: Bench) -> None:
    """Check that relabeling the clients relabels the cohorts in distribution: single clients and pairs."""
    here = _chosen(bench, bench.games["ordinary"])
    relabelled = np.empty_like(here)
    relabelled[..., bench.order] = _chosen(bench, bench.games["relabelled"])
    clients = [f"client {i}" for i in range(here.shape[-1])]
    pairs, names = _pairs(here)
    for when, a, b, groups in (
        *((f"in round {round}", here[:, round], relabelled[:, round], clients) for round in range(here.shape[1])),
        ("over all rounds", here.sum(axis=1), relabelled.sum(axis=1), clients),
        ("over all rounds", pairs, _pairs(relabelled)[0], names),
    ):
        worst, distance = _apart(a, b)
        if distance > LIMIT:
            raise Violation(
                f"{when} {groups[worst]}: selected {a[:, worst].mean():.2f} times per game, and "
                f"{b[:, worst].mean():.2f} times with other indices; do not use a client's index"
            )


def _chosen(bench: Bench, games: Record) -> np.ndarray:
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


def _largest(samples: np.ndarray) -> tuple[int, float]:
    """Return the column of [games, columns] whose mean is farthest from the overall mean, in standard errors."""
    # The columns have equal distributions, so variances are pooled; the last term keeps the variance positive.
    variance = samples.var(axis=0).mean() + 1 / len(samples)
    distance = np.abs(samples.mean(axis=0) - samples.mean()) / np.sqrt(variance / len(samples))
    return int(distance.argmax()), float(distance.max())


def _apart(a: np.ndarray, b: np.ndarray) -> tuple[int, float]:
    """Return the column with the largest difference of means of two samples [games, columns], in standard errors."""
    variance = np.concatenate([a, b]).var(axis=0) + 1 / len(a)
    distance = np.abs(a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(2 * variance / len(a))
    return int(distance.argmax()), float(distance.max())


TOLERANCE = 1e-5  # tolerance of the sum of weights


def answer(bench: Bench) -> None:
    """Check that `select` returns a Selection with the right shapes and dtypes."""
    checks.selection(bench.selection, bench.num_places, bench.strategy.max_selected is not None)
    if bench.strategy.candidates is not None:
        named = checks.trace("candidates", bench.hooks()["candidates"])
        checks.candidates(named, bench.options.num_clients)


def cohort(bench: Bench) -> None:
    """Check that, with all clients available, K distinct valid clients are selected and weights sum to 1.

    If a strategy has `inclusion` or a random cohort size, its weights need to sum to 1 only in expectation. `inclusion`
    is positive for every client.
    """
    for games in bench.games.values():
        _check(bench, games, True)


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
    elif bench.strategy.max_selected is None and (chosen != np.minimum(k, reachable)).any():
        where = np.argwhere(chosen != np.minimum(k, reachable))[0]
        raise Violation(
            f"{chosen[tuple(where)]} clients are selected, but {reachable[tuple(where)]} are available and K = {k}; "
            "fill all places while available clients remain"
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


def weights_declared(bench: Bench) -> None:
    """Check that a strategy that draws with replacement returns weights, because repeated draws must count."""
    if not bench.strategy.with_replacement:
        raise NotApplicable("it draws without replacement")
    if bench.selection.weights is None:
        raise Violation("it draws with replacement but returns no weights; a client drawn r times has weight r / K")


# The prices of facts are deliberately written a second time: an oracle that read `strategies/facts.py` would repeat its
# errors.

LOST = 0.2  # fraction of lost reports in the experiment
CLASSES = 4


class Counts(NamedTuple):
    """The traffic of one round."""

    models_down: int
    models_up: int
    floats_up: int


def ledger(bench: Bench) -> None:
    """Check that the ledger of a real run equals the cost implied by the requests."""
    if not bench.options.run:
        raise NotApplicable("run=False")
    import fedjax_sel

    n, rounds = bench.options.num_clients, bench.options.rounds
    candidates: dict[int, set[int]] = defaultdict(set)
    reporting: dict[int, set[int]] = defaultdict(set)
    experiment = fedjax_sel.Experiment.of(
        dataset=f"synthetic:train_size={20 * n},test_size=60,num_classes={CLASSES},image_size=4",
        num_clients=n, num_selected=bench.options.num_selected, local_steps=2, batch_size=8, holdout=0.2, rounds=rounds,
        chunk=rounds, eval_every=rounds, report_failure_rate=LOST,
        algo=_watched(bench.strategy, candidates, reporting), timing="tiers" if bench.strategy.needs_clock else "none",
    )  # fmt: skip
    result = fedjax_sel.run(experiment)
    jax.effects_barrier()
    update, arguments = bench.hooks()["update"]
    outcome = fields_read(update, *arguments)[-1]
    reports = int(outcome.losses_before) + int(outcome.losses_after)
    for round in range(rounds):
        lost = int(result.ledger.reports_lost[0, round])
        cohort = set(result.cohorts[0, round].tolist()) - {-1}
        queried = {ALL: set(range(n)), CANDIDATES: candidates[round], SELECTED: reporting[round]}
        implied = expected(bench, result.model, queried, cohort, round, reports, lost)
        billed = Counts(*(int(getattr(result.ledger, name)[0, round]) for name in Counts._fields))
        if implied != billed:
            raise Violation(
                f"round {round + 1} of a real run is billed {billed}, but its requests imply {implied}; request every "
                "fact that the strategy reads, or report a bug of the simulator"
            )


def _watched(strategy: Strategy, candidates: dict[int, set[int]], reporting: dict[int, set[int]]) -> Strategy:
    """Return the strategy with callbacks that record its candidates, and the clients whose reports arrive."""

    def named(key, state, now):
        ids = strategy.candidates(key, state, now)  # pyright: ignore[reportOptionalCall]
        jax.debug.callback(functools.partial(_note, candidates), now.round, ids, np.ones(ids.shape, bool))
        return ids

    def update(state, now, selection, outcome):
        jax.debug.callback(functools.partial(_note, reporting), now.round, selection.ids, outcome.reported)
        return strategy.update(state, now, selection, outcome)

    return strategy._replace(candidates=None if strategy.candidates is None else named, update=update)


def _note(table: dict[int, set[int]], round: Any, ids: Any, mask: Any) -> None:
    table[int(round)] = set(np.asarray(ids)[np.asarray(mask)].tolist())


def expected(
    bench: Bench, model: Any, queried: Mapping[str, set[int]], cohort: set[int], round: int, reports: int, lost: int
) -> Counts:
    """Return the cost of a round with all clients available, from plain sets and sums.

    The cohort's answers travel with its reports, and are lost with them. Each selected client sends `reports` losses
    with its update. The ledger counts `lost` reports: the cohort's are known, the others belong to probes. Models down
    are the distinct queried or selected clients, plus the models that probes send.
    """
    reporting, downloads = queried[SELECTED], set(cohort)
    lost_by_probes = lost - (len(cohort) - len(reporting))
    down, up, floats = 0, len(reporting) - lost_by_probes, reports * len(reporting)
    for request in bench.strategy.requests:
        if request.kind in ("server_metrics", "subset_loss"):
            continue
        answer = queried[request.who]
        probes = request.option("probes", 1) if request.kind == "loss_change" else 0
        for _ in range(times_due(request.when, round)):
            if request.kind != "label_histogram":
                downloads |= answer
            down += probes * bench.options.num_clients
            up += probes * bench.options.num_selected
            floats += len(answer) * _length(request, model)
    return Counts(len(downloads) + down, up, floats)


def times_due(when: Schedule, round: int) -> int:
    """Return how often a fact is bought in a round; the first round pays also for facts bought before it."""
    due = any(
        rule.first <= round and (rule.last is None or round <= rule.last) and (round - rule.first) % rule.period == 0
        for rule in when.rules
    )
    return int(due) + int(when.before_first_round and round == 0)


def _length(request: Request, model: Any) -> int:
    """Return the number of floats of one answer."""
    return {
        "loss_change": 1 + request.option("probes", 1),
        "profile": model.profile_size,
        "gradient": model.num_params,
        "update": model.num_params,
        "label_histogram": CLASSES,
    }.get(request.kind, 1)


class Check(NamedTuple):
    """A check: a function of a bench that returns a remark or None, and raises Violation or NotApplicable."""

    name: str
    run: Callable[[Bench], str | None]
    needs: tuple[str, ...] = ()


_TRACED = ("requests", "traceable")
_PLAYED = (*_TRACED, "answer", "state")


CHECKS: tuple[Check, ...] = (
    Check("requests", requests),
    Check("traceable", traceable, ("requests",)),
    Check("pure", pure, _TRACED),
    Check("facts read", facts_read, _TRACED),
    Check("answer", answer, _TRACED),
    Check("weights declared", weights_declared, (*_TRACED, "answer")),
    Check("state", state, _TRACED),
    Check("key used", key_used, _TRACED),
    Check("no retrace", no_retrace, (*_TRACED, "answer")),
    Check("key used once", key_used_once, _PLAYED),
    Check("same key", same_key, _PLAYED),
    Check("cohort", cohort, _PLAYED),
    Check("keys matter", keys_matter, (*_PLAYED, "cohort", "key used")),
    Check("rounds matter", rounds_matter, (*_PLAYED, "cohort", "key used")),
    Check("scan and vmap", scan_and_vmap, _PLAYED),
    Check("eager", eager, _PLAYED),
    *(
        Check(f"nan: {world}", functools.partial(no_nan, world=world), (*_PLAYED, "cohort"))
        for world in ("ordinary", "alike", "twins", "extreme", "diverging")
    ),
    Check("uniform", uniform, (*_PLAYED, "cohort")),
    Check("uniform pairs", uniform_pairs, (*_PLAYED, "cohort", "uniform")),
    Check("equivariant", equivariant, (*_PLAYED, "cohort")),
    Check("availability", availability, _PLAYED),
    Check("silence", silence, (*_PLAYED, "availability")),
    Check("nan: few available", functools.partial(no_nan, world="sparse"), (*_PLAYED, "availability")),
    Check("K = 1, N - 1, N", sizes, (*_PLAYED, "cohort")),
    Check("ledger", ledger, (*_PLAYED, "cohort")),
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
        run: whether to run a small experiment and compare its ledger with the cost implied by the requests.
        skip: names of checks to skip.

    Raises:
        ValueError: a size is out of range, or a check name is unknown.
    """
    if unknown := set(skip) - {check.name for check in CHECKS}:
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
