"""Federated optimizers: the contract, FedAvg, FedProx, FedNova, SCAFFOLD, and adaptive server optimizers, by name."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.core.plugins import Decay, NonNegative, Positive, Registry
from fedjax_sel.models import Params


# The contract between a federated optimizer and the simulator.
#
# receive w^t (and `shared`) -> steps on `gradient` -> `report` -> weighted sums -> `combine` -> `server` -> w^(t+1)
#
# An update is w_k - w^t under every optimizer, so strategies always read the same quantity. The losses that they read
# are the clients' own, without any term that an optimizer adds.
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


class FederatedOptimizer(NamedTuple):
    """A federated optimizer; static. Its functions are pure and traceable.

    Attributes:
        name: name in messages.
        gradient: (gradient, weights, received, memory) -> the gradient that the client's own optimizer steps on. It
            must be linear in the pytrees of the model, since it also computes `Finished.coefficient` on a scalar.
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
    gradient: Callable[[Params, Params, Params, Memory], Params] = lambda gradient, *_: gradient
    report: Callable[[Finished, Memory], Report] = lambda finished, _: Report(finished.update)
    combine: Callable[[Any], Params] = lambda averaged: averaged
    server: Callable[[float], optax.GradientTransformation] = optax.sgd
    server_learning_rate: float = 1.0
    init_own: Callable[[Params], Any] = lambda params: ()
    init_shared: Callable[[Params], Any] = lambda params: ()
    vectors_down: int = 0
    vectors_up: int = 0
    floats_up: int = 0


def fedavg() -> FederatedOptimizer:
    """Build FedAvg (McMahan et al. 2017); `--server-learning-rate` scales the weighted mean of the updates."""
    return FederatedOptimizer("fedavg")


# FedProx (Li et al., MLSys 2020): a proximal term keeps clients near the received model.
#
# F_k(w) + (mu / 2) ||w - w^t||^2, so each step uses   gradient + mu (w - w^t)
#
# FedProx targets clients with unequal work (`--local-epochs 1:5`). With mu = 0 it is FedAvg.
def fedprox(*, mu: NonNegative = 0.01) -> FederatedOptimizer:
    """Build FedProx.

    Args:
        mu: coefficient of the proximal term, at least 0; the paper uses 0.001, 0.01, 0.1 and 1.
    """
    return FederatedOptimizer("fedprox", gradient=proximal(mu))


def proximal(mu: float):
    """Return the `FederatedOptimizer.gradient` that adds the gradient of the proximal term."""

    def gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
        return jax.tree.map(lambda g, w, w_t: g + mu * (w - w_t), gradient, weights, received)

    return gradient


# FedNova (Wang et al., NeurIPS 2020): normalized updates, so that clients with more steps do not dominate.
#
# Symbols: tau_i steps of client i; a_i the factors of its gradients in its update, so that -update = eta sum_s a_i,s
# g_s, and |a_i|_1 = tau_i for SGD; weights omega_i.
#
# d_i       = -update_i / (eta |a_i|_1)                      the mean gradient along the client's path
# tau_eff   = sum omega_i |a_i|_1                            effective number of steps
# w^(t+1)   = w^t - tau_eff eta sum omega_i d_i
#
# With equal |a_i|_1, FedNova equals FedAvg up to rounding. The client's own optimizer gives |a_i|_1: its displacement
# in the same steps if every gradient is one. This agrees with the paper's formulas for SGD, momentum and the proximal
# term, and also covers both together, weight decay, and a persistent momentum buffer.
#
# Differs from the paper: tau_eff stays a mean if the weights do not sum to one (`global-samples`, `unbiased`). If the
# client optimizer is not linear in its gradients, as Adam, a_i does not exist, and the displacement above replaces it.
class Averaged(NamedTuple):
    """A client's report; the server receives the weighted sums."""

    direction: Params  # update_i / |a_i|_1, that is -eta d_i
    coefficient: jax.Array  # |a_i|_1
    one: jax.Array  # 1, so that its weighted sum is the sum of the weights


def fednova(*, mu: NonNegative = 0.0) -> FederatedOptimizer:
    """Build FedNova.

    Args:
        mu: coefficient of a proximal term, at least 0.
    """

    def report(finished: Finished, memory: Memory) -> Report:
        direction = jax.tree.map(lambda update: update / finished.coefficient, finished.update)
        return Report(Averaged(direction, finished.coefficient, jnp.ones_like(finished.coefficient)))

    def combine(averaged: Any) -> Params:
        weights = jnp.where(averaged.one == 0, 1.0, averaged.one)  # an empty cohort leaves the model unchanged
        effective_steps = averaged.coefficient / weights  # tau_eff
        return jax.tree.map(lambda direction: effective_steps * direction, averaged.direction)

    return FederatedOptimizer("fednova", gradient=proximal(mu), report=report, combine=combine, floats_up=1)


# SCAFFOLD (Karimireddy et al., ICML 2020), option II: control variates correct clients towards the global gradient.
#
# Symbols: y the client's weights, c_i its control variate, c the server's, tau steps, eta the learning rate, N clients.
#
# y    <- y - eta (g - c_i + c)                              each local step
# c_i+  = c_i - c + (w^t - y) / (tau eta)                    after the last step (option II)
# c    <- c + (1/N) sum over the cohort of (c_i+ - c_i)
#
# All variates start at zero, so c is always the mean of all c_i, under any selection. A client whose report is lost or
# skipped keeps its old variate, since the server never receives the change.
#
# c travels down and c_i+ - c_i up. State: one model size for each of the N clients.
# Differs from the paper: tau eta is |a_i|_1 eta (see FedNova), which is equal for plain SGD. Momentum increases the
# displacement by up to 1 / (1 - momentum), and variates of that size would drive clients apart.
# Under biased selection, the variates of rarely selected clients are stale: c no longer tracks the global gradient.
def scaffold() -> FederatedOptimizer:
    """Build SCAFFOLD; the paper's eta_g is `--server-learning-rate`."""

    def gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
        return jax.tree.map(lambda g, c_i, c: g - c_i + c, gradient, memory.own, memory.shared)

    def report(finished: Finished, memory: Memory) -> Report:
        path_length = finished.coefficient * finished.learning_rate
        change = jax.tree.map(lambda update, c: -c - update / path_length, finished.update, memory.shared)
        own = jax.tree.map(jnp.add, memory.own, change)
        return Report(finished.update, contributed=change, own=own)

    zeros = partial(jax.tree.map, jnp.zeros_like)
    return FederatedOptimizer(
        "scaffold", gradient, report, init_own=zeros, init_shared=zeros, vectors_down=1, vectors_up=1
    )


# FedAvgM (Hsu et al. 2019) and FedAdagrad, FedAdam, FedYogi (Reddi et al., ICLR 2021, Alg. 2).
#
# Delta is the mean update:
#
# FedAvgM     m <- beta m + Delta                       w <- w + eta m
# the others  m <- beta1 m + (1 - beta1) Delta          w <- w + eta m / (sqrt(v) + tau)
# FedAdagrad  v <- v + Delta^2
# FedAdam     v <- beta2 v + (1 - beta2) Delta^2
# FedYogi     v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)
#
# v starts at tau^2, without bias correction. Optax's `adam`, `yogi` and `adagrad` differ in both, and
# `--server-optimizer` offers them. Clients train as in FedAvg.

ADAPTIVE_LEARNING_RATE = 0.01  # default eta; the paper tunes it per task, 10^-3 to 10^0.5


class FedOptState(NamedTuple):
    """Two moments of the pseudo-gradient, pytrees of the model."""

    first: Any  # m, of -Delta
    second: Any  # v


def fedavgm(*, momentum: Decay = 0.9, nesterov: bool = False, learning_rate: Positive = 1.0) -> FederatedOptimizer:
    """Build FedAvgM: SGD with momentum on the server.

    Args:
        momentum: beta, in [0, 1).
        nesterov: whether to use Nesterov momentum.
        learning_rate: default eta; --server-learning-rate overrides it.
    """
    server = partial(optax.sgd, momentum=momentum, nesterov=nesterov)
    return FederatedOptimizer("fedavgm", server=server, server_learning_rate=learning_rate)


def fedadagrad(
    *, beta1: Decay = 0.0, tau: Positive = 1e-3, learning_rate: Positive = ADAPTIVE_LEARNING_RATE
) -> FederatedOptimizer:
    """Build FedAdagrad.

    Args:
        beta1: decay of the first moment, in [0, 1); the paper uses 0.
        tau: adaptivity, above 0.
        learning_rate: default eta; --server-learning-rate overrides it.
    """
    return _adaptive("fedadagrad", lambda v, squared: v + squared, beta1, tau, learning_rate)


def fedadam(
    *, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Positive = 1e-3, learning_rate: Positive = ADAPTIVE_LEARNING_RATE
) -> FederatedOptimizer:
    """Build FedAdam.

    Args:
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        tau: adaptivity, above 0.
        learning_rate: default eta; --server-learning-rate overrides it.
    """
    return _adaptive("fedadam", lambda v, squared: beta2 * v + (1 - beta2) * squared, beta1, tau, learning_rate)


def fedyogi(
    *, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Positive = 1e-3, learning_rate: Positive = ADAPTIVE_LEARNING_RATE
) -> FederatedOptimizer:
    """Build FedYogi.

    Args:
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        tau: adaptivity, above 0.
        learning_rate: default eta; --server-learning-rate overrides it.
    """

    def rule(v: jax.Array, squared: jax.Array) -> jax.Array:
        return v - (1 - beta2) * squared * jnp.sign(v - squared)

    return _adaptive("fedyogi", rule, beta1, tau, learning_rate)


def _adaptive(
    name: str, rule: Callable[[jax.Array, jax.Array], jax.Array], beta1: float, tau: float, learning_rate: float
) -> FederatedOptimizer:
    """Build an optimizer whose server moves by eta m / (sqrt(v) + tau); `rule` is (v, Delta^2) -> v."""

    def init(params: optax.Params) -> FedOptState:
        second = jax.tree.map(lambda w: jnp.full_like(w, tau**2), params)
        return FedOptState(jax.tree.map(jnp.zeros_like, params), second)

    def update(updates: optax.Updates, state: Any, params: optax.Params | None = None) -> tuple[Any, FedOptState]:
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, updates)
        second = jax.tree.map(lambda v, g: rule(v, g * g), state.second, updates)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), first, second), FedOptState(first, second)

    def server(rate: float) -> optax.GradientTransformation:
        return optax.chain(optax.GradientTransformation(init, update), optax.scale_by_learning_rate(rate))

    return FederatedOptimizer(name, server=server, server_learning_rate=learning_rate)


class Entry(NamedTuple):
    """An optimizer in the list of `fedjax-sel list`."""

    factory: Callable[..., FederatedOptimizer]
    paper: str
    about: str


TABLE: dict[str, Entry] = {
    "fedavg": Entry(fedavg, "McMahan et al. 2017", "the mean of the updates"),
    "fedprox": Entry(fedprox, "Li et al. 2020", "a proximal term keeps clients near the received model"),
    "fednova": Entry(fednova, "Wang et al. 2020", "the mean direction, times the mean number of steps"),
    "scaffold": Entry(scaffold, "Karimireddy et al. 2020", "clients are corrected by control variates"),
    "fedavgm": Entry(fedavgm, "Hsu et al. 2019", "the server's SGD has momentum"),
    "fedadagrad": Entry(fedadagrad, "Reddi et al. 2021", "the server uses Adagrad"),
    "fedadam": Entry(fedadam, "Reddi et al. 2021", "the server uses Adam"),
    "fedyogi": Entry(fedyogi, "Reddi et al. 2021", "the server uses Yogi"),
}

REGISTRY = Registry("--optimizer", FederatedOptimizer, {name: entry.factory for name, entry in TABLE.items()})

names, make, parameters = REGISTRY.names, REGISTRY.make, REGISTRY.parameters
"""Functions that list the optimizers, build one by name, and return its parameters; see `Registry`."""
