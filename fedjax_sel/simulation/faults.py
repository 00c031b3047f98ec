"""Fatal errors of a round: invalid client IDs and server state that is not finite.

They are detected on the device and reach the host with the round's records. Shapes: S replicates, N clients, K
selected, d candidates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.simulation import ledger
from fedjax_sel.training import server


class UncheckedIds(NamedTuple):
    """Client IDs of a round exactly as the strategy returned them."""

    ids: jax.Array  # cohort, int32 [S, K]
    mask: jax.Array  # clients that train, bool [S, K]
    candidates: jax.Array | None  # int32 [S, d]; None if the strategy has no candidates


class Faults(NamedTuple):
    """Fatal errors of one round."""

    names: jax.Array  # whether a client ID is out of range or duplicated, bool [S]
    ids: jax.Array  # cohort as the strategy returned it, int32 [S, K]
    candidates: jax.Array | None  # candidates as the strategy returned them, int32 [S, d]
    step: jax.Array  # whether the new model or the server's state is not finite, bool [S]
    weights: jax.Array  # whether an aggregation weight is not finite, bool [S]


def find(named: UncheckedIds, num_clients: int, weights: jax.Array, held: Any) -> Faults:
    """Detect the faults of a round.

    Args:
        named: client IDs from the strategy.
        num_clients: N.
        weights: aggregation weights, float32 [S, K].
        held: model and state of the server after its step; floating-point and integer leaves [S, ...].
    """
    names = jax.vmap(lambda ids, mask: _misnamed(ids, mask, num_clients))
    wrong = names(named.ids, named.mask)
    if named.candidates is not None:
        wrong |= names(named.candidates, jnp.ones(named.candidates.shape, bool))
    return Faults(
        names=wrong,
        ids=named.ids,
        candidates=named.candidates,
        step=~jax.vmap(server.is_finite)(held),
        weights=~jnp.isfinite(weights).all(axis=1),
    )


def clip_ids(ids: jax.Array, num_clients: int) -> jax.Array:
    """Clip IDs to 0..N-1, so that a round with invalid IDs can finish before the host ends the run."""
    return jnp.clip(ids, 0, num_clients - 1)


def _misnamed(ids: jax.Array, mask: jax.Array, num_clients: int) -> jax.Array:
    """Return whether any ID is out of range, masked or not, or any unmasked ID occurs twice; a scalar."""
    outside = (ids < 0) | (ids >= num_clients)
    return outside.any() | (ledger.distinct(ids, mask, num_clients).sum() != mask.sum())
