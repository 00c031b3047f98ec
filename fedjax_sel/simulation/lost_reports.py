"""Lost reports: which ones, independent of the strategy, and the probability that a report arrives."""

import jax
import jax.numpy as jnp

from fedjax_sel.simulation import keys
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.round_context import RoundContext


def arrives(failure_rate: float, streams: Streams, round: jax.Array, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the mask of clients whose report reaches the server, in a round or in one of its probes.

    Args:
        failure_rate: probability that a report is lost; static.
        streams: random streams.
        round: t, int32 scalar.
        ids: client IDs, int32 [S, K].
        mask: clients that train, bool [S, K].

    Returns:
        bool [S, K].
    """
    if failure_rate == 0.0:
        return mask

    def draw(stream: jax.Array, who: jax.Array) -> jax.Array:
        return jax.random.uniform(keys.of_client(stream, round, who)) >= failure_rate

    return mask & jax.vmap(jax.vmap(draw, (None, 0)))(streams.reports, ids)


def chance(context: RoundContext) -> jax.Array | float:
    """Return the probability that a client is available and its report arrives, float32 [S] or a scalar.

    An availability trace has no known probability. The fraction of all examples held by available clients replaces it,
    so that these clients represent all.
    """
    plan, available = context.plan, context.available
    if available is None:
        reached: jax.Array | float = 1.0
    elif plan.available is not None:
        reached = plan.available
    else:
        reached = available_share(context)
    return reached * (1.0 - plan.report_failure_rate)


def available_share(context: RoundContext) -> jax.Array | float:
    """Return the fraction of all training examples held by available clients, [S]; 1 where no client is available."""
    if context.available is None:
        return 1.0
    sizes = context.federation.train_sizes
    held = jnp.where(context.available, sizes, 0).sum(axis=1) / sizes.sum(axis=1)
    return jnp.where(held > 0, held, 1.0)
