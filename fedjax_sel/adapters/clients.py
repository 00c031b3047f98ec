"""What a client is asked, and what it answers, whatever the framework."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

Arrays = dict[str, np.ndarray]  # of a model, by name


class Question(NamedTuple):
    """A fact that a client is asked for.

    Attributes:
        kind: as in `fedjax_sel.strategies.base.Request`, whose docstring says what is measured.
        options: of the measurement; what is left out is as in `Request`.
        weights: the round's model; None where the answer needs none.
        round: from 0.
        config: what the server says of training, where the answer takes one.
    """

    kind: str
    options: Mapping[str, Any]
    weights: Arrays | None
    round: int
    config: Mapping[str, Any] = {}


class Order(NamedTuple):
    """To train.

    Attributes:
        weights: the round's model.
        round: from 0.
        probe: which of the round's probes this is for, whose model is thrown away; None: it is for good.
        config: what the server says beside that.
        wanted: kind -> options of the facts that travel with the report, measured on `weights` or, `training_loss`,
            while it trains.
        losses: which of `losses_before` and `losses_after` are wanted, of the training examples, nats.
    """

    weights: Arrays
    round: int
    probe: int | None = None
    config: Mapping[str, Any] = {}
    wanted: Mapping[str, Mapping[str, Any]] = {}
    losses: tuple[str, ...] = ()


class Report(NamedTuple):
    """What comes of an order.

    Attributes:
        weights: the client's own, by the names of those that it received.
        num_examples: that it trains on.
        facts: kind -> what was wanted.
        losses: name -> what was wanted, nats.
        metrics: of its own, for the server's log.
    """

    weights: Arrays
    num_examples: int
    facts: Mapping[str, Any] = {}
    losses: Mapping[str, float] = {}
    metrics: Mapping[str, float] = {}


class Client(Protocol):
    """A client that answers. `TorchClient` and `JaxClient` are made of a model and its data; or write these yourself.

    Attributes:
        name: by which the server knows it, also after either of them was started anew.
        num_examples: that it trains on.
        num_all_examples: with those that it holds out.
    """

    name: str

    @property
    def num_examples(self) -> int: ...  # noqa: D102

    @property
    def num_all_examples(self) -> int: ...  # noqa: D102

    def answer(self, question: Question) -> Any:
        """Return a fact, real numbers of the shape that the kind has."""
        ...

    def train(self, order: Order) -> Report:
        """Train from the model that was received, on the client's own examples."""
        ...
