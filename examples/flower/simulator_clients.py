"""Simulator clients for the Flower example: equal random keys and facts give equal cohorts and bills."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import setting as settings
from setting import Examples, Setting

from fedjax_sel.adapters.jax_client import arrays_of, params_of
from fedjax_sel.adapters.rounds import Order, Question, TrainingReport
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import keys, queries, run
from fedjax_sel.simulation.run import Program
from fedjax_sel.simulation.state import Kept
from fedjax_sel.strategies.facts import ALL, Request, always
from fedjax_sel.training import client as training
from fedjax_sel.training.optimizers import NOTHING_REMEMBERED

PROFILE_SIZE = 64
FIRST = jnp.int32(0)  # the only seed


@functools.cache
def program(setting: Setting) -> Program:
    """Return the simulator's prepared program; no round of it is run."""
    return run.prepare(settings.problem(setting), 0)


@functools.cache
def answering(setting: Setting, request: Request):
    """Return the compiled function that answers a request for a fact."""
    plan = program(setting).plan

    def answer(weights, federation, client, training_key, facts_key, round):
        question = queries.Question(
            plan.trainer, request, plan.loss_on, federation, weights, Kept(None, ()), NOTHING_REMEMBERED, FIRST, client,
            training_key, facts_key, round,
        )  # fmt: skip
        return queries.ANSWERS[request.kind](question)

    return jax.jit(answer)


@functools.cache
def fitting(setting: Setting):
    """Return the compiled function of a client's local training."""
    trainer = program(setting).plan.trainer

    def train(weights, federation, client, key, round):
        return training.train_and_report(trainer, federation, weights, FIRST, client, key, round).update

    return jax.jit(train)


class Simulated:
    """A client of the simulator behind Flower's client interface."""

    def __init__(self, setting: Setting, number: int):
        self.setting, self.number, self.name = setting, jnp.int32(number), str(number)
        federation = program(setting).federation
        self.num_examples = int(federation.train_sizes[0, number])
        self.num_all_examples = int(federation.sizes[0, number])

    def answer(self, question: Question):
        """Return the requested fact."""
        prepared, round = program(self.setting), jnp.int32(question.round)
        request = Request(question.kind, ALL, always(), tuple(question.options.items()))
        client_keys = [
            keys.client_key(stream[0], round, self.number)
            for stream in (prepared.streams.training, prepared.streams.facts)
        ]
        given = received(self.setting, question.weights or initial(self.setting))
        return answering(self.setting, request)(given, prepared.federation, self.number, *client_keys, round)

    def train(self, order: Order) -> TrainingReport:
        """Train for the round or for a probe."""
        prepared, given, round = program(self.setting), received(self.setting, order.weights), jnp.int32(order.round)
        key = keys.client_key(prepared.streams.training[0], round, self.number)
        if order.probe is not None:
            key = jax.random.fold_in(keys.probe_key(prepared.streams.facts[0], round, order.probe), self.number)
        update = fitting(self.setting)(given, prepared.federation, self.number, key, round)
        trained = jax.tree.map(lambda before, change: before + change, given.trained, update.trained)
        return TrainingReport(arrays_of(trained), self.num_examples)


def received(setting: Setting, weights: dict[str, np.ndarray]) -> Weights:
    """Convert Flower's arrays to the simulator's weights."""
    like = program(setting).carry.params.trained
    return Weights(params_of(weights, like))


@functools.cache
def client(setting: Setting, number: int) -> Simulated:
    """Return the client with this number; each Ray actor builds it once."""
    return Simulated(setting, number)


def initial(setting: Setting) -> dict[str, np.ndarray]:
    """Return the initial weights."""
    return arrays_of(jax.tree.map(lambda leaf: leaf[0], program(setting).carry.params.trained))


def evaluate(setting: Setting, weights: dict[str, np.ndarray], examples: Examples) -> dict[str, float]:
    """Evaluate a model on examples."""
    trainer = program(setting).plan.trainer
    outputs = trainer.model.apply(received(setting, weights), jnp.asarray(examples.inputs), None).prediction
    losses = trainer.task.losses(outputs, jnp.asarray(examples.labels))
    return settings.measures(np.asarray(losses), np.asarray(outputs.argmax(axis=1)), examples.labels)
