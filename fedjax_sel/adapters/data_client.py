"""Base class of clients with a model and data, which derives all facts from a few framework functions."""

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_sel.adapters.rounds import Arrays, Order, Question, Report
from fedjax_sel.errors import UserError

Passes = Sequence[Sequence[Any]]  # per pass over the data and per mini-batch, an array of per-example losses


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
        """Return a fact, or raise UserError if the client does not support its kind."""
        weights, options = question.weights, question.options
        if question.kind == "label_histogram":
            if self.num_classes is None:
                raise UserError(f"num_classes: client {self.name!r} has no value; set it to answer label histograms")
            return np.bincount(np.asarray(self._part("all")[1]), minlength=self.num_classes).astype(np.float32)
        assert weights is not None, question.kind
        if question.kind == "loss":
            return self._loss(weights, options, question.round)
        if question.kind == "training_loss":
            return _training_loss(self.fitted(weights, question.config)[1], options, self.name)
        if question.kind in ("update", "update_norm"):
            update = self.flat(self.fitted(weights, question.config)[0]) - self.flat(weights)
            return update if question.kind == "update" else np.linalg.norm(update)
        if question.kind == "seconds":
            started = time.perf_counter()
            self.fitted(weights, question.config)
            return time.perf_counter() - started
        everything = self._part("all")
        if question.kind == "profile":
            return self.profile_of(weights, everything[0], bool(options.get("relu", False)))
        if question.kind == "gradient":
            return self.gradient_of(weights, *everything)
        raise UserError(f"client {self.name!r} does not support {question.kind!r}; override `answer`")

    def train(self, order: Order) -> Report:
        """Train, and return the report with the requested facts and losses."""
        weights, passes = self.fitted(order.weights, order.config)
        facts: dict[str, Any] = {}
        for kind, options in order.wanted.items():
            if kind == "training_loss":
                facts[kind] = _training_loss(passes, options, self.name)
            else:
                facts[kind] = self.answer(Question(kind, options, order.weights, order.round, order.config))
        losses: dict[str, Callable[[], float]] = {
            "losses_before": lambda: self._loss(order.weights, {}, order.round),
            "losses_after": lambda: self._loss(weights, {}, order.round),
        }
        return Report(weights, self.num_examples, facts, {name: losses[name]() for name in order.losses})

    def _part(self, on: str) -> tuple[Any, Any]:
        own = (self.inputs, self.targets)
        if self.holdout is None or on == "train":
            return own
        return self.holdout if on == "holdout" else tuple(map(self.joined, own, self.holdout))

    def _loss(self, weights: Arrays, options: Mapping[str, Any], round: int) -> float:
        inputs, targets = self._part(options.get("on", "train"))
        size = options.get("batch_size")
        if size is not None and size < len(targets):
            # A repeated query of the same round draws the same examples.
            rng = np.random.default_rng([round + 1, zlib.crc32(str(self.name).encode())])
            chosen = rng.permutation(len(targets))[:size]
            inputs, targets = inputs[chosen], targets[chosen]
        losses = np.asarray(self.losses_of(weights, inputs, targets), np.float64)
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
