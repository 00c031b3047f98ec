"""Ask and tell: a strategy's rounds, for a server whose clients answer when they can.

    asks -> tell, until asks gives nothing -> select -> asks -> tell -> update -> the next round

The order of hooks is the protocol's (`strategies/protocol.py`), the keys are the simulator's by name and round, and so,
told the simulator's facts, a Selector names the simulator's cohorts.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import strategies
from fedjax_sel.core import parsing
from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError
from fedjax_sel.selector import account, answers, standing, storage
from fedjax_sel.selector.account import Bill
from fedjax_sel.selector.answers import Clients, Name
from fedjax_sel.selector.hooks import Hooks, Size
from fedjax_sel.selector.standing import Standing
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies import contract, kinds, protocol
from fedjax_sel.strategies.base import Fact, Selection, Strategy
from fedjax_sel.strategies.kinds import KINDS, Counts
from fedjax_sel.strategies.requests import ALL, CANDIDATES, SELECTED, SERVER, Request

_GROUPS = {"all": ALL, "candidates": CANDIDATES, "cohort": SELECTED}
_LENGTHS = {"P": "num_params", "C": "num_classes", "Q": "profile_size"}


class Ask(NamedTuple):
    """A fact that is due.

    Attributes:
        kind: as in `Request`, whose docstring says what a client measures.
        who: "all", "candidates" or "selected": the group that is asked.
        clients: whom to ask, by name.
        options: of the measurement, such as {"on": "holdout"}; what is left out is as in `Request`.
        shape: of one client's answer, real numbers.
        needs_model: whether a client must have the round's model to answer.
    """

    kind: str
    who: str
    clients: tuple[Name, ...]
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    needs_model: bool


class Selector:
    """A strategy for a server loop of anybody's own.

    Whatever is refused raises `UserError`, one sentence, and leaves the Selector as it was.
    """

    def __init__(
        self,
        strategy: str | Strategy,
        num_clients: int,
        num_selected: int,
        num_rounds: int,
        *,
        sizes: Sequence[int] | Mapping[Name, int] | np.ndarray,
        all_sizes: Sequence[int] | Mapping[Name, int] | np.ndarray | None = None,
        num_params: int | None = None,
        num_classes: int | None = None,
        profile_size: int | None = None,
        seed: int = 0,
        clients: Sequence[Name] | None = None,
    ):
        """Begin before the first round.

        Args:
            strategy: a name, a name with parameters such as "pow_d[num_candidates=8]", or a `Strategy`.
            num_clients: N.
            num_selected: K.
            num_rounds: T.
            sizes: training examples of each client, in the order of `clients` or by name.
            all_sizes: the same with those that clients hold out; None: they hold none out.
            num_params: P; needed where gradients, updates or steps are read.
            num_classes: C; needed where label histograms are read.
            profile_size: Q; needed where profiles are read.
            seed: of all draws, as `--seeds` of a run.
            clients: N names, any hashable; None: 0 to N - 1.

        Raises:
            UserError: an argument is wrong, or the strategy breaks its contract.
        """
        for name, value in (("num_clients", num_clients), ("num_selected", num_selected), ("num_rounds", num_rounds)):
            _whole(name, value, 1)
        if num_selected > num_clients:
            raise UserError(f"num_selected: {num_selected} is more than the {num_clients} clients; give at most that")
        _whole("seed", seed, 0)
        names = range(num_clients) if clients is None else tuple(clients)
        if len(names) != num_clients:
            raise UserError(f"clients: these are {len(names)} names, and num_clients={num_clients}; give one for each")
        self._clients = Clients(names)
        self._sizes = answers.sizes("sizes", sizes, self._clients)
        self._all_sizes = self._sizes if all_sizes is None else answers.sizes("all_sizes", all_sizes, self._clients)
        self._strategy = _made(strategy)
        size = Size(num_clients, num_selected, num_rounds)
        contract.requests(self._strategy)
        kinds.check(self._strategy)
        contract.check(self._strategy, *size, everyone_available=True)

        lengths = {"num_params": num_params, "num_classes": num_classes, "profile_size": profile_size}
        for request in self._strategy.requests:
            needed = _LENGTHS.get(KINDS[request.kind].symbol)
            if needed and lengths[needed] is None:
                raise UserError(f"{needed}: strategy {self._strategy.name!r} buys {request.kind!r}; give this number")
        for name, value in lengths.items():
            if value is not None:
                _whole(name, value, 1)
        self._counts = Counts(**{name: 1 if value is None else int(value) for name, value in lengths.items()})
        self._hooks = Hooks(self._strategy, size, self._counts, seed)
        self._size, self._seed = size, int(seed)
        state, info = self._hooks.begin(self._sizes, self._all_sizes)
        self._reads = self._hooks.read(state, info)
        if (self._reads.updates or self._reads.step) and num_params is None:
            raise UserError(f"num_params: strategy {self._strategy.name!r} reads updates; give the model's parameters")
        nobody = np.zeros((num_clients,), bool)
        now = Standing("start", 0, state, info, account.nothing(num_clients), None, nobody)
        if not protocol.requests_at_start(self._strategy):
            now = self._started(now)
        self._now = now

    @property
    def round(self) -> int:
        """The round that is under way, from 0; the number of rounds once all are over."""
        return self._now.round

    @property
    def reads(self) -> tuple[str, ...]:
        """What `update` must be given, beside who reported: names of its arguments."""
        found = self._reads
        fields = [name for name in ("updates", "losses_before", "losses_after", "step") if getattr(found, name)]
        return (*fields, *(["metrics"] if self._reads_metrics() else []))

    def asks(self, available: Iterable[Name] | None = None) -> tuple[Ask, ...]:
        """Return which facts are due now; nothing where the cohort can be selected, or the round closed.

        All clients are asked before the first round, whoever can be reached. Then in each round those who can be
        reached, then the strategy's candidates among them, then, after `select`, the cohort: on the model that it
        trains from (`training_loss`: while it trains). The same call gives the same answer until something is told.

        Args:
            available: who can be reached in this round. It is settled by what is first told or selected in the round,
                or once candidates were drawn. None: whom an earlier call named, or everyone.

        Raises:
            UserError: all rounds are over, or somebody unknown is named, or it was settled otherwise.
        """
        now = self._reached("asks", available)
        if now.phase in ("start", "cohort"):
            self._now = now
            return self._due(now)
        if now.phase == "all" and not self._due(now):
            now = self._observed(now)
        self._now = now
        return self._due(now)

    def tell(self, kind: str, ids: Iterable[Name], values: Any) -> None:
        """Enter what clients answered to one `Ask`, once for each.

        Clients that are asked and are not among `ids` did not answer: they count as unavailable for the rest of the
        round, so that they are not selected in it. Before the first round, and of the cohort, their fact is merely
        unknown, or as old as it was.

        Args:
            kind: of the fact.
            ids: who answered, by name: some of those who were asked, or nobody.
            values: real numbers, a row for each, in that order: [M, *shape] with the `shape` of the Ask.

        Raises:
            UserError: the fact was not bought or is not due, somebody was not asked, or the values do not fit.
        """
        now = self._now
        bought = tuple(dict.fromkeys(request.kind for request in self._strategy.requests if request.who != SERVER))
        if kind not in bought:
            raise UserError(
                f"tell: strategy {self._strategy.name!r} did not buy {shown(kind)}; it buys "
                f"{' and '.join(bought) or 'nothing'}: tell what `asks` names"
            )
        due = {ask.kind: ask for ask in self._due(now)}
        if kind not in due:
            why = "was told already" if kind in now.told else "is not due now"
            raise UserError(f"tell: {kind!r} {why} in round {now.round + 1}; tell what `asks` names")
        ids = tuple(ids) if isinstance(ids, Iterable) and not isinstance(ids, str | bytes) else ids
        places = self._clients.places(f"tell {kind!r}", ids)
        asked = self._clients.mask("asks", due[kind].clients)
        if not asked[places].all():
            stranger = self._clients.names[places[~asked[places]][0]]
            raise UserError(f"tell {kind!r}: client {shown(stranger)} was not asked; leave it out")
        rows = answers.numbers(f"tell {kind!r}", values, (len(places), *due[kind].shape), self._clients.named(places))
        if KINDS[kind].is_loss:
            rows = np.clip(rows, -LARGEST, LARGEST)  # as the simulator does

        old: Fact = getattr(now.info, kind)
        value, age = np.array(old.value), np.array(old.age)
        value[0, places], age[0, places] = rows, 0
        silent = now.silent
        if now.phase in ("all", "candidates"):
            silent = silent | asked
            silent[places] = now.silent[places]
        requests = [request for request in self._requests(now) if request.kind == kind]
        available = now.available()
        reachable = self._size.num_clients if available is None else int(available.sum())
        cohort = min(self._size.num_selected, reachable)
        after = now._replace(
            info=now.info.replace(kind, Fact(value, age)),  # pyright: ignore[reportArgumentType]
            silent=silent,
            told=(*now.told, kind),
            account=now.account.asked(requests, self._counts, asked, len(places), cohort),
        )
        if after.phase == "start" and not self._due(after):
            after = self._started(after)
        self._now = after

    def select(self, available: Iterable[Name] | None = None) -> tuple[tuple[Name, ...], np.ndarray | None]:
        """Return the cohort.

        Args:
            available: who can be reached now. Whoever was not there when the round opened, or did not answer, is not
                selected in it all the same. None: whom `asks` was told of, or everyone.

        Returns:
            Its names, and their weights in the new model, float32; None where the strategy leaves them to the server
            (such as in proportion to examples). A strategy may name fewer than K, where it asked candidates that did
            not answer, or draws with replacement.

        Raises:
            UserError: something that is due was not told, somebody unknown is named, or fewer can be reached than K.
        """
        now = self._now
        self._not_over("select", now)
        if now.phase == "cohort":
            raise UserError(f"select: round {now.round + 1} has its cohort; call `update` first")
        named = None if available is None else self._clients.mask("select: available", available)
        if named is not None and now.phase == "all" and not now.told and now.there is None:
            now = now._replace(there=named)  # nothing was settled before
        if (due := self._due(now)) or (now.phase == "all" and self._due(now := self._observed(now))):
            what = " and ".join(repr(ask.kind) for ask in (due or self._due(now)))
            raise UserError(f"select: {what} is due and was not told; call `asks`, then `tell`, with nobody if need be")
        reachable = now.available()
        if named is not None:
            reachable = named if reachable is None else reachable & named
        count = self._size.num_clients if reachable is None else int(reachable.sum())
        if count < self._size.num_selected:
            raise UserError(
                f"select: {count} of {self._size.num_clients} clients can be reached and num_selected="
                f"{self._size.num_selected}; wait until more can, or make a Selector of smaller cohorts"
            )
        answer = self._hooks.select(now.state, now.info, now.round, reachable)
        self._check_cohort(answer)
        if reachable is not None:
            answer = answer._replace(mask=answer.mask & reachable[answer.ids])
        received = np.array(now.account.received)
        received[answer.ids[answer.mask]] = True
        self._now = now._replace(
            phase="cohort", told=(), selection=answer, account=now.account._replace(received=received)
        )
        names = self._clients.named(answer.ids[answer.mask])
        return names, None if answer.weights is None else np.asarray(answer.weights[answer.mask])

    def update(
        self,
        reported: Iterable[Name] | None = None,
        *,
        updates: Any = None,
        losses_before: Any = None,
        losses_after: Any = None,
        step: Any = None,
        metrics: Any = None,
        broken: Iterable[Name] = (),
    ) -> None:
        """Close the round: the strategy learns from what it reads of it (`reads`), and the next one opens.

        What it does not read need not be given, and is neither looked at nor billed.

        Args:
            reported: who of the cohort sent an update; None: all of it, in the order of `select`.
            updates: w_k - w, a pytree with leaves [M, ...] of those who reported, in that order.
            losses_before: loss of the received model on each one's data, [M], nats.
            losses_after: loss after local training, [M], nats.
            step: change of the global model in this round, the same pytree without that axis.
            metrics: the server's own evaluations before and after the round, each `Evaluation` or a mapping of those of
                `correct`, `accuracy` and `loss` that are read.
            broken: who of `reported` sent an update that is not finite.

        Raises:
            UserError: there is no cohort, something that is due or read is missing, somebody was not selected, or a
                value does not fit.
        """
        now = self._now
        self._not_over("update", now)
        selection = now.selection
        if now.phase != "cohort" or selection is None:
            raise UserError(f"update: round {now.round + 1} has no cohort yet; call `select` first")
        if due := self._due(now):
            raise UserError(
                f"update: {' and '.join(repr(ask.kind) for ask in due)} of the cohort was not told; tell it, with "
                "nobody if need be"
            )
        cohort = self._clients.named(selection.ids[selection.mask])
        who = cohort if reported is None else tuple(reported)
        places = self._clients.places("update: reported", who)
        wrong = self._clients.mask("update: broken", broken)
        chosen = {int(place): seat for seat, place in enumerate(selection.ids) if selection.mask[seat]}
        for place in (*places, *np.flatnonzero(wrong)):
            if int(place) not in chosen:
                name = self._clients.names[place]
                raise UserError(f"update: client {shown(name)} was not selected in round {now.round + 1}; leave it out")
        if not set(np.flatnonzero(wrong)) <= set(places):
            raise UserError("update: broken names a client that is not among those who reported; leave it out")
        seats = np.array([chosen[int(place)] for place in places], int)
        k = self._size.num_selected

        def seated(rows: np.ndarray) -> np.ndarray:
            table = np.zeros((k, *rows.shape[1:]), rows.dtype)
            table[seats] = rows
            return table

        fields: dict[str, Any] = {"finite": seated(~wrong[places])}
        values = {"updates": updates, "losses_before": losses_before, "losses_after": losses_after, "step": step}
        for name, value in ({"metrics": metrics} | values).items():
            if name in self.reads and value is None:
                raise UserError(f"update: strategy {self._strategy.name!r} reads {name}; give it")
        losses = [name for name in ("losses_before", "losses_after") if getattr(self._reads, name)]
        for name in losses:
            rows = answers.numbers(f"update: {name}", values[name], (len(who),), who)
            fields[name] = seated(np.clip(rows, -LARGEST, LARGEST))
        if self._reads.updates:
            rows = answers.tree("update: updates", updates, self._counts.num_params, who, wrong[places])
            fields["updates"] = jax.tree.map(seated, rows)
        if self._reads.step:
            fields["step"] = answers.tree("update: step", step, self._counts.num_params, None)
        if self._reads.metrics is not None:
            fields["metrics"] = (
                answers.metrics(metrics, self._reads.metrics) if self._reads_metrics() else _no_metrics(self._reads)
            )
        heard = np.zeros((k,), bool)
        heard[seats] = True
        reports = selection._replace(mask=heard)
        state, info = self._hooks.learn(now.state, now.info, now.round, reports, fields)
        self._now = Standing(
            phase="all",
            round=now.round + 1,
            state=state,
            info=info,
            account=now.account.reported(len(who), len(losses)).closed(),
            there=None,
            silent=np.zeros_like(now.silent),
        )

    def bill(self) -> Bill:
        """Return what was sent so far, by the catalogue's prices, each round's and in total."""
        return self._now.account.bill()

    def save(self, path: str | os.PathLike) -> None:
        """Write where the Selector stands to a file, from which `load` goes on exactly.

        Raises:
            UserError: the file cannot be written.
        """
        now = self._now
        storage.write(Path(path), {"selector": self._identity(), "standing": now.words()}, now.arrays())

    def load(self, path: str | os.PathLike) -> None:
        """Go on where a Selector that was made with the same arguments stood when it was saved.

        Raises:
            UserError: the file cannot be read, is damaged, or is of a Selector that was made otherwise.
        """
        path = Path(path)
        about, leaves = storage.read(path)
        saved = about.get("selector") if isinstance(about, dict) else None
        own = self._identity()
        if saved != own:
            other = [name for name in own if not isinstance(saved, dict) or saved.get(name) != own[name]]
            raise UserError(f"load: {path} is of another Selector ({', '.join(other)}); make this one as that one was")
        try:
            self._now = standing.restored(about["standing"], storage.filled(self._now.arrays(), leaves))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"load: {path} is no whole file of a Selector; give one that `save` wrote") from error

    def _identity(self) -> dict[str, Any]:
        """Return what a saved standing belongs to, as JSON."""

        def digest(*parts: bytes) -> str:
            return hashlib.sha256(b"\0".join(parts)).hexdigest()

        names = (repr(name).encode() for name in self._clients.names)
        requests = [repr(request).encode() for request in self._strategy.requests]
        return {
            "strategy": self._strategy.name,
            "its requests": digest(*requests),
            **self._size._asdict(),
            **self._counts._asdict(),
            "sizes": digest(self._sizes.tobytes(), self._all_sizes.tobytes()),
            "seed": self._seed,
            "clients": digest(*names),
        }

    def _requests(self, now: Standing) -> list[Request]:
        """Return the requests of this phase that are due, also those that were told."""
        if now.phase == "start":
            return [request for _, request in protocol.requests_at_start(self._strategy) if request.who != SERVER]
        group = protocol.requests_to(self._strategy, _GROUPS[now.phase])
        return [request for _, request in group if bool(request.when.due(jnp.int32(now.round)))]

    def _due(self, now: Standing) -> tuple[Ask, ...]:
        """Return the facts that are due and were not told."""
        if now.round == self._size.num_rounds:
            return ()
        if now.phase == "candidates":
            asked = () if now.candidates is None else now.candidates
        elif now.phase == "cohort":
            assert now.selection is not None
            asked = now.selection.ids[now.selection.mask]
        else:
            reachable = None if now.phase == "start" else now.there
            asked = range(self._size.num_clients) if reachable is None else np.flatnonzero(reachable)
        found = {request.kind: request for request in self._requests(now) if request.kind not in now.told}
        clients = self._clients.named(asked) if found else ()
        return tuple(
            Ask(
                kind,
                request.who,
                clients,
                dict(request.options),
                kinds.shape(request, self._counts),
                KINDS[kind].needs_model,
            )
            for kind, request in found.items()
        )

    def _reached(self, what: str, available: Iterable[Name] | None) -> Standing:
        """Return the standing with those who can be reached in this round."""
        now = self._now
        self._not_over(what, now)
        if available is None or now.phase == "start":
            return now
        reachable = self._clients.mask(f"{what}: available", available)
        if now.there is not None and (reachable == now.there).all():
            return now
        if now.phase != "all" or now.told:
            raise UserError(
                f"{what}: who can be reached in round {now.round + 1} was settled otherwise; leave `available` out"
            )
        return now._replace(there=reachable)

    def _started(self, now: Standing) -> Standing:
        return now._replace(phase="all", told=(), state=self._hooks.prepare(now.state, now.info))

    def _observed(self, now: Standing) -> Standing:
        """Return the standing after all clients' answers are in."""
        state, named = self._hooks.observe(now.state, now.info, now.round, now.available())
        if named is not None:
            self._check_names("candidates", named, np.ones(named.shape, bool))
            reachable = now.available()
            named = named if reachable is None else named[reachable[named]]
        return now._replace(phase="candidates", told=(), state=state, candidates=named)

    def _check_cohort(self, answer: Selection) -> None:
        self._check_names("a cohort", np.asarray(answer.ids), np.asarray(answer.mask))
        if answer.weights is not None and not np.isfinite(answer.weights[answer.mask]).all():
            raise UserError(f"strategy {self._strategy.name!r} gives a weight that is not finite; mend its `select`")

    def _check_names(self, what: str, ids: np.ndarray, mask: np.ndarray) -> None:
        n, chosen = self._size.num_clients, ids[mask]
        if ((ids < 0) | (ids >= n)).any() or len(np.unique(chosen)) != len(chosen):
            raise UserError(
                f"strategy {self._strategy.name!r} names {what} {ids.tolist()}, where somebody stands twice or is none "
                f"of 0 to {n - 1}; mend it"
            )

    def _not_over(self, what: str, now: Standing) -> None:
        if now.round == self._size.num_rounds:
            raise UserError(f"{what}: all {now.round} rounds are over; make a Selector with a larger num_rounds")

    def _reads_metrics(self) -> bool:
        return self._reads.metrics is not None and any(one for part in self._reads.metrics for one in part)


def _no_metrics(reads: Any) -> Any:
    return answers.metrics(({}, {}), reads.metrics)


def _made(strategy: str | Strategy) -> Strategy:
    if isinstance(strategy, Strategy):
        return strategy
    if not isinstance(strategy, str):
        raise UserError(f"strategy: {shown(strategy)} is neither a name nor a Strategy; give a name such as 'pow_d'")
    name, parameters = parsing.name_and_parameters("strategy", strategy, 'e.g. "pow_d[num_candidates=8]"')
    return strategies.make(name, **parameters)


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
        raise UserError(f"{name}: {shown(value)} is not a whole number from {least} to 2147483647; give one")
