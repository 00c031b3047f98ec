"""Facts that are due in a Selector's current state, and the state update from their answers."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError
from fedjax_sel.selector import answers
from fedjax_sel.selector.answers import Name
from fedjax_sel.selector.standing import Standing
from fedjax_sel.selector.terms import Terms
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies import kinds, protocol
from fedjax_sel.strategies.base import Fact
from fedjax_sel.strategies.kinds import KINDS
from fedjax_sel.strategies.requests import ALL, CANDIDATES, NEVER, SELECTED, SERVER, Request

_GROUPS = {"all": ALL, "candidates": CANDIDATES, "cohort": SELECTED}


class Ask(NamedTuple):
    """A fact that is due.

    Attributes:
        kind: kind of the fact; the docstring of `Request` defines its measurement.
        who: queried group, "all", "candidates" or "selected".
        clients: names of the clients to query.
        options: options of the measurement, such as {"on": "holdout"}; `Request` gives the defaults.
        shape: shape of one client's answer, real numbers.
        needs_model: whether a client needs the round's model to answer.
        largest_known: largest loss that any client has reported so far, nats; -inf if none, or if the fact is no loss.
            The simulator replaces a NaN loss by the largest finite loss among the current answers and this value.
    """

    kind: str
    who: str
    clients: tuple[Name, ...]
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    needs_model: bool
    largest_known: float = -np.inf


def due(terms: Terms, now: Standing) -> tuple[Ask, ...]:
    """Return the facts that are due and not yet recorded."""
    if now.round == terms.size.num_rounds:
        return ()
    if now.phase == "candidates":
        queried = () if now.candidates is None else now.candidates
    elif now.phase == "cohort":
        assert now.selection is not None
        queried = now.selection.ids[now.selection.mask]
    else:
        reachable = None if now.phase == "start" else now.there
        queried = range(terms.size.num_clients) if reachable is None else np.flatnonzero(reachable)
    pending = {request.kind: request for request in _requests(terms, now) if request.kind not in now.told}
    clients = terms.clients.named(queried) if pending else ()
    return tuple(
        Ask(
            kind,
            request.who,
            clients,
            dict(request.options),
            kinds.shape(request, terms.counts),
            KINDS[kind].needs_model,
            _largest_known(now, kind) if KINDS[kind].is_loss else -np.inf,
        )
        for kind, request in pending.items()
    )


def _largest_known(now: Standing, kind: str) -> float:
    fact: Fact = getattr(now.info, kind)
    measured = np.asarray(fact.age) < NEVER
    return float(np.asarray(fact.value)[measured].max(initial=-np.inf))


def record(terms: Terms, now: Standing, kind: str, ids: Iterable[Name], values: Any) -> Standing:
    """Return the state after the answers to one query.

    Args:
        terms: the Selector's configuration.
        now: the current state.
        kind: kind of the fact.
        ids: names of the M clients that answered.
        values: one row per client in `ids`, [M, *shape].

    Raises:
        UserError: the fact was not requested or is not due, a client was not queried, or `values` is invalid.
    """
    requested = tuple(dict.fromkeys(request.kind for request in terms.strategy.requests if request.who != SERVER))
    if kind not in requested:
        raise UserError(
            f"tell: strategy {terms.strategy.name!r} does not request {shown(kind)} (it requests "
            f"{' and '.join(requested) or 'nothing'}); report the facts that `asks` returns"
        )
    asks = {ask.kind: ask for ask in due(terms, now)}
    if kind not in asks:
        why = "was already reported" if kind in now.told else "is not due"
        raise UserError(f"tell: {kind!r} {why} in round {now.round + 1}; report the facts that `asks` returns")
    ids = tuple(ids) if isinstance(ids, Iterable) and not isinstance(ids, str | bytes) else ids
    places = terms.clients.places(f"tell {kind!r}", ids)
    queried = terms.clients.mask("asks", asks[kind].clients)
    if not queried[places].all():
        stranger = terms.clients.names[places[~queried[places]][0]]
        raise UserError(f"tell {kind!r}: client {shown(stranger)} was not queried; leave it out")
    rows = answers.numbers(f"tell {kind!r}", values, (len(places), *asks[kind].shape), terms.clients.named(places))
    if KINDS[kind].is_loss:
        rows = np.clip(rows, -LARGEST, LARGEST)  # same clipping as in the simulator

    old: Fact = getattr(now.info, kind)
    value, age = np.array(old.value), np.array(old.age)
    value[0, places], age[0, places] = rows, 0
    silent = now.silent
    if now.phase in ("all", "candidates"):
        silent = silent | queried
        silent[places] = now.silent[places]
    requests = [request for request in _requests(terms, now) if request.kind == kind]
    available = now.available()
    reachable = terms.size.num_clients if available is None else int(available.sum())
    cohort = min(terms.size.num_selected, reachable)
    return now._replace(
        info=now.info.replace(kind, Fact(value, age)),  # pyright: ignore[reportArgumentType]
        silent=silent,
        told=(*now.told, kind),
        account=now.account.with_answers(requests, terms.counts, queried, len(places), cohort),
    )


def _requests(terms: Terms, now: Standing) -> list[Request]:
    """Return the requests of this phase that are due, including answered ones."""
    if now.phase == "start":
        return [request for _, request in protocol.requests_at_start(terms.strategy) if request.who != SERVER]
    group = protocol.requests_to(terms.strategy, _GROUPS[now.phase])
    return [request for _, request in group if bool(request.when.due(jnp.int32(now.round)))]
