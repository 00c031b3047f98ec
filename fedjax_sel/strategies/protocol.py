"""The order in which every server queries clients and calls a strategy's hooks.

    requests_at_start -> prepare -> each round: select -> ask_cohort -> (the cohort trains) -> learn
    select: query ALL -> observe -> candidates -> query CANDIDATES -> select

The server measures the facts. It passes a function `serve`, which queries clients and stores their answers:

    serve(info, bill, who, ids, mask, arrives) -> (info, bill)

`who` is the queried group: ALL, CANDIDATES or SELECTED (`requests_to` returns its requests). `ids`, int32 [M], are the
members of the group; None means all clients. `mask`, bool [M], marks the available members; None means every available
client. `arrives`, bool [M], marks the answers that reach the server; None means all of them. The server defines the
type of `bill`, or passes None.

These functions run under `jit` and in plain Python: for one replicate, or through `over_replicates` for many at once.
A server that receives facts unasked replaces `select` by its two steps: `observe`, then the strategy's own `select`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings
from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.strategies import facts
from fedjax_sel.strategies.base import Fact, Information, Outcome, Selection, Strategy, keep_state
from fedjax_sel.strategies.facts import ALL, CANDIDATES, KINDS, NEVER, SELECTED, Counts, Request

Serve = Callable[..., tuple[Information, Any]]


class Known(NamedTuple):
    """The server's knowledge, passed from step to step."""

    state: Any  # the strategy's state
    info: Information
    bill: Any = None  # the cost of this round's queries


class Keys(NamedTuple):
    """The random keys of one round."""

    candidates: jax.Array
    select: jax.Array


class Choice(NamedTuple):
    """A strategy's choice of clients in one round."""

    selection: Selection
    candidates: jax.Array | None  # int32 [d]; None without requests to CANDIDATES


def requests_at_start(strategy: Strategy) -> list[tuple[int, Request]]:
    """Return the requests that all clients answer before the first round, as pairs (index, request)."""
    return [(place, request) for place, request in enumerate(strategy.requests) if request.when.before_first_round]


def requests_to(strategy: Strategy, who: str) -> list[tuple[int, Request]]:
    """Return the requests that a group answers during rounds, as pairs (index, request); see `request.when.due`."""
    return [
        (place, request) for place, request in enumerate(strategy.requests) if request.who == who and request.when.rules
    ]


def prepare(strategy: Strategy, state: Any, info: Information) -> Any:
    """Return the state of the first round, after the facts due at the start have been measured.

    Args:
        strategy: the strategy; its `prepare` runs on the CPU with 64-bit types.
        state: the state that `init` returned.
        info: the tables of facts.

    Returns:
        The state with the dtypes of `state`, in host memory.
    """
    if strategy.prepare is keep_state:
        return state
    arguments = jax.tree.map(_on_host, (state, info))
    with enable_x64(True), jax.default_device(jax_settings.cpu()):
        prepared = jax.tree.map(_on_host, jax.jit(strategy.prepare)(*arguments))
    return jax.tree.map(lambda old, new: new if _is_key(old) else new.astype(old.dtype), arguments[0], prepared)


def select(
    strategy: Strategy, serve: Serve, known: Known, keys: Keys, round: jax.Array, available: jax.Array | None
) -> tuple[Known, Choice]:
    """Open a round: query all clients, call `observe`, query the candidates, and select the cohort.

    Args:
        strategy: the strategy.
        serve: the server's query function; see the module docstring.
        known: the server's knowledge before the round.
        keys: the round's keys.
        round: round number t, from 0.
        available: availability of the clients, bool [N]; None: all are available.

    Returns:
        The updated knowledge, and the strategy's choice.
    """
    info, bill = serve(known.info, known.bill, ALL)
    state, candidates = observe(strategy, known.state, info, keys.candidates, round, available)
    if candidates is not None:
        info, bill = serve(info, bill, CANDIDATES, candidates)
    selection = strategy.select(keys.select, state, info, round, available)
    return Known(state, info, bill), Choice(selection, candidates)


def observe(
    strategy: Strategy, state: Any, info: Information, key: jax.Array, round: jax.Array, available: jax.Array | None
) -> tuple[Any, jax.Array | None]:
    """Run the first half of `select`: update the state from all clients' answers, and choose the candidates.

    Returns:
        The strategy's state, and the candidates, int32 [d]; None without requests to CANDIDATES.
    """
    state = strategy.observe(state, info, round, available)
    if not requests_to(strategy, CANDIDATES):
        return state, None
    assert strategy.candidates is not None, "kinds.check rejects this strategy"
    return state, strategy.candidates(key, state, info, round, available)


def ask_cohort(serve: Serve, known: Known, selection: Selection, arrives: jax.Array | None = None) -> Known:
    """Query the cohort on the round's model, before it trains.

    Args:
        serve: the server's query function; see the module docstring.
        known: the server's knowledge after the selection.
        selection: the cohort.
        arrives: reports that reach the server, bool [K]; None: all of them.
    """
    info, bill = serve(known.info, known.bill, SELECTED, selection.ids, selection.mask, arrives)
    return Known(known.state, info, bill)


def learn(strategy: Strategy, known: Known, round: jax.Array, reports: Selection, outcome: Outcome) -> Known:
    """Close a round: call the strategy's `update`, and age every fact by one round.

    Args:
        strategy: the strategy.
        known: the server's knowledge, with the cohort's answers.
        round: round number t.
        reports: the cohort; its mask marks the reports that arrived.
        outcome: the result of the round.
    """
    return Known(strategy.update(known.state, known.info, round, reports, outcome), aged(known.info), known.bill)


def over_replicates(strategy: Strategy) -> Strategy:
    """Return a strategy whose hooks are batched over S replicates: arguments and results have leaves [S, ...].

    All replicates share the round number; `available` is None for all of them or for none.
    """

    def over(hook: Any, *axes: int | None) -> Any:
        return hook if hook is None or hook is keep_state else jax.vmap(hook, in_axes=axes)

    return strategy._replace(
        prepare=over(strategy.prepare, 0, 0),
        observe=over(strategy.observe, 0, 0, None, 0),
        candidates=over(strategy.candidates, 0, 0, 0, None, 0),
        select=over(strategy.select, 0, 0, 0, None, 0),
        update=over(strategy.update, 0, 0, None, 0, 0),
        inclusion=over(strategy.inclusion, 0, 0, None, 0),
    )


def nothing_known(strategy: Strategy, counts: Counts, *clients: int) -> Information:
    """Return tables in which no fact has been measured.

    Args:
        strategy: the strategy whose requests define the tables.
        counts: the sizes P, C and Q.
        *clients: the leading axes: N, or S and N.
    """
    tables = {}
    for request in strategy.requests:
        if KINDS[request.kind].has_table:
            value = jnp.zeros((*clients, *facts.shape(request, counts)), jnp.float32)
            tables[request.kind] = Fact(value, jnp.full(clients, NEVER, jnp.int32))
    return Information(strategy.name, tables)


def entered(
    info: Information, kind: str, values: jax.Array, arrived: jax.Array, age: jax.Array | int = 0
) -> Information:
    """Return the tables with new answers of some clients.

    Args:
        info: the tables.
        kind: the kind of fact.
        values: the answers, float32 [N, ...].
        arrived: clients whose answers arrive, bool [N].
        age: age of the answers in rounds, int32 [N] or scalar; NEVER for an imputed value.
    """
    old: Fact = getattr(info, kind)
    rows = arrived.reshape(-1, *[1] * (old.value.ndim - 1))
    return info.replace(kind, Fact(jnp.where(rows, values, old.value), jnp.where(arrived, age, old.age)))


def aged(info: Information) -> Information:
    """Return the tables with every age increased by one round."""
    for kind in info.kinds():
        fact = getattr(info, kind)
        info = info.replace(kind, Fact(fact.value, jnp.minimum(fact.age + 1, NEVER)))
    return info


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _on_host(leaf: Any) -> Any:
    return leaf if _is_key(leaf) else np.asarray(leaf)
