"""What one client answers to a request for each kind of fact; what kinds there are is `strategies/kinds.py`'s to say.

A client that is asked works at the model that opens the round. Answers that cost training use the client's stream of
the round, so that a client which is selected as well would repeat the same work, and does not need to.
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
    """What a request asks of one client."""

    trainer: Trainer  # static
    request: Request  # static
    loss_on: str  # the configuration's, static
    federation: Federation
    params: Weights
    kept: Kept  # of this client; what it trains for an answer leaves that as it is
    memory: Memory  # of the federated optimizer, of this client and of the server
    replicate: jax.Array
    who: jax.Array
    training_key: jax.Array  # of this client in this round
    facts_key: jax.Array
    round: jax.Array

    @property
    def segment(self) -> fed.Segment:
        """The examples that the client's loss is on."""
        return fed.loss_part(self.federation, self.replicate, self.who, self.request.option("on") or self.loss_on)

    @property
    def everything(self) -> fed.Segment:
        """All examples of the client."""
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
"""Kind -> the table's entry for one client. A `loss_change` takes several losses (`information.py`), and
`server_metrics` and `subset_loss` come from no client (`server_evaluation.py`)."""


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
