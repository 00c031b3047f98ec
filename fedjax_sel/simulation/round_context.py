"""What a round knows when it opens: what facts are measured on, and what the cohort trains from."""

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
    """What a round knows when it opens: the plan, the data, the state, and who can be reached."""

    plan: Plan  # static
    federation: Federation
    carry: Carry
    streams: Streams
    round: jax.Array  # t, int32 scalar
    available: jax.Array | None  # bool [S, N]; None: everyone


class ToTrain(NamedTuple):
    """What clients train from, as `devices.spread` hands it to every job."""

    federation: Federation
    params: Weights  # [S, ...]
    clients: Kept | HostTable
    shared: Any
    round: jax.Array

    def received(self, replicate: jax.Array) -> Weights:
        """Return the model that the clients of a replicate receive."""
        return devices.of_replicate(self.params, replicate)

    def kept(self, replicate: jax.Array, client: jax.Array) -> Kept:
        """Return what is kept of a client."""
        return client_table.row(self.clients, replicate, client)

    def memory(self, replicate: jax.Array, kept: Kept) -> Memory:
        """Return what the federated optimizer remembers: of a client, of whom that is kept, and of the server."""
        return Memory(kept.own, devices.of_replicate(self.shared, replicate))


def to_train(context: RoundContext, params: Weights | None = None) -> ToTrain:
    """Return what clients train from: the round's model, or another."""
    carry = context.carry
    params = carry.params if params is None else params
    return ToTrain(context.federation, params, carry.clients, carry.shared, context.round)
