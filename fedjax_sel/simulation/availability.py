"""Available clients, lost reports, and non-finite losses."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel.core import jax_settings
from fedjax_sel.data.federation import Federation
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.availability import Mode
from fedjax_sel.simulation import keys
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.state import Plan, RoundContext
from fedjax_sel.timing import Clients


def draw(federation: Federation, mode: Mode, seeds: Sequence[int], num_rounds: int) -> np.ndarray:
    """Draw the clients that a mode makes available in each round, bool [S, T, N]; the federation is in host memory.

    A round's draw depends on its number and the seed alone, so that a longer run has the same first rounds.
    """
    # The CPU draws for all devices: the cosine of another device may differ in its last bit.
    with jax.default_device(jax_settings.cpu()):
        streams = keys.streams(keys.roots(seeds, {})).availability
        clients = Clients(*map(np.asarray, (federation.train_sizes, federation.label_counts)))
        table = np.asarray(_draw(mode, num_rounds, clients, federation.timing, streams))
    if not table.any():
        raise UserError(
            f"--available: {mode.name!r} makes no client available in {num_rounds} rounds; raise its probabilities "
            "with --available-args"
        )
    return table


@partial(jax.jit, static_argnums=(0, 1))
def _draw(mode: Mode, num_rounds: int, clients: Clients, timing: Any, streams: jax.Array) -> jax.Array:
    """Return the mask of available clients, bool [S, T, N]."""

    def of_replicate(clients: Clients, timing: Any, stream: jax.Array) -> jax.Array:
        at_start = keys.round_key(stream, jnp.int32(keys.START))
        chance = mode.of_clients(clients, timing, jax.random.fold_in(at_start, keys.ZONES))
        shape = clients.sizes.shape

        def step(before: jax.Array, round: jax.Array) -> tuple[jax.Array, jax.Array]:
            now = jax.random.uniform(keys.round_key(stream, round), shape) < chance(round, before)
            return now, now

        return lax.scan(step, jnp.zeros(shape, bool), jnp.arange(num_rounds))[1]

    return jax.vmap(of_replicate)(clients, timing, streams)


def available_clients(
    plan: Plan, federation: Federation, streams: Streams, round: jax.Array, seconds: jax.Array | None = None
) -> jax.Array | None:
    """Return the mask of available clients, bool [S, N]; None if all are available.

    A table of a mode, or an availability trace, in the federation replaces the draw with probability `plan.available`.
    If availability follows the clock, its `seconds`, [S], choose the row instead of the round.
    """
    if seconds is not None:
        return _rows(plan, federation, seconds)[:, 0]
    if federation.availability_table is not None:
        return federation.availability_table[:, round]
    num_replicates, num_clients = federation.starts.shape
    if federation.availability_trace is not None:
        return jnp.broadcast_to(federation.availability_trace[round], (num_replicates, num_clients))
    share = plan.available
    if share is None or share == 1.0:
        return None

    def draw(stream: jax.Array) -> jax.Array:
        return jax.random.uniform(keys.round_key(stream, round), (num_clients,)) < share

    return jax.vmap(draw)(streams.availability)


def _rows(plan: Plan, federation: Federation, seconds: jax.Array) -> jax.Array:
    """Return all rows of availability from the current one on, bool [S, T, N]; the last is followed by the first."""
    table, trace = federation.availability_table, federation.availability_trace
    if table is None:
        assert trace is not None, "a share is drawn as a table"
        table = jnp.broadcast_to(trace, (len(seconds), *trace.shape))
    return jax.vmap(lambda rows, first: jnp.roll(rows, -first, axis=0))(table, _row(plan, seconds) % table.shape[1])


def _row(plan: Plan, seconds: jax.Array) -> jax.Array:
    """Return the row at a time, int32 [S]; the tolerance, above float32's rounding, makes a wait for a row reach it."""
    rows = seconds / plan.availability_seconds
    return jnp.floor(rows * (1.0 + 4.0 * jnp.finfo(jnp.float32).eps) + 1e-4).astype(jnp.int32)


def until_next_row(plan: Plan, seconds: jax.Array) -> jax.Array:
    """Return the seconds until the next row of availability, [S]."""
    return jnp.maximum((_row(plan, seconds) + 1) * plan.availability_seconds - seconds, 0.0)


def online_seconds(plan: Plan, federation: Federation, seconds: jax.Array | None) -> jax.Array | None:
    """Return the seconds until each client goes offline, [S, N]; zero for unavailable clients."""
    if seconds is None:
        return None
    rows = _rows(plan, federation, seconds)
    ahead = jnp.where(rows.all(axis=1), jnp.inf, rows.argmin(axis=1) - 1.0)  # further rows
    left = ahead * plan.availability_seconds + until_next_row(plan, seconds)[:, None]
    return jnp.where(rows[:, 0], left, 0.0)


def arrives(failure_rate: float, streams: Streams, round: jax.Array, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the mask of clients whose report reaches the server, in a round or in one of its probes, bool [S, K].

    `ids` are int32 [S, K]; `mask` marks the clients that train, bool [S, K].
    """
    if failure_rate == 0.0:
        return mask

    def draw(stream: jax.Array, who: jax.Array) -> jax.Array:
        return jax.random.uniform(keys.client_key(stream, round, who)) >= failure_rate

    return mask & jax.vmap(jax.vmap(draw, (None, 0)))(streams.reports, ids)


def arrival_probability(context: RoundContext) -> jax.Array | float:
    """Return the probability that a client is available and its report arrives, float32 [S] or a scalar.

    The server knows no probability under an availability trace or a mode. The fraction of all examples held by
    available clients replaces it, so that these clients represent all.
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


def bounded(losses: jax.Array) -> jax.Array:
    """Clip the server's own losses, nats, to +-1e6; NaN counts as 1e6."""
    return jnp.clip(jnp.nan_to_num(losses, nan=LARGEST), -LARGEST, LARGEST)


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
