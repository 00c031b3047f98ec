"""The contract between a federated optimizer and the simulator.

An optimizer is a value, like a strategy: pure functions beside static fields. It says which gradient a client steps on,
what the client reports when its steps are done, and what the server makes of the weighted mean of the reports. The
simulator trains, adds up, keeps what the optimizer remembers, and bills what it sends.

    receive w^t (and `shared`) -> steps on `gradient` -> `report` -> weighted sums -> `combine` -> `server` -> w^(t+1)

Whatever it is, an update in this project is w_k - w^t: strategies read the same under every optimizer, and the losses
that they read are the clients' own, without any term that an optimizer adds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from fedjax_sel.models import Params


class Memory(NamedTuple):
    """What an optimizer remembers beside the model; empty pytrees where it remembers nothing."""

    own: Any = ()  # of each client, between the rounds in which it trains
    shared: Any = ()  # of the server, which sends it to the cohort with the model


NOTHING_REMEMBERED = Memory()


class Finished(NamedTuple):
    """A client whose local steps are done."""

    update: Params  # w_k - w^t
    # |a|_1: sum of the factors of its gradients in -update / learning_rate, of earlier rounds where its own optimizer
    # goes on; its steps for SGD.
    coefficient: jax.Array
    learning_rate: jax.Array


class Report(NamedTuple):
    """What a client leaves behind. Pytrees of arrays whose structure is the same in every round."""

    averaged: Any  # the server gets sum_k weight_k averaged_k, with the aggregation's weights
    contributed: Any = ()  # the server adds 1/N of it to `Memory.shared`, whatever the weights
    own: Any = ()  # the client's `Memory.own` from now on


def same_gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
    """Return the gradient of the client's own loss, on which the client then steps."""
    del weights, received, memory
    return gradient


def report_update(finished: Finished, memory: Memory) -> Report:
    """Report the client's update."""
    del memory
    return Report(finished.update)


def as_it_is(averaged: Any) -> Params:
    """Return the mean report, which is the mean update."""
    return averaged


def nothing(params: Params) -> tuple[()]:
    """Remember nothing."""
    del params
    return ()


class FederatedOptimizer(NamedTuple):
    """A federated optimizer. Functions are pure and traceable; static.

    Attributes:
        name: for messages.
        gradient: (gradient, weights, received, memory) -> what the client's own optimizer steps on; all of them pytrees
            of the model, `received` being w^t. Must be linear in the gradient and in what has the model's structure,
            for it is also asked for its factors (`Finished.coefficient`).
        report: (finished, memory) -> Report.
        combine: mean report -> mean update.
        server: learning rate -> the server's transformation of minus the mean update.
        server_learning_rate: where nothing else is said.
        init_own: params -> `Memory.own` of a client that never trained, zeros; also called with a scalar.
        init_shared: params -> `Memory.shared` before the first round, zeros; also called with a scalar.
        vectors_down: model-sized vectors that a client receives beside the model, to train.
        vectors_up: those that it sends beside its update.
        floats_up: numbers that it sends beside its update.
    """

    name: str
    gradient: Callable[[Params, Params, Params, Memory], Params] = same_gradient
    report: Callable[[Finished, Memory], Report] = report_update
    combine: Callable[[Any], Params] = as_it_is
    server: Callable[[float], optax.GradientTransformation] = optax.sgd
    server_learning_rate: float = 1.0
    init_own: Callable[[Params], Any] = nothing
    init_shared: Callable[[Params], Any] = nothing
    vectors_down: int = 0
    vectors_up: int = 0
    floats_up: int = 0
