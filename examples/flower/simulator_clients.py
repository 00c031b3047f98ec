"""Clients that do what the simulator's do, with its keys: the same facts, so the same cohorts and the same bill."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import setting as settings
from setting import Examples, Setting

from fedjax_sel.adapters.clients import Order, Question, Report
from fedjax_sel.adapters.jax_client import arrays_of, params_of
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import facts, keys, run
from fedjax_sel.simulation.client_table import Kept
from fedjax_sel.simulation.run import Program
from fedjax_sel.strategies.requests import ALL, Request, always
from fedjax_sel.training import client as training
from fedjax_sel.training.optimizers.base import NOTHING_REMEMBERED

PROFILE_SIZE = 64
FIRST = jnp.int32(0)  # of the replicates: there is one


@functools.cache
def program(setting: Setting) -> Program:
    """Return the simulator's program, of which no round is run."""
    return run.prepare(settings.problem(setting), 0)


@functools.cache
def answering(setting: Setting, request: Request):
    """Return the compiled function that answers a request."""
    plan = program(setting).plan

    def answer(weights, federation, who, training_key, facts_key, round):
        question = facts.Question(
            plan.trainer, request, plan.loss_on, federation, weights, Kept(None, ()), NOTHING_REMEMBERED, FIRST, who,
            training_key, facts_key, round,
        )  # fmt: skip
        return facts.ANSWERS[request.kind](question)

    return jax.jit(answer)


@functools.cache
def fitting(setting: Setting):
    """Return the compiled function of a client's local training."""
    trainer = program(setting).plan.trainer

    def train(weights, federation, who, key, round):
        return training.train_and_report(trainer, federation, weights, FIRST, who, key, round).update

    return jax.jit(train)


class Simulated:
    """One of the simulator's clients."""

    def __init__(self, setting: Setting, number: int):
        self.setting, self.number, self.name = setting, jnp.int32(number), str(number)
        federation = program(setting).federation
        self.num_examples = int(federation.train_sizes[0, number])
        self.num_all_examples = int(federation.sizes[0, number])

    def answer(self, question: Question):
        """Return a fact."""
        own, round = program(self.setting), jnp.int32(question.round)
        request = Request(question.kind, ALL, always(), tuple(question.options.items()))
        of = [keys.of_client(stream[0], round, self.number) for stream in (own.streams.training, own.streams.facts)]
        given = received(self.setting, question.weights or initial(self.setting))
        return answering(self.setting, request)(given, own.federation, self.number, *of, round)

    def train(self, order: Order) -> Report:
        """Train, for good or for a probe."""
        own, given, round = program(self.setting), received(self.setting, order.weights), jnp.int32(order.round)
        key = keys.of_client(own.streams.training[0], round, self.number)
        if order.probe is not None:
            key = jax.random.fold_in(keys.of_probe(own.streams.facts[0], round, order.probe), self.number)
        update = fitting(self.setting)(given, own.federation, self.number, key, round)
        trained = jax.tree.map(lambda before, change: before + change, given.trained, update.trained)
        return Report(arrays_of(trained), self.num_examples)


def received(setting: Setting, weights: dict[str, np.ndarray]) -> Weights:
    """Return weights as the simulator's."""
    like = program(setting).carry.params.trained
    return Weights(params_of(weights, like))


@functools.cache
def client(setting: Setting, number: int) -> Simulated:
    """Return a client; an actor makes each once."""
    return Simulated(setting, number)


def initial(setting: Setting) -> dict[str, np.ndarray]:
    """Return the first weights."""
    return arrays_of(jax.tree.map(lambda leaf: leaf[0], program(setting).carry.params.trained))


def evaluate(setting: Setting, weights: dict[str, np.ndarray], examples: Examples) -> dict[str, float]:
    """Return how well a model does."""
    trainer = program(setting).plan.trainer
    outputs = trainer.model.apply(received(setting, weights), jnp.asarray(examples.inputs), None).prediction
    losses = trainer.task.losses(outputs, jnp.asarray(examples.labels))
    return settings.measures(np.asarray(losses), np.asarray(outputs.argmax(axis=1)), examples.labels)
