"""A Flower strategy whose cohorts a Selector chooses, with its folder of client IDs, queries, probes, and reports."""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from fedjax_sel import strategies
from fedjax_sel.adapters import rounds
from fedjax_sel.adapters.flower import messages
from fedjax_sel.adapters.flower.messages import Nodes, Sizes, in_order
from fedjax_sel.adapters.rounds import Arrays, ReceivedReport
from fedjax_sel.core import files
from fedjax_sel.core.files import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.selector import Ask, ClientNoise, Selector
from fedjax_sel.selector.terms import Size, make_terms
from fedjax_sel.strategies.facts import KINDS, SERVER
from fedjax_sel.strategies.privacy import Unit

# A federation's folder has its clients, its Selector, and the model at the start of the round. The Selector's file
# determines the round. It is written last, when the model of that round is already on disk.

CLIENTS, SELECTOR = "clients.json", "selector.npz"
ON_AVERAGE = ("delta", "kvib", "ocs", "osmd")  # strategies whose aggregation weights sum to one only on average


@contextlib.contextmanager
def _naming(path: Path, verb: str) -> Iterator[None]:
    """Raise UserError if a path cannot be created, read or written."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"folder: {path} cannot be {verb} ({reason}); restore it, or choose another folder") from error


def load_clients(folder: Path) -> dict[str, Sizes] | None:
    """Return the numbers of examples of the clients of an earlier start, by name; None if there was none."""
    path = folder / CLIENTS
    if not path.exists():
        return None
    with _naming(path, "read"):
        return {name: Sizes(*sizes) for name, sizes in files.read_json(path).items()}


def save_clients(folder: Path, clients: Mapping[str, Sizes]) -> None:
    """Save the clients and their numbers of examples."""
    with _naming(folder / CLIENTS, "written"):
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / CLIENTS, (json.dumps(clients, indent=1) + "\n").encode(), sync=True)


def save(folder: Path, selector: Selector, weights: Arrays) -> None:
    """Save the federation's state between two rounds."""
    current = _weights(folder, selector.round)
    with _naming(current, "written"):
        files.write_arrays(current, weights)
    selector.save(folder / SELECTOR)
    for other in folder.glob("weights-*.npz"):
        if other != current:
            other.unlink(missing_ok=True)


def load(folder: Path, selector: Selector) -> Arrays | None:
    """Restore a Selector, and return the saved weights; None if there is no saved state."""
    if not (folder / SELECTOR).exists():
        return None
    selector.load(folder / SELECTOR)
    path = _weights(folder, selector.round)
    with _naming(path, "read"):
        return files.read_arrays(path)


def _weights(folder: Path, round: int) -> Path:
    return folder / f"weights-{round:06d}.npz"


# pyright: reportMissingImports=false

_log = logging.getLogger(__name__)


class Exchange(NamedTuple):
    """Message exchange with the clients of a round."""

    grid: Grid
    nodes: Nodes
    there: Mapping[str, int]  # available clients: name -> node ID
    round: int  # from 0
    seconds: float  # timeout

    def send(
        self, content_of: Callable[[Any], RecordDict], message_type: str, names: Iterable[Any]
    ) -> dict[str, Message]:
        """Send contents, by name, to several clients; return the timely replies without errors, by name."""
        there = [name for name in names if name in self.there]
        sent = [Message(content_of(name), self.there[name], message_type, ttl=self.seconds) for name in there]
        replies: dict[str, Message] = {}
        for reply in self.grid.send_and_receive(sent, timeout=self.seconds) if sent else ():
            name = self.nodes.name(reply)
            if reply.has_error():
                _log.warning("client %r did not answer %s: %s", name, message_type, reply.error.reason)
            elif name is not None:
                replies[name] = reply
        return replies

    def ask(
        self,
        kind: str,
        options: Mapping[str, Any],
        model: ArrayRecord | None,
        names: tuple[str, ...],
        config: Mapping[str, ConfigRecord] = MappingProxyType({}),
        noise: Mapping[Any, ClientNoise] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Return clients' answers about a fact of a model, by name; `config` is for facts that require training."""
        sent = time.time()
        replies = self.send(
            lambda name: messages.question(options, self.round, model, config, noise.get(name)), f"query.{kind}", names
        )
        if kind == "seconds":
            return {name: messages.seconds(sent, reply) for name, reply in replies.items()}
        answers = {name: messages.facts_of(reply).get(kind) for name, reply in replies.items()}
        return {name: answer for name, answer in answers.items() if answer is not None}


def mean(weights: Arrays, reports: Any) -> Arrays:
    """Return the weighted mean of the finite reports (weights, share), or the initial model if there is none."""
    finite = [(own, share) for own, share in reports if all(np.isfinite(array).all() for array in own.values())]
    total = sum(share for _, share in finite)
    if not finite or total <= 0:
        return weights
    means = {name: sum(own[name] * (share / total) for own, share in finite) for name in weights}
    return {name: np.asarray(means[name], array.dtype) for name, array in weights.items()}


def read(
    name: str, reply: Message, weights: Arrays, trained: Collection[str], losses: Collection[str]
) -> ReceivedReport | None:
    """Return a client's report with `losses` on the `trained` arrays; log a warning and return None if invalid."""
    if reply.has_error():
        _log.warning("client %r did not report: %s", name, reply.error.reason)
        return None
    own = received_model(reply)
    if {key: array.shape for key, array in own.items()} != {key: array.shape for key, array in weights.items()}:
        _log.warning("client %r returned a model with other arrays than it received; ignored", name)
        return None
    answers = messages.facts_of(reply)
    if invalid := [key for key in losses if key not in answers or answers[key].size != 1]:
        _log.warning("client %r did not return a single number as %s; ignored", name, " and ".join(invalid))
        return None
    return ReceivedReport(
        update={key: own[key] - weights[key] for key in trained},
        facts={key: value for key, value in answers.items() if key not in losses},
        losses={key: float(answers[key].item()) for key in losses},
        carried={key: array for key, array in own.items() if key not in trained},
    )


def received_model(reply: Message) -> Arrays:
    """Return the weights in a reply; {} unless the reply has exactly one model."""
    models = [one for name, one in reply.content.array_records.items() if name != messages.OURS]
    return messages.arrays(models[0]) if len(models) == 1 else {}


def share(reply: Message, inner: Any) -> float:
    """Return the aggregation weight of a report in Flower's strategy."""
    key = getattr(inner, "weighted_by_key", "num-examples")
    shares = [one[key] for one in reply.content.metric_records.values() if key in one]
    return float(shares[0]) if shares else 1.0  # pyright: ignore[reportArgumentType]


def for_inner(reply: Message, inner: Any, weight: float | None) -> Message:
    """Return a report in the format of Flower's strategy `inner`, with the selection's aggregation weight, if any."""
    own = (messages.OURS, messages.NOISE)
    content = RecordDict({name: one for name, one in reply.content.items() if name not in own})
    if weight is not None:
        key = getattr(inner, "weighted_by_key", None)
        if key is None:
            raise UserError(
                f"inner: Flower's {type(inner).__name__} does not support the aggregation weights of this strategy; "
                "use FedAvg or a subclass"
            )
        for one in content.metric_records.values():
            one[key] = weight
    reply.content = content
    return reply


class SelectorStrategy(Strategy):
    """Flower strategy that selects with a strategy of this package and aggregates with one of Flower's.

    Attributes:
        selector: the Selector; available after all clients have introduced themselves.
        cohorts: cohort of each round since the last start, names in the order of `Selector.select`.
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
        answer_seconds: float = 600.0,
        wait_seconds: float = 600.0,
        folder: str | Path | None = None,
        has_clock: bool = False,
        privacy: str | None = None,
        privacy_unit: Unit = "example",
    ):
        """Create a strategy. No message is sent before `start`.

        Args:
            strategy: a name, a name with parameters such as "pow_d[num_candidates=8]", or a `Strategy`.
            num_clients: number of clients, N; the federation starts when N clients have introduced themselves.
            num_selected: cohort size, K.
            num_rounds: number of rounds, T.
            inner: Flower strategy that aggregates and evaluates; None: FedAvg without client evaluation. Its client
                sampling is ignored. Its internal state, such as FedAdam's moments, is not saved in `folder`. Strategies
                with weights that sum to one only on average (delta, kvib, ocs, osmd) require FedAvg's aggregation.
            profile_size: number of floats per profile, Q; required if the strategy reads profiles.
            num_classes: number of classes, C; required if the strategy reads label histograms.
            seed: seed of all random draws.
            trained: names of the trained arrays; None: all numeric arrays.
            output_layer: names of the output layer's weight and bias (or None); required if the strategy reads their
                updates.
            server_evaluation: function from the model to `accuracy`, `loss` and `correct` on the server's data;
                required by strategies that read it, such as gpfl.
            answer_seconds: timeout of a query, in seconds.
            wait_seconds: maximum time to wait for enough clients, in seconds.
            folder: folder for the federation's state, from which a restarted server resumes; None: not saved.
            has_clock: whether the strategy receives measured durations; required if it requests the fact `seconds`.
            privacy: budget and bounds, as for `--privacy`; clients perturb their answers themselves.
            privacy_unit: what the guarantee hides: one "example" of a client, or all of them ("client").

        Raises:
            UserError: an argument is invalid, or an argument that the strategy needs is missing.
        """
        # By default, FedAvg waits for two nodes.
        self.inner = inner or FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        self.cohorts: list[tuple[str, ...]] = []
        self._strategy = strategy
        self._name = strategy if isinstance(strategy, str) else strategy.name
        self._size = (num_clients, num_selected, num_rounds)
        own: dict[str, Any] = {"has_clock": has_clock, "privacy": privacy, "privacy_unit": privacy_unit}
        self._given = {"profile_size": profile_size, "num_classes": num_classes, "seed": seed, **own}
        self._output_layer = output_layer
        self._trained, self._evaluate = trained, server_evaluation
        self._answer_seconds, self._wait_seconds = answer_seconds, wait_seconds
        self._folder = None if folder is None else Path(folder)
        self._nodes: Nodes | None = None
        self._weights: Arrays = {}  # the round's initial model
        self._evaluation: Mapping[str, float] | None = None  # evaluation of `_weights`
        self._sent = 0.0  # timestamp of the round's training messages
        # A trial configuration reports missing arguments before any node is queried.
        lengths = {"profile_size": profile_size, "num_classes": num_classes, "num_params": 1}
        size, sizes = Size(*self._size), [1] * num_clients
        made = make_terms(strategy, size, sizes=sizes, all_sizes=None, lengths=lengths, seed=seed, clients=None, **own)
        if any(request.who == SERVER for request in made.strategy.requests) and server_evaluation is None:
            raise UserError(
                f"server_evaluation: strategy {self._name!r} reads the server's evaluation; pass a function of a model"
            )
        self._on_average = made.strategy.name in ON_AVERAGE
        self._check_inner()

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
        """Run the federation like Flower's own `start`, or resume it from the folder.

        Args:
            grid: Flower's grid.
            initial_arrays: initial model; ignored if the folder or an earlier start has a later model.
            num_rounds: total number of rounds at the end, including rounds of earlier starts; None: all T rounds.
            timeout: maximum time to wait for a cohort's reports, in seconds.
            train_config: see Flower.
            evaluate_config: see Flower.
            evaluate_fn: function from the round (from 1; 0 for the initial model) and the model to metrics.

        Returns:
            Flower's result for the rounds of this start, keyed by the federation's round numbers.

        Raises:
            UserError: an argument or the saved state is invalid, or another server uses the folder.
        """
        last = self._size[2] if num_rounds is None else num_rounds
        if last > self._size[2]:
            raise UserError(
                f"num_rounds: {last} exceeds the {self._size[2]} rounds of this strategy; create it with more rounds"
            )
        with FolderLock("folder") as lock:
            if self._folder is not None:
                with _naming(self._folder, "created"):
                    self._folder.mkdir(parents=True, exist_ok=True)
                lock.take(self._folder)  # lock before any read: another server may still write to the folder
            arrays = self._restore(grid, initial_arrays)
            self.cohorts = []
            done = self.selector.round
            evaluate = None if evaluate_fn is None else lambda number, model: evaluate_fn(number + done, model)
            result = super().start(
                grid, arrays, max(0, last - done), timeout, train_config, evaluate_config, evaluate
            )  # fmt: skip
        if last <= done:
            result.arrays = arrays
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {number + done: metrics for number, metrics in getattr(result, name).items()})
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Query the clients, select the cohort, and return its training messages."""
        if self._nodes is None:
            self._restore(grid, arrays)
        selector, (_, wanted, _) = self.selector, self._size
        self._weights = messages.arrays(arrays)
        if "metrics" in selector.reads and self._evaluation is None:
            self._evaluation = self._server_metrics(arrays)
        assert self._nodes is not None
        online = self._nodes.wait(grid, lambda online: len(online) >= wanted, self._wait_seconds, str(wanted))
        clients = Exchange(grid, self._nodes, online, selector.round, self._answer_seconds)
        inner_content = partial(self._inner_content, grid, arrays, config)

        def ask(due: Ask, names: tuple[str, ...]) -> dict[str, Any]:
            if due.kind == "loss_change":
                return self._loss_changes(clients, arrays, inner_content, due, names)
            config = inner_content().config_records if KINDS[due.kind].trains else {}
            return clients.ask(due.kind, due.options, arrays if due.needs_model else None, names, config, due.noise)

        cohort, weights = rounds.choose(selector, in_order(online), ask)
        self.cohorts.append(cohort)
        self._shares = {} if weights is None else dict(zip(cohort, map(float, weights)))
        self._on_average |= bool(self._shares) and abs(sum(self._shares.values()) - 1) > 1e-5  # plug-ins
        self._check_inner()
        asks, content = selector.asks(), inner_content()

        def order(name: str) -> RecordDict:
            own = [ask for ask in asks if name in ask.clients]
            noise = {ask.kind: ask.noise[name] for ask in own if ask.noise}
            facts = {ask.kind: ask.options for ask in own}
            return messages.order(content, selector.round, facts, self._losses(), noise=noise)

        self._sent = time.time()
        return [Message(order(name), online[name], "train") for name in cohort]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the reports with Flower's strategy, and close the round."""
        assert self._nodes is not None
        cohort, trained = self.cohorts[-1], self._trained_names()
        received = {name: reply for reply in replies if (name := self._nodes.name(reply)) in cohort}
        valid = {
            name: report._replace(seconds=messages.seconds(self._sent, received[name]))
            for name in cohort  # the cohort's order, independent of arrival
            if name in received and (report := read(name, received[name], self._weights, trained, self._losses()))
        }
        good = []
        for name, report in valid.items():
            if report.finite:
                good.append(for_inner(received[name], self.inner, self._shares.get(name)))
            else:
                _log.warning("the update of client %r is not finite; ignored", name)
        if self._shares and not any(self._shares[name] for name, report in valid.items() if report.finite):
            good = []  # Flower cannot divide by a total weight of zero; the model stays
        new, metrics = self.inner.aggregate_train(self.selector.round + 1, good)
        after = self._weights if new is None else messages.arrays(new)
        if self._on_average and new is not None:  # as in the simulator, the old model keeps the weight of lost reports
            total, old = sum(self._shares[name] for name in valid), self._weights
            after |= {name: old[name] + total * (after[name] - old[name]) for name in trained}
            new = messages.record(after)
        step = {name: after[name] - self._weights[name] for name in trained}
        server_metrics = None
        if "metrics" in self.selector.reads:
            assert self._evaluation is not None
            server_metrics = (self._evaluation, self._evaluation if new is None else self._server_metrics(new))
            self._evaluation = server_metrics[1]

        def subset_loss(names: tuple[str, ...]) -> float:
            shares = {name: self._shares.get(name, share(received[name], self.inner)) for name in names}
            model = mean(self._weights, [(received_model(received[name]), shares[name]) for name in names])
            return self._server_metrics(messages.record(model))["loss"]

        rounds.close(self.selector, valid, step, server_metrics, subset_loss)
        self._weights = after
        if self._folder is not None:
            save(self._folder, self.selector, self._weights)
        return new, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the evaluation messages of Flower's strategy."""
        return self.inner.configure_evaluate(self.selector.round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate evaluation metrics with Flower's strategy."""
        return self.inner.aggregate_evaluate(self.selector.round, replies)

    def summary(self) -> None:
        """Log the selection strategy and the aggregating strategy."""
        _log.info("%s selects %d of %d clients; %s aggregates", self._name, self._size[1], self._size[0], self.inner)
        self.inner.summary()

    def _restore(self, grid: Grid, arrays: ArrayRecord) -> ArrayRecord:
        """Initialize or restore clients, Selector and model, and return the next round's initial model."""
        self._evaluation = None
        if self._nodes is not None:
            self.selector.reopen()  # an earlier start may have ended within a round
            return messages.record(self._load() or self._weights)
        self._weights = messages.arrays(arrays)
        params = {name: self._weights[name] for name in self._trained_names()}
        saved = None if self._folder is None else load_clients(self._folder)
        num_clients = self._size[0]
        nodes = Nodes(saved)
        if saved is None:
            nodes.wait(grid, lambda _: len(nodes.clients) >= num_clients, self._wait_seconds, str(num_clients))
        if len(nodes.clients) != num_clients:
            raise UserError(
                f"num_clients: {len(nodes.clients)} clients introduced themselves, not {num_clients}; pass that number"
            )
        nodes.closed = True
        names = in_order(nodes.clients)
        self.selector = Selector(
            self._strategy,
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
            if saved is None:
                save_clients(self._folder, nodes.clients)
            if (weights := self._load()) is not None:
                return messages.record(weights)
        return arrays

    def _load(self) -> Arrays | None:
        """Load Selector and model from the folder, which another server may have advanced since the last start."""
        weights = None if self._folder is None else load(self._folder, self.selector)
        self._weights = weights or self._weights
        return weights

    def _loss_changes(
        self,
        clients: Exchange,
        arrays: ArrayRecord,
        inner_content: Callable[[], RecordDict],
        due: Ask,
        names: tuple[str, ...],
    ) -> dict[str, Any]:
        """Run a round's probes, and return, for each client with complete answers, its loss changes, [S].

        A loss change is a client's loss on a probe's model minus its loss on the round's model.
        """
        options = {name: value for name, value in due.options.items() if name == "on"}

        def losses(model: ArrayRecord, names: tuple[str, ...]) -> dict[str, float]:
            answers = clients.ask("loss", options, model, names)
            kept = {**options, "nonfinite": "missing"}  # the change that NaN gives is replaced, as in the simulator
            one = due._replace(kind="loss", clients=names, shape=(), options=kept)
            return dict(zip(*rounds.fitting(one, answers)))

        before = losses(arrays, names)
        changes: dict[str, list[float]] = {name: [] for name in before}
        for number, cohort in enumerate(self.selector.probe_cohorts()):
            order = messages.order(inner_content(), self.selector.round, {}, (), number)
            replies = clients.send(lambda _, order=order: order, "train", cohort)
            valid = [one for name, one in replies.items() if read(name, one, self._weights, (), ())]
            model = mean(self._weights, [(received_model(one), share(one, self.inner)) for one in valid])
            after = before if due.options.get("restored") else losses(messages.record(model), tuple(changes))
            changes = {name: [*values, after[name] - before[name]] for name, values in changes.items() if name in after}
        return {name: np.asarray(values, np.float32) for name, values in changes.items()}

    def _inner_content(self, grid: Grid, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        """Return the content of the training messages of Flower's strategy."""
        sent = list(self.inner.configure_train(self.selector.round + 1, arrays, config, grid))
        if not sent:
            raise UserError("inner: this Flower strategy trains no client; use one with fraction_train above 0")
        return sent[0].content

    def _check_inner(self) -> None:
        if self._on_average and type(self.inner).aggregate_train is not FedAvg.aggregate_train:
            raise UserError(
                f"inner: Flower's {type(self.inner).__name__} does not support the weights of {self._name!r}, which "
                "sum to one only on average; use FedAvg"
            )

    def _losses(self) -> tuple[str, ...]:
        return tuple(name for name in self.selector.reads if name.startswith("losses"))

    def _trained_names(self) -> list[str]:
        if self._trained is None:  # NumPy cannot subtract Boolean arrays
            return [name for name, array in self._weights.items() if array.dtype != bool]
        if missing := [name for name in self._trained if name not in self._weights]:
            raise UserError(f"trained: the model has no array {missing[0]!r}; it has {', '.join(self._weights)}")
        return [name for name in self._weights if name in self._trained]

    def _server_metrics(self, arrays: ArrayRecord) -> Mapping[str, float]:
        assert self._evaluate is not None
        return dict(self._evaluate(arrays))
