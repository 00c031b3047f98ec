"""The server's side: a Strategy of Flower's message API whose cohorts a Selector names.

A round asks for the facts that are due, by messages of their own, tells the Selector what is answered, and sends what
Flower's own strategy would send to the cohort that it names. What the cohort is asked travels with its training.
Flower's strategy aggregates.
"""

# pyright: reportMissingImports=false
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from fedjax_sel import strategies
from fedjax_sel.adapters import rounds
from fedjax_sel.adapters.clients import Arrays
from fedjax_sel.adapters.flower import folder as folders
from fedjax_sel.adapters.flower import messages, probes, reports
from fedjax_sel.adapters.flower.exchange import Exchange
from fedjax_sel.adapters.flower.nodes import Nodes, Sizes, in_order
from fedjax_sel.core.folder_lock import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.selector import Ask, Selector, terms
from fedjax_sel.selector.hooks import Size
from fedjax_sel.strategies.kinds import KINDS
from fedjax_sel.strategies.requests import SERVER

_log = logging.getLogger(__name__)


class SelectorStrategy(Strategy):
    """Selects with any strategy of this package; aggregates with any of Flower's.

    Attributes:
        selector: once the clients have introduced themselves.
        cohorts: of each round since this start, names in the order of `Selector.select`.
    """

    selector: Selector

    def __init__(
        self,
        strategy: str | strategies.Strategy,
        num_clients: int,
        num_selected: int,
        num_rounds: int,
        *,
        inner: Strategy | None = None,
        profile_size: int | None = None,
        num_classes: int | None = None,
        seed: int = 0,
        trained: Collection[str] | None = None,
        output_layer: tuple[str, str | None] | None = None,
        server_evaluation: Callable[[ArrayRecord], Mapping[str, float]] | None = None,
        reachable: Callable[[int, tuple[str, ...]], Iterable[str]] | None = None,
        answer_seconds: float = 600.0,
        wait_seconds: float = 600.0,
        attempts: int = 2,
        folder: str | Path | None = None,
    ):
        """Make a strategy; nothing is sent before it starts.

        Args:
            strategy: of this package: a name, one with parameters such as "pow_d[num_candidates=8]", or a value.
            num_clients: N; the federation begins once so many have introduced themselves.
            num_selected: K.
            num_rounds: T.
            inner: Flower's strategy that aggregates and evaluates; None: FedAvg that trains, and evaluates on nobody.
                What it samples is not used, and what it remembers, such as FedAdam's moments, is not in the folder.
            profile_size: Q; needed where profiles are bought.
            num_classes: C; needed where label histograms are bought.
            seed: of all draws.
            trained: names of the arrays that gradients move; None: all of them that are numbers.
            output_layer: names of the arrays that are the weight and the bias (or None) of the layer that gives the
                logits; needed where a strategy reads their updates.
            server_evaluation: (model) -> `accuracy`, `loss` and `correct` on the server's own data; needed where that
                is bought, as by gpfl.
            reachable: (round from 0, names of those online) -> those of them who may take part; None: all.
            answer_seconds: to wait for answers to a question.
            wait_seconds: to wait for clients to come.
            attempts: how often a client is asked at most, where too few have answered for a cohort.
            folder: where the federation's standing is kept, so that a server that was killed goes on; None: nowhere.

        Raises:
            UserError: an argument is wrong, or one that the strategy needs is missing.
        """
        self.inner = FedAvg(fraction_evaluate=0.0) if inner is None else inner
        self.cohorts: list[tuple[str, ...]] = []
        self._named = strategy
        self._name = strategy if isinstance(strategy, str) else strategy.name
        self._size = (num_clients, num_selected, num_rounds)
        self._given = {"profile_size": profile_size, "num_classes": num_classes, "seed": seed}
        self._output_layer = output_layer
        self._trained, self._evaluate, self._may = trained, server_evaluation, reachable
        self._answer_seconds, self._wait_seconds, self._attempts = answer_seconds, wait_seconds, attempts
        self._folder = None if folder is None else Path(folder)
        self._nodes: Nodes | None = None
        self._weights: Arrays = {}  # that open the round
        self._evaluation: Mapping[str, float] | None = None  # of them
        # What is missing is found before any node is asked.
        lengths = {"profile_size": profile_size, "num_classes": num_classes, "num_params": 1}
        made = terms.make(
            strategy,
            Size(*self._size),
            sizes=[1] * num_clients,
            all_sizes=None,
            lengths=lengths,
            seed=seed,
            clients=None,
        )
        if any(request.who == SERVER for request in made.strategy.requests) and server_evaluation is None:
            raise UserError(
                f"server_evaluation: strategy {self._name!r} buys the server's own evaluation; give a function of the "
                "model"
            )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the federation, as Flower's own `start` does; with a folder go on where it stood.

        Args:
            grid: of the run.
            initial_arrays: the first model; not looked at where a folder, or an earlier start, holds a later one.
            num_rounds: to be done when it ends, those of earlier starts among them; None: all T.
            timeout: seconds to wait for a cohort's reports.
            train_config: see Flower.
            evaluate_config: see Flower.
            evaluate_fn: (round from 1, model) -> measures; of round 0 the first model's.

        Returns:
            Flower's result, of the rounds since this start, by the numbers that they have in the federation.

        Raises:
            UserError: something does not fit, or another server keeps its standing in the folder.
        """
        last = self._size[2] if num_rounds is None else num_rounds
        if last > self._size[2]:
            raise UserError(f"num_rounds: {last} is more than the {self._size[2]} of this strategy; make it with more")
        with FolderLock("folder") as lock:
            if self._folder is not None:
                folders.make(self._folder)
                lock.take(self._folder)  # before anything in it is read: it may be another server's until then
            arrays = self._begin(grid, initial_arrays)
            self.cohorts = []
            done = self.selector.round
            of_round = None if evaluate_fn is None else lambda number, model: evaluate_fn(number + done, model)
            result = super().start(
                grid, arrays, max(0, last - done), timeout, train_config, evaluate_config, of_round
            )  # fmt: skip
        if last <= done:
            result.arrays = arrays
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {number + done: metrics for number, metrics in getattr(result, name).items()})
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask, select, and return the messages that have the cohort train."""
        if self._nodes is None:
            self._begin(grid, arrays)
        selector, (_, wanted, _) = self.selector, self._size
        self._weights = messages.arrays(arrays)
        if self._buys_metrics() and self._evaluation is None:
            self._evaluation = self._evaluated(arrays)
        assert self._nodes is not None
        may = self._may or (lambda _, names: names)

        def allowed(there: Mapping[str, int]) -> list[str]:
            return in_order(set(may(selector.round, tuple(in_order(there)))) & set(there))

        there = self._nodes.wait(grid, lambda there: len(allowed(there)) >= wanted, self._wait_seconds, str(wanted))
        clients = Exchange(grid, self._nodes, there, selector.round, self._answer_seconds)
        sent = partial(self._sent_by_inner, grid, arrays, config)
        ask = partial(self._ask, clients, arrays, sent)
        cohort, weights = rounds.choose(selector, allowed(there), ask, self._attempts)
        self.cohorts.append(cohort)
        self._shares = {} if weights is None else dict(zip(cohort, map(float, weights)))
        wanted_beside = {ask.kind: ask.options for ask in selector.asks()}
        content = messages.order(sent(), selector.round, wanted_beside, self._losses())
        return [Message(content, there[name], "train") for name in cohort]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let Flower's strategy aggregate what came back, and close the round."""
        assert self._nodes is not None
        cohort, trained = self.cohorts[-1], self._names_trained()
        heard = {name: reply for reply in replies if (name := self._nodes.name(reply)) in cohort}
        found = {
            name: report
            for name in cohort  # in its order, whoever was first
            if name in heard and (report := reports.read(name, heard[name], self._weights, trained, self._losses()))
        }
        good = [reports.for_inner(heard[name], self.inner, self._shares.get(name)) for name in reports.finite(found)]
        new, metrics = self.inner.aggregate_train(self.selector.round + 1, good)
        after = self._weights if new is None else messages.arrays(new)
        step = {name: after[name] - self._weights[name] for name in trained}
        both = None
        if self._buys_metrics():
            assert self._evaluation is not None
            both = (self._evaluation, self._evaluation if new is None else self._evaluated(new))
            self._evaluation = both[1]

        def subset_loss(names: tuple[str, ...]) -> float:
            shares = {name: self._shares.get(name, reports.share(heard[name], self.inner)) for name in names}
            model = probes.mean(self._weights, [(reports.model(heard[name]), shares[name]) for name in names])
            return self._evaluated(messages.record(model))["loss"]

        rounds.close(self.selector, found, step, both, subset_loss)
        self._weights = after
        self._save()
        return new, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Evaluate as Flower's strategy does."""
        return self.inner.configure_evaluate(self.selector.round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate measures as Flower's strategy does."""
        return self.inner.aggregate_evaluate(self.selector.round, replies)

    def summary(self) -> None:
        """Log what selects and what aggregates."""
        _log.info("%s selects %d of %d clients; %s aggregates", self._name, self._size[1], self._size[0], self.inner)
        self.inner.summary()

    def _begin(self, grid: Grid, arrays: ArrayRecord) -> ArrayRecord:
        """Get to know the clients and make the Selector, once; return the model that the next round opens with."""
        if self._nodes is not None:
            return messages.record(self._where_it_stands() or self._weights)
        self._weights = messages.arrays(arrays)
        params = {name: self._weights[name] for name in self._names_trained()}
        found = None if self._folder is None else folders.begun(self._folder)
        num_clients = self._size[0]
        nodes = Nodes(None if found is None else {name: Sizes(*sizes) for name, sizes in found.clients.items()})
        if found is None:
            nodes.wait(grid, lambda _: len(nodes.clients) >= num_clients, self._wait_seconds, str(num_clients))
        if len(nodes.clients) != num_clients:
            raise UserError(f"num_clients: {num_clients} is not the {len(nodes.clients)} clients that came; give this")
        nodes.closed = True
        names = in_order(nodes.clients)
        self.selector = Selector(
            self._named,
            *self._size,
            sizes=[nodes.clients[name].train for name in names],
            all_sizes=[nodes.clients[name].all for name in names],
            params=params,
            output_layer=self._output_layer,
            clients=names,
            **self._given,  # pyright: ignore[reportArgumentType]
        )
        self._nodes = nodes
        if self._folder is not None:
            if found is None:
                folders.begin(self._folder, nodes.clients)
            if (kept := self._where_it_stands()) is not None:
                return messages.record(kept)
        return arrays

    def _where_it_stands(self) -> Arrays | None:
        """Bring the Selector and the model to what the folder holds, which another server may have brought further."""
        kept = None if self._folder is None else folders.load(self._folder, self.selector)
        if kept is not None:
            self._weights, self._evaluation = kept, None
        return kept

    def _save(self) -> None:
        if self._folder is not None:
            folders.save(self._folder, self.selector, self._weights)

    def _ask(
        self,
        clients: Exchange,
        arrays: ArrayRecord,
        sent: Callable[[], RecordDict],
        due: Ask,
        names: tuple[str, ...],
    ) -> dict[str, Any]:
        """Ask clients and wait; return what those answered who did."""
        if due.kind != "loss_change":
            said = sent().config_records if KINDS[due.kind].trains else {}
            return clients.ask(due.kind, due.options, arrays if due.needs_model else None, names, said)

        def train(number: int, cohort: tuple[str, ...]) -> dict[str, tuple[Arrays, float]]:
            replies = clients.send(messages.order(sent(), self.selector.round, {}, (), number), "train", cohort)
            whole = {name: one for name, one in replies.items() if reports.read(name, one, self._weights, (), ())}
            return {name: (reports.model(one), reports.share(one, self.inner)) for name, one in whole.items()}

        def evaluate(model: Arrays | None, names: tuple[str, ...]) -> dict[str, float]:
            options = {name: value for name, value in due.options.items() if name == "on"}
            losses = clients.ask("loss", options, arrays if model is None else messages.record(model), names)
            return dict(zip(*rounds.fitting(due._replace(kind="loss", clients=names, shape=()), losses)))

        return probes.loss_changes(self.selector, due, names, self._weights, train, evaluate)

    def _sent_by_inner(self, grid: Grid, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        """Return what Flower's strategy sends to those whom it samples, that they train."""
        sent = list(self.inner.configure_train(self.selector.round + 1, arrays, config, grid))
        if not sent:
            raise UserError("inner: this strategy of Flower's trains nobody; give one with fraction_train above 0")
        return sent[0].content

    def _losses(self) -> tuple[str, ...]:
        return tuple(name for name in self.selector.reads if name.startswith("losses"))

    def _names_trained(self) -> list[str]:
        if self._trained is None:  # what is true or false has no difference
            return [name for name, array in self._weights.items() if array.dtype != bool]
        if missing := [name for name in self._trained if name not in self._weights]:
            raise UserError(f"trained: the model has no array {missing[0]!r}; it has {', '.join(self._weights)}")
        return [name for name in self._weights if name in self._trained]

    def _buys_metrics(self) -> bool:
        return "metrics" in self.selector.reads

    def _evaluated(self, arrays: ArrayRecord) -> Mapping[str, float]:
        assert self._evaluate is not None
        return dict(self._evaluate(arrays))
