"""Inputs of a round, and the part of them that training jobs read."""

from typing import Any, NamedTuple

import jax

from fedjax_sel import devices
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import client_table
from fedjax_sel.simulation.client_table import HostTable, Kept
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.plan import Carry, Plan
from fedjax_sel.training.optimizers.base import Memory


class RoundContext(NamedTuple):
    """Inputs of a round: configuration, data, state, random streams, and available clients."""

    plan: Plan  # static
    federation: Federation
    carry: Carry  # the run's state at w^t
    streams: Streams
    round: jax.Array  # t, int32 scalar
    available: jax.Array | None  # mask of available clients, bool [S, N]; None: all


class ToTrain(NamedTuple):
    """Inputs that all training jobs share; `devices.spread` passes them to every job."""

    federation: Federation
    params: Weights  # the models that clients receive, [S, ...]
    clients: Kept | HostTable  # client table
    shared: Any  # the federated optimizer's server memory, [S, ...]
    round: jax.Array  # t, int32 scalar

    def received(self, replicate: jax.Array) -> Weights:
        """Return the model that the clients of a replicate receive."""
        return devices.of_replicate(self.params, replicate)

    def kept(self, replicate: jax.Array, client: jax.Array) -> Kept:
        """Return a client's row of the client table."""
        return client_table.row(self.clients, replicate, client)

    def memory(self, replicate: jax.Array, kept: Kept) -> Memory:
        """Return the federated optimizer's memory: the client's, from its row `kept`, and the server's."""
        return Memory(kept.own, devices.of_replicate(self.shared, replicate))


def to_train(context: RoundContext, params: Weights | None = None) -> ToTrain:
    """Return the shared inputs of training jobs that start from w^t, or from `params` if given."""
    carry = context.carry
    params = carry.params if params is None else params
    return ToTrain(context.federation, params, carry.clients, carry.shared, context.round)
