"""Available clients of a round; they do not depend on the strategy."""

import jax
import jax.numpy as jnp

from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import keys
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.plan import Plan


def reachable(plan: Plan, federation: Federation, streams: Streams, round: jax.Array) -> jax.Array | None:
    """Return the mask of available clients.

    Args:
        plan: the run's static configuration; each client is available with probability `plan.available`.
        federation: the data; its availability trace, if any, replaces the random draw.
        streams: random streams.
        round: t, int32 scalar.

    Returns:
        bool [S, N], or None if all clients are available.
    """
    num_replicates, num_clients = federation.starts.shape
    if federation.reachable is not None:
        return jnp.broadcast_to(federation.reachable[round], (num_replicates, num_clients))
    share = plan.available
    if share is None or share == 1.0:
        return None

    def draw(stream: jax.Array) -> jax.Array:
        return jax.random.uniform(keys.of_round(stream, round), (num_clients,)) < share

    return jax.vmap(draw)(streams.availability)
