"""The order in which a server calls a strategy's hooks and has its facts served, written once for every server.

    requests_at_start -> prepare -> each round: select -> ask_cohort -> (the cohort trains) -> learn
    select: ask ALL -> observe -> candidates -> ask CANDIDATES -> select

How facts are had is the server's: it gives a function `serve`, which asks clients and enters what they answer,

    serve(info, bill, who, ids, mask, arrives) -> (info, bill)

where `who` is the group that is asked (ALL, CANDIDATES or SELECTED; `requests_to` says for what); `ids`, int32 [M], are
its members, None for everyone; `mask`, bool [M], says who of them is there, None for all who are available; `arrives`,
bool [M], whose answer reaches the server, None for everybody's who is there. What `bill` is, and whether there is one,
is the server's too.

Nothing here is traced or random by itself: it runs under `jit` as well as in plain Python, for one replicate, or with
`over_replicates` for many at once. A server to whom facts come of their own accord, and not when it asks, takes the
steps of `select` one by one: `observe`, then the strategy's own `select`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings
from fedjax_sel.core.jax_versions import enable_x64
from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.base import Fact, Information, Outcome, Selection, Strategy, keep_state
from fedjax_sel.strategies.kinds import KINDS, Counts
from fedjax_sel.strategies.requests import ALL, CANDIDATES, NEVER, SELECTED, Request

Serve = Callable[..., tuple[Information, Any]]


class Known(NamedTuple):
    """What the server knows, handed from step to step."""

    state: Any  # the strategy's
    info: Information
    bill: Any = None  # of what was asked for in this round


class Keys(NamedTuple):
    """Of one round."""

    candidates: jax.Array
    select: jax.Array


class Choice(NamedTuple):
    """Whom a strategy names, as it says it."""

    selection: Selection
    candidates: jax.Array | None  # int32 [d]; None where it names none


def requests_at_start(strategy: Strategy) -> list[tuple[int, Request]]:
    """Return what is asked of all clients before the first round: positions among the requests, and requests."""
    return [(place, request) for place, request in enumerate(strategy.requests) if request.when.before_first_round]


def requests_to(strategy: Strategy, who: str) -> list[tuple[int, Request]]:
    """Return what a group is asked in some round: positions among the requests, and requests; `when.due` says when."""
    return [
        (place, request) for place, request in enumerate(strategy.requests) if request.who == who and request.when.rules
    ]


def prepare(strategy: Strategy, state: Any, info: Information) -> Any:
    """Return the state that the first round starts from, once the facts due at the start are in.

    Args:
        strategy: whose `prepare`, which runs on the CPU with 64-bit types.
        state: as `init` gives it.
        info: the tables.

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
    """Open a round: ask all clients, let the strategy learn from their answers, ask its candidates, and select.

    Args:
        strategy: whose hooks.
        serve: see above.
        known: at w^t.
        keys: of the round.
        round: t, from 0.
        available: who can be reached, bool [N]; None: everyone.

    Returns:
        What is known when the cohort is selected, and whom the strategy names.
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
    """Let the strategy learn from all clients' answers and name its candidates: the first half of `select`.

    Returns:
        The strategy's state, and the candidates, int32 [d]; None where nobody is asked before the cohort is selected.
    """
    state = strategy.observe(state, info, round, available)
    if not requests_to(strategy, CANDIDATES):
        return state, None
    assert strategy.candidates is not None, "refused by kinds.check"
    return state, strategy.candidates(key, state, info, round, available)


def ask_cohort(serve: Serve, known: Known, selection: Selection, arrives: jax.Array | None = None) -> Known:
    """Ask the cohort, on the model from which it then trains.

    Args:
        serve: see above.
        known: when the cohort was selected.
        selection: the cohort.
        arrives: whose report reaches the server, bool [K]; None: everybody's.
    """
    info, bill = serve(known.info, known.bill, SELECTED, selection.ids, selection.mask, arrives)
    return Known(known.state, info, bill)


def learn(strategy: Strategy, known: Known, round: jax.Array, reports: Selection, outcome: Outcome) -> Known:
    """Close a round: let the strategy learn from it, and let every fact become a round older.

    Args:
        strategy: whose `update`.
        known: with what the cohort answered.
        round: t.
        reports: the cohort, with a mask of those who are heard of.
        outcome: of the round.
    """
    return Known(strategy.update(known.state, known.info, round, reports, outcome), aged(known.info), known.bill)


def over_replicates(strategy: Strategy) -> Strategy:
    """Return a strategy whose `prepare` and hooks of a round take and give leaves [S, ...], for S replicates at once.

    The round number is common to all, and so is it whether `available` is None.
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
    """Return the tables before anything is known.

    Args:
        strategy: whose requests.
        counts: what the lengths of facts depend on.
        *clients: the leading axes: N, or S and N.
    """
    tables = {}
    for request in strategy.requests:
        if KINDS[request.kind].has_table:
            value = jnp.zeros((*clients, *kinds.shape(request, counts)), jnp.float32)
            tables[request.kind] = Fact(value, jnp.full(clients, NEVER, jnp.int32))
    return Information(strategy.name, tables)


def entered(info: Information, kind: str, values: jax.Array, heard: jax.Array, age: jax.Array | int = 0) -> Information:
    """Return the tables with what some clients answer now.

    Args:
        info: the tables.
        kind: of the fact.
        values: float32 [N, ...].
        heard: whose answer arrives, bool [N].
        age: of the answers, int32 [N] or one for all; NEVER for one that stands in.
    """
    old: Fact = getattr(info, kind)
    rows = heard.reshape(-1, *[1] * (old.value.ndim - 1))
    return info.replace(kind, Fact(jnp.where(rows, values, old.value), jnp.where(heard, age, old.age)))


def aged(info: Information) -> Information:
    """Return the tables a round later."""
    for kind in info.kinds():
        fact = getattr(info, kind)
        info = info.replace(kind, Fact(fact.value, jnp.minimum(fact.age + 1, NEVER)))
    return info


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _on_host(leaf: Any) -> Any:
    return leaf if _is_key(leaf) else np.asarray(leaf)
