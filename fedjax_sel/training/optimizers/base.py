"""The contract between a federated optimizer and the simulator.

An optimizer is a value, like a strategy: pure functions and static fields. It defines the gradient that a client steps
on, the client's report after its steps, and the mean update that the server computes from the weighted mean report. The
simulator trains, sums, stores the optimizer's memory, and bills its communication.

    receive w^t (and `shared`) -> steps on `gradient` -> `report` -> weighted sums -> `combine` -> `server` -> w^(t+1)

An update is w_k - w^t under every optimizer, so strategies always read the same quantity. The losses that they read are
the clients' own, without any term that an optimizer adds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from fedjax_sel.models import Params


class Memory(NamedTuple):
    """An optimizer's memory beside the model; empty pytrees if it has none."""

    own: Any = ()  # per client, kept between the rounds in which it trains
    shared: Any = ()  # the server's, sent to the cohort with the model


NOTHING_REMEMBERED = Memory()


class Finished(NamedTuple):
    """A client's result after its local steps."""

    update: Params  # w_k - w^t
    # |a|_1: sum of the factors of the client's gradients in -update / learning_rate; for SGD, the number of steps. It
    # includes gradients of earlier rounds if the client's own optimizer keeps its state.
    coefficient: jax.Array
    learning_rate: jax.Array


class Report(NamedTuple):
    """A client's report: pytrees of arrays with the same structure in each round."""

    averaged: Any  # the server receives sum_k weight_k averaged_k, with the aggregation weights
    contributed: Any = ()  # the server adds 1/N of it to `Memory.shared`, independent of the weights
    own: Any = ()  # the client's new `Memory.own`


def same_gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
    """Return the gradient of the client's own loss unchanged."""
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
    """Return an empty memory."""
    del params
    return ()


class FederatedOptimizer(NamedTuple):
    """A federated optimizer; static. Its functions are pure and traceable.

    Attributes:
        name: name in messages.
        gradient: (gradient, weights, received, memory) -> the gradient that the client's own optimizer steps on.
            `gradient`, `weights` and `received` (w^t) are pytrees of the model. The function must be linear in the
            pytrees of the model's structure, since it also computes `Finished.coefficient` on a scalar.
        report: (finished, memory) -> Report.
        combine: mean report -> mean update.
        server: learning rate -> the server's optimizer, whose gradient is minus the mean update.
        server_learning_rate: default learning rate of the server.
        init_own: params -> `Memory.own` of a client that has never trained, zeros; also called with a scalar.
        init_shared: params -> `Memory.shared` before the first round, zeros; also called with a scalar.
        vectors_down: number of model-sized vectors that a training client receives beside the model.
        vectors_up: number of model-sized vectors that a client sends beside its update.
        floats_up: number of floats that a client sends beside its update.
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
