"""A configuration's optimizers: the federated one, the clients' own, and the server's."""

from typing import NamedTuple

import optax

from fedjax_sel.config import TrainingConfig
from fedjax_sel.errors import UserError
from fedjax_sel.training import client, optimizers
from fedjax_sel.training.optimizers import by_name
from fedjax_sel.training.optimizers.base import FederatedOptimizer

SGD = "sgd"
NOT_PROPORTIONAL = ("fromage", "rprop")
"""Optax optimizers whose step is not proportional to the learning rate."""
NOT_PROPORTIONAL_WITH = {"adafactor": "weight_decay_rate", "optimistic_adam": "optimism"}
_FLAG = {"client": "--client-optimizer", "server": "--server-optimizer"}


class Optimizers(NamedTuple):
    """The optimizers of a run."""

    federated: FederatedOptimizer
    client: optax.GradientTransformation  # at learning rate 1; the round's learning rate scales its step
    server: optax.GradientTransformation  # its gradient is minus the mean update


def of(training: TrainingConfig, federated: FederatedOptimizer | None = None) -> Optimizers:
    """Build the configured optimizers.

    Args:
        training: the configuration.
        federated: federated optimizer given as a value; None: the configured one.

    Raises:
        UserError: an optimizer or one of its parameters is invalid.
    """
    if federated is None:
        federated = optimizers.make(training.optimizer, **dict(training.optimizer_args))
    return Optimizers(federated, _client(training), _server(training, federated))


def keeps_client_states(training: TrainingConfig) -> bool:
    """Return whether a client's own optimizer keeps its state between the rounds in which the client trains."""
    has_state = training.momentum > 0 or training.client_optimizer != SGD
    return has_state and training.momentum_buffer == "persistent"


def _client(training: TrainingConfig) -> optax.GradientTransformation:
    name, arguments = training.client_optimizer, dict(training.client_optimizer_args)
    if name == SGD:
        if arguments:
            listed = " ".join(f"{key}={value}" for key, value in arguments.items())
            raise UserError(
                f"--client-optimizer-args {listed}: sgd takes no arguments here; use --momentum and --weight-decay"
            )
        return client.sgd(training.momentum, training.weight_decay)
    for flag, value in (("momentum", training.momentum), ("weight-decay", training.weight_decay)):
        if value:
            raise UserError(
                f"--client-optimizer {name}: --{flag} {value:g} applies to sgd only; add --{flag} 0, and set the "
                f"parameters of {name} with --client-optimizer-args"
            )
    if name in NOT_PROPORTIONAL or NOT_PROPORTIONAL_WITH.get(name, "") in arguments:
        raise UserError(
            f"--client-optimizer {name}: its step is not proportional to the learning rate, which changes per round "
            "here; choose another optimizer, such as adam"
        )
    optimizer = by_name.make(_FLAG["client"], name, arguments, learning_rate=1.0)
    return optax.chain(optimizer, optax.scale(-1.0))  # clients subtract the direction, as they do a gradient


def _server(training: TrainingConfig, federated: FederatedOptimizer) -> optax.GradientTransformation:
    name, arguments = training.server_optimizer, dict(training.server_optimizer_args)
    rate = training.server_learning_rate
    if name is None:
        if arguments:
            raise UserError(
                "--server-optimizer-args: no --server-optimizer is given; add one, or remove these arguments"
            )
        return federated.server(federated.server_learning_rate if rate is None else rate)
    if federated.server is not optax.sgd:
        raise UserError(
            f"--server-optimizer {name}: {federated.name} has its own server optimizer; use only one of the two, for "
            "example with --optimizer fedavg"
        )
    if rate is None and name != SGD:
        raise UserError(f"--server-optimizer {name}: its learning rate is missing; add --server-learning-rate 0.01")
    return by_name.make(_FLAG["server"], name, arguments, 1.0 if rate is None else rate)
