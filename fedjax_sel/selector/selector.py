"""Ask and tell: a strategy's rounds, for a server whose clients answer when they can.

    asks -> tell, until asks gives nothing -> select -> asks -> tell -> update -> the next round

The order of hooks is the protocol's (`strategies/protocol.py`), the keys are the simulator's by name and round, and so,
told the simulator's facts, a Selector names the simulator's cohorts.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.selector import account, answers, probing, questions, reports, standing, storage, terms
from fedjax_sel.selector.account import Bill
from fedjax_sel.selector.answers import Name
from fedjax_sel.selector.hooks import Hooks, Size
from fedjax_sel.selector.questions import Ask
from fedjax_sel.selector.standing import Standing
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import Selection, Strategy

_Call = TypeVar("_Call", bound=Callable[..., Any])


def _one_at_a_time(call: _Call) -> _Call:
    """Let a call wait until those of other threads are over."""

    @functools.wraps(call)
    def waiting(self: "Selector", *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return call(self, *args, **kwargs)

    return waiting  # pyright: ignore[reportReturnType]


class Selector:
    """A strategy for a server loop of anybody's own.

    Whatever is refused raises `UserError`, one sentence, and leaves the Selector as it was. Calls from several threads
    take turns.
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
        params: Any = None,
        output_layer: tuple[Any, Any] | None = None,
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
            params: the trained weights, or a pytree of their shapes; `num_params` follows from it. Needed where a
                strategy reads parts of updates, such as those of the output layer. None: `env.params` is None.
            output_layer: paths in `params` of the weight and the bias (or None) of the layer that gives the logits,
                such as (("Dense_1", "kernel"), ("Dense_1", "bias")). None: `env.output_layer` is None.

        Raises:
            UserError: an argument is wrong, or the strategy breaks its contract.
        """
        self._terms = terms.agreed(
            strategy,
            Size(num_clients, num_selected, num_rounds),
            sizes=sizes,
            all_sizes=all_sizes,
            lengths={"num_params": num_params, "num_classes": num_classes, "profile_size": profile_size},
            seed=seed,
            clients=clients,
            params=params,
            output_layer=output_layer,
        )
        self._strategy, self._clients = self._terms.strategy, self._terms.clients
        self._hooks = Hooks(
            self._terms.strategy, self._terms.size, self._terms.counts, self._terms.model, self._terms.seed
        )
        state, info = self._hooks.begin(self._terms.sizes, self._terms.all_sizes)
        self._reads = self._hooks.read(state, info)
        if (self._reads.updates or self._reads.step) and num_params is None and params is None:
            raise UserError(f"num_params: strategy {self._strategy.name!r} reads updates; give the model's parameters")
        nobody = np.zeros((num_clients,), bool)
        now = Standing("start", 0, state, info, account.nothing(num_clients), None, nobody)
        if not protocol.requests_at_start(self._strategy):
            now = self._started(now)
        self._now = now
        self._lock = threading.Lock()

    @property
    def round(self) -> int:
        """The round that is under way, from 0; the number of rounds once all are over."""
        return self._now.round

    @property
    def num_rounds(self) -> int:
        """T, the rounds of the whole federation."""
        return self._terms.size.num_rounds

    @property
    def num_selected(self) -> int:
        """K, the places of a cohort."""
        return self._terms.size.num_selected

    @property
    def reads(self) -> tuple[str, ...]:
        """What `update` must be given, beside who reported: names of its arguments."""
        return reports.read(self._reads)

    @_one_at_a_time
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
            observed = self._observed(now)
            now = now if observed.candidates is None else observed  # else nothing is settled by asking
        self._now = now
        return self._due(now)

    @_one_at_a_time
    def probe_cohorts(self) -> tuple[tuple[Name, ...], ...]:
        """Return whom to train for each probe, where a `loss_change` is due, and nobody where none is.

        They are drawn uniformly from those who count as available, as the simulator draws them. A probe's cohort
        trains from the round's model; the mean of what comes of it is evaluated by all and then thrown away.
        """
        due = [ask for ask in self._due(self._now) if ask.kind == "loss_change"]
        return probing.cohorts(self._terms, self._now.round, due[0].shape[0], self._now.available()) if due else ()

    @_one_at_a_time
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
        after = questions.told(self._terms, self._now, kind, ids, values)
        if after.phase == "start" and not self._due(after):
            after = self._started(after)
        self._now = after

    @_one_at_a_time
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
        count = self._terms.size.num_clients if reachable is None else int(reachable.sum())
        if count < self._terms.size.num_selected:
            raise UserError(
                f"select: {count} of {self._terms.size.num_clients} clients can be reached and num_selected="
                f"{self._terms.size.num_selected}; wait until more can, or make a Selector of smaller cohorts"
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

    @_one_at_a_time
    def update(
        self,
        reported: Iterable[Name] | None = None,
        *,
        updates: Any = None,
        losses_before: Any = None,
        losses_after: Any = None,
        path_lengths: Any = None,
        step: Any = None,
        metrics: Any = None,
        subset_loss: Callable[[tuple[Name, ...]], float] | None = None,
        broken: Iterable[Name] = (),
    ) -> None:
        """Close the round: the strategy learns from what it reads of it (`reads`), and the next one opens.

        What it does not read need not be given, and is neither looked at nor billed.

        Args:
            reported: who of the cohort sent an update; None: all of it, in the order of `select`.
            updates: w_k - w, a pytree with leaves [M, ...] of those who reported, in that order.
            losses_before: loss of the received model on each one's data, [M], nats.
            losses_after: loss after local training, [M], nats.
            path_lengths: learning rate times local steps of each one, [M]; None: 1, so that an update stands for a
                gradient (GPFL).
            step: change of the global model in this round, the same pytree without that axis.
            metrics: the server's own evaluations before and after the round, each `Evaluation` or a mapping of those of
                `correct`, `accuracy` and `loss` that are read.
            subset_loss: (names of some who reported) -> the loss, nats, on the server's own data, of the average of
                their models, with the weights of the aggregation; of nobody's, that of the round's model.
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
        values = {"updates": updates, "losses_before": losses_before, "losses_after": losses_after}
        values |= {"path_lengths": path_lengths, "step": step, "metrics": metrics, "subset_loss": subset_loss}
        report = reports.seated(self._terms, self._reads, now.round, selection, reported, broken, values)

        def loss_of(members: np.ndarray) -> float:
            assert subset_loss is not None
            names = self._clients.named(selection.ids[members & report.heard.mask & report.fields["finite"]])
            loss = answers.numbers("update: subset_loss", subset_loss(names), ())
            return float(np.clip(loss, -LARGEST, LARGEST))

        state, info = self._hooks.learn(now.state, now.info, now.round, report.heard, report.fields, loss_of)
        self._now = Standing(
            phase="all",
            round=now.round + 1,
            state=state,
            info=info,
            account=now.account.reported(report.clients, report.losses).closed(),
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
        storage.write(Path(path), {"selector": self._terms.identity(), "standing": now.words()}, now.arrays())

    @_one_at_a_time
    def load(self, path: str | os.PathLike) -> None:
        """Go on where a Selector that was made with the same arguments stood when it was saved.

        Raises:
            UserError: the file cannot be read, is damaged, or is of a Selector that was made otherwise.
        """
        path = Path(path)
        about, leaves = storage.read(path)
        saved = about.get("selector") if isinstance(about, dict) else None
        own = self._terms.identity()
        if saved != own:
            other = [name for name in own if not isinstance(saved, dict) or saved.get(name) != own[name]]
            raise UserError(f"load: {path} is of another Selector ({', '.join(other)}); make this one as that one was")
        try:
            arrays = storage.filled(self._now.arrays(), leaves)
            self._now = standing.restored(about["standing"], arrays, self._terms)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise storage.broken(path) from error

    def _due(self, now: Standing) -> tuple[Ask, ...]:
        return questions.due(self._terms, now)

    def _reached(self, what: str, available: Iterable[Name] | None) -> Standing:
        """Return the standing with those who can be reached in this round."""
        now = self._now
        self._not_over(what, now)
        if available is None or now.phase == "start":
            return now
        reachable = self._clients.mask(f"{what}: available", available)
        settled = now.phase != "all" or bool(now.told)
        there = np.ones_like(reachable) if now.there is None else now.there
        if (settled or now.there is not None) and (reachable == there).all():
            return now
        if settled:
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
        n, chosen = self._terms.size.num_clients, ids[mask]
        if ((ids < 0) | (ids >= n)).any() or len(np.unique(chosen)) != len(chosen):
            raise UserError(
                f"strategy {self._strategy.name!r} names {what} {ids.tolist()}, where somebody stands twice or is none "
                f"of 0 to {n - 1}; mend it"
            )

    def _not_over(self, what: str, now: Standing) -> None:
        if now.round == self._terms.size.num_rounds:
            raise UserError(f"{what}: all {now.round} rounds are over; make a Selector with a larger num_rounds")
