"""Whose training reaches the server: the same clients whatever the strategy."""

import jax

from fedjax_sel.simulation import keys
from fedjax_sel.simulation.keys import Streams


def arrives(failure_rate: float, streams: Streams, round: jax.Array, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Return whose report arrives, of clients that train in a round: for the global model or for a probe's.

    Args:
        failure_rate: the share that does not; static.
        streams: random streams of all replicates.
        round: int32 scalar.
        ids: clients, int32 [S, K].
        mask: who of them trains, bool [S, K].

    Returns:
        bool [S, K].
    """
    if failure_rate == 0.0:
        return mask

    def draw(stream: jax.Array, who: jax.Array) -> jax.Array:
        return jax.random.uniform(keys.of_client(stream, round, who)) >= failure_rate

    return mask & jax.vmap(jax.vmap(draw, (None, 0)))(streams.reports, ids)
