"""Framework-independent interface of a client: queries, training orders and reports."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

Arrays = dict[str, np.ndarray]  # a model's arrays by name


class Question(NamedTuple):
    """A query to a client for one fact.

    Attributes:
        kind: kind of the fact; the docstring of `fedjax_sel.strategies.base.Request` defines its measurement.
        options: options of the measurement; `Request` gives the defaults.
        weights: the round's model; None if the answer does not need it.
        round: the round, from 0.
        config: the server's training configuration; empty if the answer requires no training.
    """

    kind: str
    options: Mapping[str, Any]
    weights: Arrays | None
    round: int
    config: Mapping[str, Any] = {}


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
    """

    weights: Arrays
    round: int
    probe: int | None = None
    config: Mapping[str, Any] = {}
    wanted: Mapping[str, Mapping[str, Any]] = {}
    losses: tuple[str, ...] = ()


class Report(NamedTuple):
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
        """Return a fact as real numbers, in the shape of its kind."""
        ...

    def train(self, order: Order) -> Report:
        """Train from the received model on the client's own examples."""
        ...
