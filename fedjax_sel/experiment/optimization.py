"""From the configuration to its optimizers: the federated one, the clients' own, and the server's."""

from typing import NamedTuple

import optax

from fedjax_sel.config import TrainingConfig
from fedjax_sel.errors import UserError
from fedjax_sel.training import client, optimizers
from fedjax_sel.training.optimizers import by_name
from fedjax_sel.training.optimizers.base import FederatedOptimizer

SGD = "sgd"
NOT_PROPORTIONAL = ("fromage", "rprop")
"""Optimizers whose step is not the learning rate times what they make of the gradient: they bound or shrink by it."""
NOT_PROPORTIONAL_WITH = {"adafactor": "weight_decay_rate", "optimistic_adam": "optimism"}
_FLAG = {"client": "--client-optimizer", "server": "--server-optimizer"}


class Optimizers(NamedTuple):
    """All three."""

    federated: FederatedOptimizer
    client: optax.GradientTransformation  # without the learning rate, which the round decides
    server: optax.GradientTransformation  # of minus the mean update


def of(training: TrainingConfig, federated: FederatedOptimizer | None = None) -> Optimizers:
    """Return the optimizers that a configuration names, or with what stands in for the federated one.

    Raises:
        UserError: one sentence with the flag, the value and the way out.
    """
    if federated is None:
        federated = optimizers.make(training.optimizer, **dict(training.optimizer_args))
    return Optimizers(federated, _client(training), _server(training, federated))


def keeps_client_states(training: TrainingConfig) -> bool:
    """Return whether a client's own optimizer goes on from where it stopped when the client last trained."""
    has_state = training.momentum > 0 or training.client_optimizer != SGD
    return has_state and training.momentum_buffer == "persistent"


def _client(training: TrainingConfig) -> optax.GradientTransformation:
    name, arguments = training.client_optimizer, dict(training.client_optimizer_args)
    if name == SGD:
        if arguments:
            listed = " ".join(f"{key}={value}" for key, value in arguments.items())
            raise UserError(
                f"--client-optimizer-args {listed}: the clients' sgd takes --momentum and --weight-decay instead"
            )
        return client.sgd(training.momentum, training.weight_decay)
    for flag, value in (("momentum", training.momentum), ("weight-decay", training.weight_decay)):
        if value:
            raise UserError(
                f"--client-optimizer {name}: --{flag} {value:g} is sgd's; add --{flag} 0, and give {name} its own "
                "parameters with --client-optimizer-args"
            )
    if name in NOT_PROPORTIONAL or NOT_PROPORTIONAL_WITH.get(name, "") in arguments:
        raise UserError(
            f"--client-optimizer {name}: its step is not proportional to its learning rate, which every round decides "
            "here; choose another, such as adam"
        )
    descends = by_name.make(_FLAG["client"], name, arguments, learning_rate=1.0)
    return optax.chain(descends, optax.scale(-1.0))  # a direction to be subtracted, as a gradient is


def _server(training: TrainingConfig, federated: FederatedOptimizer) -> optax.GradientTransformation:
    name, arguments = training.server_optimizer, dict(training.server_optimizer_args)
    rate = training.server_learning_rate
    if name is None:
        if arguments:
            raise UserError("--server-optimizer-args: there is no --server-optimizer that takes them; name one")
        return federated.server(federated.server_learning_rate if rate is None else rate)
    if federated.server is not optax.sgd:
        raise UserError(
            f"--server-optimizer {name}: {federated.name} brings a server optimizer of its own; leave one of them out, "
            "for example with --optimizer fedavg"
        )
    if rate is None and name != SGD:
        raise UserError(f"--server-optimizer {name}: its learning rate is missing; add --server-learning-rate 0.01")
    return by_name.make(_FLAG["server"], name, arguments, 1.0 if rate is None else rate)
