"""What one client answers to a request: the value of each kind of fact, its length, and who may be asked.

A client that is asked works at the model that opens the round. Answers that cost training use the client's stream of
the round, so that a client which is selected as well would repeat the same work, and does not need to.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Model, Params
from fedjax_sel.simulation.client_table import Kept
from fedjax_sel.strategies.requests import ALL, CANDIDATES, SELECTED, SERVER, Request
from fedjax_sel.training import client
from fedjax_sel.training.client import Trainer
from fedjax_sel.training.optimizers.base import Memory


class Question(NamedTuple):
    """What a request asks of one client."""

    trainer: Trainer  # static
    request: Request  # static
    loss_on: str  # the configuration's, static
    federation: Federation
    params: Params
    kept: Kept  # of this client; what it trains for an answer leaves that as it is
    memory: Memory  # of the federated optimizer, of this client and of the server
    replicate: jax.Array
    who: jax.Array
    training_key: jax.Array  # of this client in this round
    facts_key: jax.Array
    round: jax.Array

    @property
    def segment(self) -> fed.Segment:
        """The examples that its loss is on."""
        return fed.loss_part(self.federation, self.replicate, self.who, self.request.option("on") or self.loss_on)

    @property
    def everything(self) -> fed.Segment:
        """All its examples."""
        return fed.all_parts(self.federation, self.replicate, self.who)


class Kind(NamedTuple):
    """A kind of fact.

    Attributes:
        answer: question -> the table's entry for one client; None where the simulator measures it otherwise.
        shape: (model, num_classes, request) -> the shape of that entry.
        who: who may be asked.
        options: name -> allowed values, or the type of the value.
        needs_model: whether a client must receive the model to answer.
        trains: whether it trains to answer (else it evaluates examples once).
    """

    answer: Callable[[Question], jax.Array] | None
    shape: Callable[[Model, int, Request], tuple[int, ...]]
    who: tuple[str, ...]
    options: Mapping[str, tuple | type[int]] = MappingProxyType({})
    needs_model: bool = True
    trains: bool = False


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


ANYBODY = (ALL, CANDIDATES, SELECTED)
SEGMENTS = ("train", "holdout", "all")
ON_NONFINITE = ("largest", "missing")

KINDS: Mapping[str, Kind] = {
    "loss": Kind(
        _loss,
        lambda model, classes, request: (),
        ANYBODY,
        {"on": SEGMENTS, "statistic": ("mean", "rms"), "batch_size": int, "nonfinite": ON_NONFINITE},
    ),
    "training_loss": Kind(
        lambda question: _train(question, question.request.option("statistic", "mean")).training_loss,
        lambda model, classes, request: (),
        (CANDIDATES, SELECTED),
        {"statistic": ("mean", "last-pass", "rms-first-pass"), "nonfinite": ON_NONFINITE},
        trains=True,
    ),
    "loss_change": Kind(
        None,
        lambda model, classes, request: (request.option("probes", 1),),
        (ALL,),
        {"probes": int, "restored": (False, True), "on": SEGMENTS, "nonfinite": ON_NONFINITE},
    ),
    "profile": Kind(_profile, lambda model, classes, request: (model.profile_size,), ANYBODY, {"relu": (False, True)}),
    "gradient": Kind(_gradient, lambda model, classes, request: (model.num_params,), ANYBODY),
    "update": Kind(
        lambda question: ravel_pytree(_train(question, None).update)[0],
        lambda model, classes, request: (model.num_params,),
        (ALL, CANDIDATES),
        trains=True,
    ),
    "label_histogram": Kind(_label_histogram, lambda model, classes, request: (classes,), ANYBODY, needs_model=False),
    "server_metrics": Kind(None, lambda model, classes, request: (), (SERVER,), {"on": ("validation", "test")}),
}

LOSSES = ("loss", "training_loss", "loss_change")
"""Kinds that are sanitised before a strategy sees them."""


def floats(request: Request, model: Model, num_classes: int) -> int:
    """Floats that one client sends up to answer."""
    if request.kind == "loss_change":
        return 1 + request.option("probes", 1)  # the loss of the round's model, and one a probe
    if request.kind == "server_metrics":
        return 0
    length = 1
    for size in KINDS[request.kind].shape(model, num_classes, request):
        length *= size
    return length


def evaluated(request: Request, federation: Federation, loss_on: str) -> jax.Array:
    """Examples that each client evaluates to answer, int32 [S, N]."""
    kind = KINDS[request.kind]
    if request.kind == "loss" and request.option("batch_size"):
        return jnp.minimum(_on(federation, request.option("on") or loss_on), request.option("batch_size"))
    if request.kind in ("loss", "loss_change"):
        return _on(federation, request.option("on") or loss_on) * (
            1 + request.option("probes", 1) if request.kind == "loss_change" else 1
        )
    if kind.trains or not kind.needs_model:
        return jnp.zeros_like(federation.train_sizes)
    return federation.sizes


def _on(federation: Federation, part: str) -> jax.Array:
    if part == "all":
        return federation.sizes
    held = federation.holdout_sizes
    return jnp.where((part == "holdout") & (held > 0), held, federation.train_sizes)


def reported(federation: Federation, loss_on: str) -> jax.Array:
    """Examples that each client evaluates to report a loss with its upload, int32 [S, N]."""
    return _on(federation, loss_on)
