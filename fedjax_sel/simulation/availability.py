"""Available clients, lost reports, and non-finite losses."""

import jax
import jax.numpy as jnp

from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import keys
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.state import Plan, RoundContext


def reachable(plan: Plan, federation: Federation, streams: Streams, round: jax.Array) -> jax.Array | None:
    """Return the mask of available clients, bool [S, N]; None if all are available.

    An availability trace in the federation replaces the draw with probability `plan.available`.
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


def arrives(failure_rate: float, streams: Streams, round: jax.Array, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the mask of clients whose report reaches the server, in a round or in one of its probes, bool [S, K].

    `ids` are int32 [S, K]; `mask` marks the clients that train, bool [S, K].
    """
    if failure_rate == 0.0:
        return mask

    def draw(stream: jax.Array, who: jax.Array) -> jax.Array:
        return jax.random.uniform(keys.of_client(stream, round, who)) >= failure_rate

    return mask & jax.vmap(jax.vmap(draw, (None, 0)))(streams.reports, ids)


def arrival_probability(context: RoundContext) -> jax.Array | float:
    """Return the probability that a client is available and its report arrives, float32 [S] or a scalar.

    An availability trace has no known probability. The fraction of all examples held by available clients replaces it,
    so that these clients represent all.
    """
    share = None if context.available is None else context.plan.available
    reached = available_share(context) if share is None else share
    return reached * (1.0 - context.plan.report_failure_rate)


def available_share(context: RoundContext) -> jax.Array | float:
    """Return the fraction of all training examples held by available clients, [S]; 1 where no client is available."""
    if context.available is None:
        return 1.0
    sizes = context.federation.train_sizes
    held = jnp.where(context.available, sizes, 0).sum(axis=1) / sizes.sum(axis=1)
    return jnp.where(held > 0, held, 1.0)


# A NaN loss means a diverged client, hence a high loss. Before a strategy reads it, it becomes the largest finite loss
# among the current and the earlier answers.
LARGEST = 1e6  # nats; replaces infinity, and clips larger losses


def replace_nonfinite(
    values: jax.Array, answered: jax.Array, known_before: jax.Array | float = -jnp.inf
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Make measured losses, float32 [M, ...] in nats, finite and within +-1e6.

    `answered`, bool [M], marks the clients whose values count. `known_before` is the largest loss in the fact table,
    -inf if it is empty. Also return the mask of clients with a value that was not finite, bool [M], and the number of
    replaced values, int32.
    """
    counts = answered.reshape(-1, *[1] * (values.ndim - 1))
    finite = jnp.isfinite(values)
    clipped = jnp.clip(values, -LARGEST, LARGEST)
    largest = jnp.maximum(jnp.max(jnp.where(finite & counts, clipped, -jnp.inf)), known_before)
    stand_in = jnp.where(jnp.isfinite(largest), largest, LARGEST)
    broken = ~finite & counts
    missing = broken.reshape(broken.shape[0], -1).any(axis=1)
    return jnp.where(jnp.isnan(values), stand_in, clipped), missing, broken.sum(dtype=jnp.int32)
