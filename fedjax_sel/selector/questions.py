"""Which facts are due where a Selector stands, and what an answer to them changes."""

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
        kind: as in `Request`, whose docstring says what a client measures.
        who: "all", "candidates" or "selected": the group that is asked.
        clients: whom to ask, by name.
        options: of the measurement, such as {"on": "holdout"}; what is left out is as in `Request`.
        shape: of one client's answer, real numbers.
        needs_model: whether a client must have the round's model to answer.
        largest_known: of a loss, the largest that anybody ever answered, nats; -inf without. Where a client answers
            NaN, the simulator takes the largest finite loss of those who answer now and of this one.
    """

    kind: str
    who: str
    clients: tuple[Name, ...]
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    needs_model: bool
    largest_known: float = -np.inf


def due(terms: Terms, now: Standing) -> tuple[Ask, ...]:
    """Return the facts that are due and were not told."""
    if now.round == terms.size.num_rounds:
        return ()
    if now.phase == "candidates":
        asked = () if now.candidates is None else now.candidates
    elif now.phase == "cohort":
        assert now.selection is not None
        asked = now.selection.ids[now.selection.mask]
    else:
        reachable = None if now.phase == "start" else now.there
        asked = range(terms.size.num_clients) if reachable is None else np.flatnonzero(reachable)
    found = {request.kind: request for request in _requests(terms, now) if request.kind not in now.told}
    clients = terms.clients.named(asked) if found else ()
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
        for kind, request in found.items()
    )


def _largest_known(now: Standing, kind: str) -> float:
    fact: Fact = getattr(now.info, kind)
    heard_of = np.asarray(fact.age) < NEVER
    return float(np.asarray(fact.value)[heard_of].max(initial=-np.inf))


def told(terms: Terms, now: Standing, kind: str, ids: Iterable[Name], values: Any) -> Standing:
    """Return the standing with what clients answered to one question.

    Args:
        terms: of the Selector.
        now: where it stands.
        kind: of the fact.
        ids: who answered.
        values: a row for each.

    Raises:
        UserError: the fact was not bought or is not due, somebody was not asked, or the values do not fit.
    """
    bought = tuple(dict.fromkeys(request.kind for request in terms.strategy.requests if request.who != SERVER))
    if kind not in bought:
        raise UserError(
            f"tell: strategy {terms.strategy.name!r} did not buy {shown(kind)}; it buys "
            f"{' and '.join(bought) or 'nothing'}: tell what `asks` names"
        )
    asks = {ask.kind: ask for ask in due(terms, now)}
    if kind not in asks:
        why = "was told already" if kind in now.told else "is not due now"
        raise UserError(f"tell: {kind!r} {why} in round {now.round + 1}; tell what `asks` names")
    ids = tuple(ids) if isinstance(ids, Iterable) and not isinstance(ids, str | bytes) else ids
    places = terms.clients.places(f"tell {kind!r}", ids)
    asked = terms.clients.mask("asks", asks[kind].clients)
    if not asked[places].all():
        stranger = terms.clients.names[places[~asked[places]][0]]
        raise UserError(f"tell {kind!r}: client {shown(stranger)} was not asked; leave it out")
    rows = answers.numbers(f"tell {kind!r}", values, (len(places), *asks[kind].shape), terms.clients.named(places))
    if KINDS[kind].is_loss:
        rows = np.clip(rows, -LARGEST, LARGEST)  # as the simulator does

    old: Fact = getattr(now.info, kind)
    value, age = np.array(old.value), np.array(old.age)
    value[0, places], age[0, places] = rows, 0
    silent = now.silent
    if now.phase in ("all", "candidates"):
        silent = silent | asked
        silent[places] = now.silent[places]
    requests = [request for request in _requests(terms, now) if request.kind == kind]
    available = now.available()
    reachable = terms.size.num_clients if available is None else int(available.sum())
    cohort = min(terms.size.num_selected, reachable)
    return now._replace(
        info=now.info.replace(kind, Fact(value, age)),  # pyright: ignore[reportArgumentType]
        silent=silent,
        told=(*now.told, kind),
        account=now.account.asked(requests, terms.counts, asked, len(places), cohort),
    )


def _requests(terms: Terms, now: Standing) -> list[Request]:
    """Return the requests of this phase that are due, also those that were told."""
    if now.phase == "start":
        return [request for _, request in protocol.requests_at_start(terms.strategy) if request.who != SERVER]
    group = protocol.requests_to(terms.strategy, _GROUPS[now.phase])
    return [request for _, request in group if bool(request.when.due(jnp.int32(now.round)))]
