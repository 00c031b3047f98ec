"""FedAvgM (Hsu et al. 2019) and FedAdagrad, FedAdam, FedYogi (Reddi et al., ICLR 2021, Alg. 2).

The server treats minus the mean update Delta as a gradient and takes its own optimizer step:

    FedAvgM     m <- beta m + Delta                       w <- w + eta m
    the others  m <- beta1 m + (1 - beta1) Delta          w <- w + eta m / (sqrt(v) + tau)
    FedAdagrad  v <- v + Delta^2
    FedAdam     v <- beta2 v + (1 - beta2) Delta^2
    FedYogi     v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)

v starts at tau^2, without bias correction. Optax's `adam`, `yogi` and `adagrad` differ in both, and
`--server-optimizer` offers them. Clients train as in FedAvg. Traffic: the baseline.

The optimizers are Optax gradient transformations of the pseudo-gradient -Delta.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.errors import UserError
from fedjax_sel.training.optimizers.base import FederatedOptimizer

ADAPTIVE_LEARNING_RATE = 0.01  # default eta; the paper tunes it per task, 10^-3 to 10^0.5

SecondMoment = Callable[[jax.Array, jax.Array, float], jax.Array]  # (v, Delta^2, beta2) -> v


class FedOptState(NamedTuple):
    """Two moments of the pseudo-gradient, pytrees of the model."""

    first: Any  # m, of -Delta
    second: Any  # v


def scale_by_fedopt(
    second_moment: SecondMoment, beta1: float, beta2: float, tau: float
) -> optax.GradientTransformation:
    """Scale to the direction m / (sqrt(v) + tau) of the paper.

    Args:
        second_moment: update rule of v.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        tau: adaptivity; v starts at tau^2.
    """

    def init(params: optax.Params) -> FedOptState:
        return FedOptState(
            jax.tree.map(jnp.zeros_like, params), jax.tree.map(lambda w: jnp.full_like(w, tau**2), params)
        )

    def update(updates: optax.Updates, state: Any, params: optax.Params | None = None) -> tuple[Any, FedOptState]:
        del params
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, updates)
        second = jax.tree.map(lambda v, g: second_moment(v, g * g, beta2), state.second, updates)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), first, second), FedOptState(first, second)

    return optax.GradientTransformation(init, update)


def _adagrad(v: jax.Array, squared: jax.Array, beta2: float) -> jax.Array:
    del beta2
    return v + squared


def _adam(v: jax.Array, squared: jax.Array, beta2: float) -> jax.Array:
    return beta2 * v + (1 - beta2) * squared


def _yogi(v: jax.Array, squared: jax.Array, beta2: float) -> jax.Array:
    return v - (1 - beta2) * squared * jnp.sign(v - squared)


def fedavgm(*, momentum: float = 0.9, nesterov: bool = False, learning_rate: float = 1.0) -> FederatedOptimizer:
    """Build FedAvgM: SGD with momentum on the server.

    Args:
        momentum: beta, in [0, 1).
        nesterov: whether to use Nesterov momentum.
        learning_rate: default eta; --server-learning-rate overrides it.

    Raises:
        UserError: the momentum or the learning rate is out of range.
    """
    _share("momentum", momentum)
    _positive("learning_rate", learning_rate)
    server = partial(optax.sgd, momentum=momentum, nesterov=nesterov)
    return FederatedOptimizer("fedavgm", server=server, server_learning_rate=learning_rate)


def fedadagrad(
    *, beta1: float = 0.0, tau: float = 1e-3, learning_rate: float = ADAPTIVE_LEARNING_RATE
) -> FederatedOptimizer:
    """Build FedAdagrad.

    Args:
        beta1: decay of the first moment, in [0, 1); the paper uses 0.
        tau: adaptivity, above 0.
        learning_rate: default eta; --server-learning-rate overrides it.

    Raises:
        UserError: a hyperparameter is out of range.
    """
    return _adaptive("fedadagrad", _adagrad, beta1, 0.0, tau, learning_rate)


def fedadam(
    *, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, learning_rate: float = ADAPTIVE_LEARNING_RATE
) -> FederatedOptimizer:
    """Build FedAdam.

    Args:
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        tau: adaptivity, above 0.
        learning_rate: default eta; --server-learning-rate overrides it.

    Raises:
        UserError: a hyperparameter is out of range.
    """
    return _adaptive("fedadam", _adam, beta1, beta2, tau, learning_rate)


def fedyogi(
    *, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, learning_rate: float = ADAPTIVE_LEARNING_RATE
) -> FederatedOptimizer:
    """Build FedYogi.

    Args:
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        tau: adaptivity, above 0.
        learning_rate: default eta; --server-learning-rate overrides it.

    Raises:
        UserError: a hyperparameter is out of range.
    """
    return _adaptive("fedyogi", _yogi, beta1, beta2, tau, learning_rate)


def _adaptive(
    name: str, rule: SecondMoment, beta1: float, beta2: float, tau: float, learning_rate: float
) -> FederatedOptimizer:
    _share("beta1", beta1)
    _share("beta2", beta2)
    _positive("tau", tau)
    _positive("learning_rate", learning_rate)

    def server(rate: float) -> optax.GradientTransformation:
        return optax.chain(scale_by_fedopt(rule, beta1, beta2, tau), optax.scale_by_learning_rate(rate))

    return FederatedOptimizer(name, server=server, server_learning_rate=learning_rate)


def _positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise UserError(f"--optimizer-args {name}={value}: must be a positive number")


def _share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise UserError(f"--optimizer-args {name}={value}: must be at least 0 and below 1")
