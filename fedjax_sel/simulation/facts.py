"""One client's answer to a request, for each kind of fact in `strategies/kinds.py`.

A client computes its answer at the round's model w^t. An answer that needs training uses the client's random stream of
the round. A client that is also selected would repeat the same training, so that training is billed once.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation.client_table import Kept
from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.requests import Request
from fedjax_sel.training import client
from fedjax_sel.training.client import Trainer
from fedjax_sel.training.optimizers.base import Memory


class Question(NamedTuple):
    """A request to one client, with the inputs of its answer."""

    trainer: Trainer  # static
    request: Request  # static
    loss_on: str  # part of the data that losses are measured on by default; static
    federation: Federation
    params: Weights
    kept: Kept  # the client's row of the client table; an answer leaves it unchanged
    memory: Memory  # the federated optimizer's memory: this client's and the server's
    replicate: jax.Array  # int32 scalar
    who: jax.Array  # client ID, int32 scalar
    training_key: jax.Array  # this client's key for training in this round
    facts_key: jax.Array  # this client's key for choosing examples in this round
    round: jax.Array  # t, int32 scalar

    @property
    def segment(self) -> fed.Segment:
        """The examples on which the client's loss is measured."""
        return fed.loss_part(self.federation, self.replicate, self.who, self.request.option("on") or self.loss_on)

    @property
    def everything(self) -> fed.Segment:
        """All of the client's examples."""
        return fed.all_parts(self.federation, self.replicate, self.who)


def _loss(question: Question) -> jax.Array:
    request = question.request
    common = (question.trainer, question.federation, question.params, question.segment)
    if request.option("batch_size"):
        return client.batch_loss(*common, question.facts_key, request.option("batch_size"))
    return client.loss(*common, request.option("statistic", "mean"))


def _train(question: Question, statistic: str | None) -> client.LocalResult:
    return client.train_and_report(
        question.trainer, question.federation, question.params, question.replicate, question.who,
        question.training_key, question.round, statistic, question.kept.optimizer, question.memory,
    )  # fmt: skip


def _profile(question: Question) -> jax.Array:
    relu = question.request.option("relu", False)
    return client.profile(question.trainer, question.federation, question.params, question.everything, relu)


def _gradient(question: Question) -> jax.Array:
    return ravel_pytree(client.gradient(question.trainer, question.federation, question.params, question.everything))[0]


def _label_histogram(question: Question) -> jax.Array:
    return question.federation.label_counts[question.replicate, question.who].astype(jnp.float32)


ANSWERS: Mapping[str, Callable[[Question], jax.Array]] = {
    "loss": _loss,
    "training_loss": lambda question: _train(question, question.request.option("statistic", "mean")).training_loss,
    "profile": _profile,
    "gradient": _gradient,
    "update": lambda question: ravel_pytree(_train(question, None).update.trained)[0],
    "label_histogram": _label_histogram,
    "update_norm": lambda question: jnp.linalg.norm(ravel_pytree(_train(question, None).update.trained)[0]),
}
"""Kind of fact -> function that computes one client's entry of the table.

`loss_change` combines several losses (`information.py`). `server_metrics` and `subset_loss` are evaluated by the server
(`server_evaluation.py`)."""


def evaluated(request: Request, federation: Federation, loss_on: str) -> jax.Array:
    """Count the examples that each client evaluates to answer, int32 [S, N]."""
    kind = kinds.KINDS[request.kind]
    if kind.evaluates == "part":
        examples = _on(federation, request.option("on") or loss_on)
        if request.option("batch_size"):
            return jnp.minimum(examples, request.option("batch_size"))
        return examples * (1 + kinds.probes(request))
    return federation.sizes if kind.evaluates == "all" else jnp.zeros_like(federation.train_sizes)


def _on(federation: Federation, part: str) -> jax.Array:
    if part == "all":
        return federation.sizes
    held = federation.holdout_sizes
    return jnp.where((part == "holdout") & (held > 0), held, federation.train_sizes)


def reported(federation: Federation, loss_on: str) -> jax.Array:
    """Count the examples that each client evaluates to report a loss with its upload, int32 [S, N]."""
    return _on(federation, loss_on)
