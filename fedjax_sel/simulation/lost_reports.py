"""Whose training reaches the server, the same clients whatever the strategy, and with what probability."""

import jax
import jax.numpy as jnp

from fedjax_sel.simulation import keys
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.round_context import RoundContext


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


def chance(context: RoundContext) -> jax.Array | float:
    """Return the probability that a client can be reached and that its report arrives, [S] or the same for all.

    Of a file that says who can be reached the server knows no probability: then it is the share of all examples that
    those hold who are there, so that they stand for everybody.
    """
    plan, available = context.plan, context.available
    if available is None:
        reached: jax.Array | float = 1.0
    elif plan.available is not None:
        reached = plan.available
    else:
        reached = share_there(context)
    return reached * (1.0 - plan.report_failure_rate)


def share_there(context: RoundContext) -> jax.Array | float:
    """Return the share of all training examples that clients hold who can be reached, [S]; 1 where nobody can."""
    if context.available is None:
        return 1.0
    sizes = context.federation.train_sizes
    held = jnp.where(context.available, sizes, 0).sum(axis=1) / sizes.sum(axis=1)
    return jnp.where(held > 0, held, 1.0)
