"""Rounds of a Selector in another framework's server, and the work of its clients."""

import logging
import secrets
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.selector import Ask, ClientNoise, Perturbed, Selector
from fedjax_sel.simulation.availability import LARGEST
from fedjax_sel.strategies.facts import KINDS
from fedjax_sel.strategies.privacy import within_bound

Arrays = dict[str, np.ndarray]  # a model's arrays by name
Passes = Sequence[Sequence[Any]]  # per pass over the data and per mini-batch, an array of per-example losses


class Question(NamedTuple):
    """A query to a client for one fact.

    Attributes:
        kind: kind of the fact; the docstring of `fedjax_sel.strategies.facts.Request` defines its measurement.
        options: options of the measurement; `Request` gives the defaults.
        weights: the round's model; None if the answer does not need it.
        round: the round, from 0.
        config: the server's training configuration; empty if the answer requires no training.
        noise: the bound and the noise of a private answer, see `perturb`; None: the answer is plain.
    """

    kind: str
    options: Mapping[str, Any]
    weights: Arrays | None
    round: int
    config: Mapping[str, Any] = {}
    noise: ClientNoise | None = None


class Order(NamedTuple):
    """A training order to a client.

    Attributes:
        weights: the round's model.
        round: the round, from 0.
        probe: index of the probe that discards the trained model; None: the model is aggregated.
        config: the server's training configuration.
        wanted: options, by kind, of the facts to send with the report. They are measured on `weights`, and
            `training_loss` during training.
        losses: requested losses on the training examples, a subset of `losses_before` and `losses_after`.
        noise: the bounds and the noise of the wanted facts that are private, by kind.
    """

    weights: Arrays
    round: int
    probe: int | None = None
    config: Mapping[str, Any] = {}
    wanted: Mapping[str, Mapping[str, Any]] = {}
    losses: tuple[str, ...] = ()
    noise: Mapping[str, ClientNoise] = {}


class TrainingReport(NamedTuple):
    """A client's report after training.

    Attributes:
        weights: the trained weights, with the names of the received ones.
        num_examples: number of training examples.
        facts: the facts that the order requested, by kind.
        losses: the losses that the order requested, by name, nats.
        metrics: further metrics for the server's log.
    """

    weights: Arrays
    num_examples: int
    facts: Mapping[str, Any] = {}
    losses: Mapping[str, float] = {}
    metrics: Mapping[str, float] = {}


def perturb(kind: str, value: Any, noise: ClientNoise) -> Perturbed:
    """Return a client's answer within its bound and with noise; bounds of single examples are the caller's.

    Each answer has a NumPy generator (PCG64) of its own, seeded by 256 bits of the operating system's entropy.
    """
    generator = np.random.default_rng(secrets.randbits(256))
    draw = generator.laplace if noise.law == "laplace" else generator.normal
    value = np.asarray(_bounded(kind, value, noise), np.float64)
    return Perturbed((value + draw(0.0, noise.scale, value.shape)).astype(np.float32), noise)


def _bounded(kind: str, value: Any, noise: ClientNoise) -> np.ndarray:
    return np.asarray(within_bound(kind, noise.unit, noise.bound, np.asarray(value, np.float32)))


class Client(Protocol):
    """Interface of a client. `TorchClient` and `JaxClient` implement it for a model and its data.

    Attributes:
        name: unique name of the client, the same after a restart of the client or the server.
        num_examples: number of training examples.
        num_all_examples: number of training and held-out examples.
    """

    name: str

    @property
    def num_examples(self) -> int: ...  # noqa: D102

    @property
    def num_all_examples(self) -> int: ...  # noqa: D102

    def answer(self, question: Question) -> Any:
        """Return a fact as real numbers, in the shape of its kind; `Perturbed` if the question has `noise`."""
        ...

    def train(self, order: Order) -> TrainingReport:
        """Train from the received model on the client's own examples."""
        ...


class DataClient(ABC):
    """Common base class of `TorchClient` and `JaxClient`.

    Attributes:
        name: unique name of the client.
        inputs: training inputs, [n, ...].
        targets: training labels, integers [n].
        holdout: held-out inputs and labels, or None.
        num_classes: number of classes, C; required for label histograms.
    """

    name: str
    inputs: Any
    targets: Any
    holdout: tuple[Any, Any] | None = None
    num_classes: int | None = None

    @property
    def num_examples(self) -> int:
        """Number of training examples."""
        return len(self.targets)

    @property
    def num_all_examples(self) -> int:
        """Number of training and held-out examples."""
        return self.num_examples + (0 if self.holdout is None else len(self.holdout[1]))

    @abstractmethod
    def losses_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the per-example losses in evaluation mode, [n], nats."""

    @abstractmethod
    def profile_of(self, weights: Arrays, inputs: Any, relu: bool) -> np.ndarray:
        """Return the mean output of the first fully-connected layer, [Q]."""

    @abstractmethod
    def gradient_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the gradient of the mean loss, flat, [P]."""

    @abstractmethod
    def fitted(self, weights: Arrays, config: Mapping[str, Any]) -> tuple[Arrays, Passes | None]:
        """Train on `inputs` and `targets`; return the trained weights, and the losses or None."""

    @abstractmethod
    def flat(self, weights: Arrays) -> np.ndarray:
        """Return the trained weights as one vector, [P]."""

    @abstractmethod
    def joined(self, first: Any, second: Any) -> Any:
        """Return the concatenated examples."""

    def answer(self, question: Question) -> Any:
        """Return a fact, perturbed if the question has `noise`; UserError if the client does not support its kind."""
        value = self._fact(question)
        return value if question.noise is None else perturb(question.kind, value, question.noise)

    def _fact(self, question: Question) -> Any:
        """Return a fact, with bounded examples if the question has `noise`."""
        weights, options, noise = question.weights, question.options, question.noise
        if question.kind == "label_histogram":
            if self.num_classes is None:
                raise UserError(f"num_classes: client {self.name!r} has no value; set it to answer label histograms")
            labels = self._part("all")[1]
            labels = labels.cpu() if hasattr(labels, "cpu") else labels  # PyTorch's, on a GPU
            return np.bincount(np.asarray(labels), minlength=self.num_classes).astype(np.float32)
        assert weights is not None, question.kind
        if question.kind == "loss":
            return self._loss(weights, options, question.round, noise)
        if question.kind == "training_loss":
            return _training_loss(self.fitted(weights, question.config)[1], options, self.name)
        if question.kind in ("update", "update_norm"):
            update = self.flat(self.fitted(weights, question.config)[0]) - self.flat(weights)
            return update if question.kind == "update" else np.linalg.norm(update)
        if question.kind == "seconds":
            started = time.perf_counter()
            self.fitted(weights, question.config)
            return time.perf_counter() - started
        measures = {
            "profile": lambda inputs, _: self.profile_of(weights, inputs, bool(options.get("relu", False))),
            "gradient": lambda inputs, targets: self.gradient_of(weights, inputs, targets),
        }
        if question.kind in measures:
            measure, (inputs, targets) = measures[question.kind], self._part("all")
            if noise is None or (question.kind == "gradient" and noise.unit == "client"):
                return measure(inputs, targets)
            single = (measure(inputs[place : place + 1], targets[place : place + 1]) for place in range(len(targets)))
            return np.mean([_bounded(question.kind, one, noise) for one in single], axis=0)
        raise UserError(f"client {self.name!r} does not support {question.kind!r}; override `answer`")

    def train(self, order: Order) -> TrainingReport:
        """Train, and return the report with the requested facts and losses."""
        weights, passes = self.fitted(order.weights, order.config)
        facts: dict[str, Any] = {}
        for kind, options in order.wanted.items():
            noise = order.noise.get(kind)
            if kind == "training_loss":
                value = _training_loss(passes, options, self.name)
                facts[kind] = value if noise is None else perturb(kind, value, noise)
            else:
                facts[kind] = self.answer(Question(kind, options, order.weights, order.round, order.config, noise))
        losses: dict[str, Callable[[], float]] = {
            "losses_before": lambda: self._loss(order.weights, {}, order.round),
            "losses_after": lambda: self._loss(weights, {}, order.round),
        }
        return TrainingReport(weights, self.num_examples, facts, {name: losses[name]() for name in order.losses})

    def _part(self, on: str) -> tuple[Any, Any]:
        own = (self.inputs, self.targets)
        if on == "holdout" and self.holdout is None:
            raise UserError(f"holdout: client {self.name!r} holds out no examples; give it some")
        if self.holdout is None or on == "train":
            return own
        return self.holdout if on == "holdout" else tuple(map(self.joined, own, self.holdout))

    def _loss(self, weights: Arrays, options: Mapping[str, Any], round: int, noise: ClientNoise | None = None) -> float:
        inputs, targets = self._part(options.get("on", "train"))
        size = options.get("batch_size")
        if size is not None and size < len(targets):
            # A repeated query of the same round draws the same examples.
            rng = np.random.default_rng([round + 1, zlib.crc32(str(self.name).encode())])
            chosen = rng.permutation(len(targets))[:size]
            inputs, targets = inputs[chosen], targets[chosen]
        losses = np.asarray(self.losses_of(weights, inputs, targets), np.float64)
        losses = losses if noise is None else _bounded("loss", losses, noise)
        return float(np.sqrt(np.mean(losses**2)) if options.get("statistic") == "rms" else losses.mean())


def _training_loss(passes: Passes | None, options: Mapping[str, Any], name: str) -> float:
    if not passes:
        raise UserError(
            f"training_loss: `fit` of client {name!r} returns no losses; return one list per pass, with the example "
            "losses of each mini-batch"
        )
    if options.get("statistic") == "rms-first-pass":
        examples = np.concatenate([np.asarray(batch, np.float64).ravel() for batch in passes[0]])
        return float(np.sqrt(np.mean(examples**2)))
    counted = passes[-1:] if options.get("statistic") == "last-pass" else passes
    return float(np.mean([np.mean(np.asarray(batch, np.float64)) for one in counted for batch in one]))


Name = Any  # hashable
AskClients = Callable[[Ask, tuple[Name, ...]], Mapping[Name, Any]]
"""Function from a query and client names to the answers by name; clients that did not answer are missing."""

_log = logging.getLogger(__name__)


class ReceivedReport(NamedTuple):
    """TrainingReport of one cohort client after its training.

    Attributes:
        update: model update w_k - w, arrays by name.
        facts: answers to the queries that were sent with the training order, by kind.
        losses: `losses_before` and `losses_after`, if the strategy reads them, nats.
        carried: untrained arrays of the client's model, such as batch statistics, by name.
        seconds: duration from the dispatch of the model to the report, if the strategy reads it.
    """

    update: Mapping[str, np.ndarray]
    facts: Mapping[str, Any] = {}
    losses: Mapping[str, float] = {}
    carried: Mapping[str, np.ndarray] = {}
    seconds: float | None = None

    @property
    def finite(self) -> bool:
        """Whether all numbers of the client's model are finite."""
        arrays = (*self.update.values(), *self.carried.values())
        return all(np.isfinite(array).all() for array in arrays)


ATTEMPTS = 2  # largest number of queries per client and fact


def choose(
    selector: Selector, available: Iterable[Name] | None, ask: AskClients
) -> tuple[tuple[Name, ...], np.ndarray | None]:
    """Open a round: query the facts that are due, record the answers, and select the cohort and its weights.

    Silent clients are queried again, up to ATTEMPTS times, while fewer than K clients have answered. An invalid
    answer is logged and counts as missing.
    """
    reachable = None if available is None else tuple(available)
    while asks := selector.asks(reachable):
        for due in asks:
            names, values = _answers(due, ask, selector.num_selected)
            selector.tell(due.kind, names, values)
    return selector.select()


def _answers(due: Ask, ask: AskClients, wanted: int) -> tuple[tuple[Name, ...], Any]:
    answers: dict[Name, Any] = {}
    wanted = min(wanted, len(due.clients))
    for attempt in range(1 if due.noise else ATTEMPTS):  # a second answer would spend more of the budget
        left = tuple(name for name in due.clients if name not in answers)
        if not left or (attempt and len(answers) >= wanted):
            break
        answers |= {name: value for name, value in ask(due, left).items() if name in left}
        answers = {name: answers[name] for name in fitting(due, answers)[0]}  # raw: NaN is replaced at the end
    return fitting(due, answers)


def fitting(due: Ask, answers: Mapping[Name, Any]) -> tuple[tuple[Name, ...], Any]:
    """Return the names of the M clients with valid answers, in the query's order, and the answers, float32 [M, *shape].

    If the query has `noise`, the answers are a list of `Perturbed`.

    A non-finite loss means divergence, not a missing answer. As in the simulator, the largest finite loss replaces it;
    with the option `nonfinite="missing"`, it is returned. Raise UserError if no gradient or update has P numbers.
    """
    rows: dict[Name, np.ndarray] = {}
    noises = {name: one.noise for name, one in answers.items() if isinstance(one, Perturbed)}
    shape = ""
    for name in due.clients:
        if name not in answers:
            continue
        try:
            row = np.asarray(answers[name].value if name in noises else answers[name], np.float32)
        except (TypeError, ValueError):
            row = None
        if row is None or row.shape != due.shape:
            shape = "not numeric" if row is None else f"of shape {list(row.shape)}"
            _log.warning("%s of client %r is %s, not of shape %s; ignored", due.kind, name, shape, list(due.shape))
            continue
        rows[name] = row
    if shape and not rows and KINDS[due.kind].symbol == "P":
        raise UserError(
            f"{due.kind}: no answer is of shape {list(due.shape)}, and the last is {shape}; count only the weights "
            "that clients train, without buffers such as batch statistics (`params`, or `trained` of SelectorStrategy)"
        )
    may_be_missing = KINDS[due.kind].is_loss and due.options.get("nonfinite") == "missing"
    if KINDS[due.kind].is_loss and not may_be_missing:
        rows = dict(zip(rows, finite_losses(list(rows.values()), due.largest_known)))
    for name in [name for name, row in rows.items() if not (may_be_missing or np.isfinite(row).all())]:
        _log.warning("%s of client %r is not finite; ignored", due.kind, name)
        del rows[name]
    if due.noise:
        return tuple(rows), [Perturbed(row, noises.get(name)) for name, row in rows.items()]
    return tuple(rows), np.stack(list(rows.values())) if rows else np.zeros((0, *due.shape), np.float32)


def finite_losses(losses: Sequence[Any], known: float = -np.inf) -> np.ndarray:
    """Return losses [M, ...], nats, clipped to the simulator's range, with NaN replaced by the largest finite loss.

    `known` is the largest loss of earlier answers; -inf without earlier answers.
    """
    values = np.asarray(losses, np.float32)
    clipped = np.clip(values, -LARGEST, LARGEST)
    finite = clipped[np.isfinite(values)]
    largest = finite.max(initial=known)
    return np.where(np.isnan(values), largest if np.isfinite(largest) else LARGEST, clipped).astype(np.float32)


def close(
    selector: Selector,
    reports: Mapping[Name, ReceivedReport],
    step: Mapping[str, np.ndarray],
    metrics: tuple[Mapping[str, float], Mapping[str, float]] | None = None,
    subset_loss: Callable[[tuple[Name, ...]], float] | None = None,
) -> None:
    """Close a round: record the cohort's answers and pass its reports to the strategy.

    Args:
        selector: a Selector that has selected its cohort.
        reports: received reports by client name, in any order.
        step: change of the global model, arrays by name.
        metrics: the server's evaluations before and after the round, if the strategy reads them.
        subset_loss: see `Selector.update`.
    """
    for due in selector.asks():
        answers = {name: report.facts[due.kind] for name, report in reports.items() if due.kind in report.facts}
        selector.tell(due.kind, *fitting(due, answers))
    values: dict[str, Any] = {"step": dict(step), "metrics": metrics, "subset_loss": subset_loss}
    values["seconds"] = [report.seconds for report in reports.values()]
    updates = [dict(report.update) for report in reports.values()]
    if updates:
        values["updates"] = jax.tree.map(lambda *leaves: np.stack(leaves), *updates)
    else:
        values["updates"] = {name: np.zeros((0, *np.shape(array)), np.float32) for name, array in step.items()}
    for name in ("losses_before", "losses_after"):
        if name in selector.reads:
            values[name] = finite_losses([report.losses[name] for report in reports.values()])
    broken = [name for name, report in reports.items() if not report.finite]
    given = {name: value for name, value in values.items() if name in selector.reads}
    selector.update(tuple(reports), broken=broken, **given)
