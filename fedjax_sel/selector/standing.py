"""A Selector's state between two calls: due queries, recorded answers, and the communication so far."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.selector.answers import FINITE_LOSSES, Name, answer_rows, nonnegative, perturbed_values
from fedjax_sel.selector.terms import Terms
from fedjax_sel.simulation import availability
from fedjax_sel.strategies import facts, protocol
from fedjax_sel.strategies.contract import Fact, Information, Selection
from fedjax_sel.strategies.facts import ALL, CANDIDATES, KINDS, NEVER, SELECTED, SERVER, Counts, Request
from fedjax_sel.strategies.privacy import NO_NOISE, ClientNoise

# As in the simulator's ledger, a client that is both queried and selected in a round receives the model once. Queries
# before the first round count for the first round.


class Spent(NamedTuple):
    """Communication of one or several rounds."""

    models_down: int = 0  # one per client queried or selected, plus the probes' copies
    models_up: int = 0  # updates of the cohort and of the probes' cohorts
    floats_up: int = 0  # answers, and losses sent with updates


class SelectorBill(NamedTuple):
    """Communication of a Selector so far."""

    rounds: tuple[Spent, ...]  # one entry per round, with the current one
    total: Spent


class Account(NamedTuple):
    """Immutable communication account of the rounds so far."""

    past: tuple[Spent, ...]
    received: np.ndarray  # clients that received the current round's model, bool [N]
    perturbed: np.ndarray  # recorded queries for perturbed answers that each client has received, int32 [N]
    beside: Spent = Spent()  # the current round's costs without the models of `received`

    def with_answers(
        self, requests: list[Request], counts: Counts, queried: np.ndarray, answered: int, cohort: int
    ) -> "Account":
        """Return the account after `answered` of `queried`, bool [N], answered; `cohort` clients train per probe."""
        account = self
        for request in requests:
            probes = facts.num_probes(request)
            down, up, floats = account.beside
            spent = Spent(
                down + probes * int(queried.sum()),
                up + probes * cohort,
                floats + answered * facts.floats(request, counts),
            )
            received = account.received | queried if KINDS[request.kind].needs_model else account.received
            account = account._replace(received=received, beside=spent)
        return account

    def current(self) -> Spent:
        """Return the costs of the current round so far."""
        return self.beside._replace(models_down=self.beside.models_down + int(self.received.sum()))

    def closed(self, clients: int, losses: int) -> "Account":
        """Return the account of the next round, after `clients` clients each sent an update with `losses` losses."""
        down, up, floats = self.current()
        spent = Spent(down, up + clients, floats + losses * clients)
        return self._replace(past=(*self.past, spent), received=np.zeros_like(self.received), beside=Spent())

    def bill(self) -> SelectorBill:
        """Return the bill of all rounds so far."""
        current = self.current()
        rounds = self.past if current == Spent() else (*self.past, current)
        return SelectorBill(rounds, Spent(*(sum(column) for column in zip(*rounds))) if rounds else Spent())


Phase = Literal["start", "all", "candidates", "cohort"]
"""Before the first round; queries to all clients; queries to the candidates; after the selection."""


class Standing(NamedTuple):
    """State of a Selector between two calls."""

    phase: Phase
    round: int  # from 0
    state: Any  # the strategy's state, leaves [1, ...]
    info: Information  # leaves [1, N, ...]
    account: Account
    reachable: np.ndarray | None  # clients that the caller named as available in this round, bool [N]; None: all
    silent: np.ndarray  # clients that left a query of this round unanswered, bool [N]
    answered: tuple[str, ...] = ()  # kinds recorded in this phase
    candidates: np.ndarray | None = None  # available candidates, int32 [<= d]
    selection: Selection | None = None  # [K]
    asked: Mapping[str, np.ndarray] = {}  # kind -> clients with unrecorded queries for perturbed answers, bool [N]

    def available(self) -> np.ndarray | None:
        """Return the mask of the clients that count as available, bool [N]; None: all."""
        if not self.silent.any():
            return self.reachable
        return ~self.silent if self.reachable is None else self.reachable & ~self.silent

    def perturbed(self) -> np.ndarray:
        """Return the number of queries for perturbed answers that each client has received, int32 [N]."""
        return sum(self.asked.values(), self.account.perturbed)

    def arrays(self) -> Any:
        """Return the part of the state between two rounds that is saved as arrays."""
        return self.state, self.info, self.account.received, self.perturbed()

    def words(self) -> dict[str, Any]:
        """Return the part of the state between two rounds that is saved as JSON."""
        return {"phase": self.phase, "round": self.round, "past": self.account.past, "beside": self.account.beside}


def restored(words: dict[str, Any], arrays: Any) -> Standing:
    """Return the state between two rounds from the values of `words` and `arrays`."""
    state, info, received, perturbed = arrays
    account = Account(tuple(Spent(*spent) for spent in words["past"]), received, perturbed, Spent(*words["beside"]))
    return Standing(words["phase"], words["round"], state, info, account, None, np.zeros_like(received))


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
        noise: with `privacy`, the bound and the noise of each client's answer by name; empty if it needs none.
    """

    kind: str
    who: str
    clients: tuple[Name, ...]
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    needs_model: bool
    largest_known: float = -np.inf
    noise: Mapping[Name, ClientNoise] = {}


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
        reachable = None if now.phase == "start" else now.reachable
        queried = range(terms.size.num_clients) if reachable is None else np.flatnonzero(reachable)
    pending = {request.kind: request for request in _requests(terms, now) if request.kind not in now.answered}
    asks, answers = [], np.array(now.account.perturbed)
    for kind, request in pending.items():
        places = np.asarray(queried, int)
        if terms.noise is not None and kind not in NO_NOISE:
            places = places[answers[places] < terms.noise.answers]  # the others have used up their budget
            answers[places] += 1
        largest = -np.inf
        if KINDS[kind].is_loss:
            fact: Fact = getattr(now.info, kind)
            largest = float(fact.value[fact.age < NEVER].max(initial=-np.inf))
        options, shape = dict(request.options), facts.shape(request, terms.counts)
        clients, noise = terms.clients.named(places), terms.client_noise(request, places)
        asks.append(Ask(kind, request.who, clients, options, shape, KINDS[kind].needs_model, largest, noise))
    return tuple(asks)


def asked(terms: Terms, now: Standing, asks: Iterable[Ask]) -> Standing:
    """Return the state after queries were sent: a perturbed answer that is lost has spent budget, too."""
    masks = dict(now.asked)
    for ask in asks:
        if ask.noise:
            masks[ask.kind] = terms.clients.mask("asks", ask.clients) | masks.get(ask.kind, False)
    return now._replace(asked=masks) if masks else now


def record(terms: Terms, now: Standing, kind: str, ids: Iterable[Name], values: Any) -> Standing:
    """Return the state after the answers of M clients to one query, rows [M, *shape]; reject invalid answers."""
    requested = tuple(dict.fromkeys(request.kind for request in terms.strategy.requests if request.who != SERVER))
    if kind not in requested:
        raise UserError(
            f"tell: strategy {terms.strategy.name!r} does not request {shown(kind)} (it requests "
            f"{' and '.join(requested) or 'nothing'}); report the facts that `asks` returns"
        )
    asks = {ask.kind: ask for ask in due(terms, now)}
    if kind not in asks:
        why = "was already reported" if kind in now.answered else "is not due"
        raise UserError(f"tell: {kind!r} {why} in round {now.round + 1}; report the facts that `asks` returns")
    places = terms.clients.places(f"tell {kind!r}", ids)
    queried = terms.clients.mask("asks", asks[kind].clients)
    if not queried[places].all():
        stranger = terms.clients.names[places[~queried[places]][0]]
        raise UserError(f"tell {kind!r}: client {shown(stranger)} was not queried; leave it out")
    names = terms.clients.named(places)
    may_be_missing = KINDS[kind].is_loss and asks[kind].options.get("nonfinite") == "missing"
    advice = (FINITE_LOSSES,) if KINDS[kind].is_loss else ()
    if asks[kind].noise:
        values = perturbed_values(kind, values, names, asks[kind].noise)
    shape = (len(places), *asks[kind].shape)
    rows = answer_rows(f"tell {kind!r}", values, shape, names, *advice, finite=not may_be_missing)
    if KINDS[kind].needs_clock:
        rows = nonnegative(f"tell {kind!r}", rows, names)
    missing: Any = np.zeros(len(places), bool)
    if KINDS[kind].is_loss and len(places):  # as in the simulator
        rows, missing, _ = availability.replace_nonfinite(jnp.asarray(rows), ~missing, asks[kind].largest_known)

    old: Fact = getattr(now.info, kind)
    value, age = np.array(old.value), np.array(old.age)
    value[0, places], age[0, places] = rows, np.where(missing, NEVER, 0)
    silent = now.silent
    if now.phase in ("all", "candidates"):
        silent = silent | queried
        silent[places] = now.silent[places]
    requests = [request for request in _requests(terms, now) if request.kind == kind]
    available = now.available()
    reachable = terms.size.num_clients if available is None else int(available.sum())
    cohort = min(terms.size.num_selected, reachable)
    account = now.account.with_answers(requests, terms.counts, queried, len(places), cohort)
    sent = now.asked.get(kind, np.zeros_like(queried)) | (queried & bool(asks[kind].noise))
    account = account._replace(perturbed=account.perturbed + sent)
    return now._replace(
        info=now.info.replace(kind, Fact(value, age)),  # pyright: ignore[reportArgumentType]
        silent=silent,
        answered=(*now.answered, kind),
        account=account,
        asked={other: mask for other, mask in now.asked.items() if other != kind},
    )


def _requests(terms: Terms, now: Standing) -> list[Request]:
    """Return the requests of this phase that are due, including answered ones."""
    if now.phase == "start":
        return [request for _, request in protocol.requests_at_start(terms.strategy) if request.who != SERVER]
    group = {"all": ALL, "candidates": CANDIDATES, "cohort": SELECTED}[now.phase]
    requests = protocol.requests_to(terms.strategy, group)
    return [request for _, request in requests if bool(request.when.due(jnp.int32(now.round)))]
