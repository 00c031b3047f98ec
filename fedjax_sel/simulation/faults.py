"""Fatal errors of a round, detected on the device; they reach the host with the round's records.

Shapes: S replicates, N clients, K places of a cohort, d candidates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.simulation.ledger import distinct
from fedjax_sel.training import server


class UncheckedIds(NamedTuple):
    """Client IDs of a round as the strategy returned them."""

    ids: jax.Array  # cohort, int32 [S, K]
    mask: jax.Array  # clients that train, bool [S, K]
    candidates: jax.Array | None  # int32 [S, d]; None if the strategy has no candidates


class Faults(NamedTuple):
    """Fatal errors of one round."""

    invalid_ids: jax.Array  # whether a client ID is out of range or duplicated, bool [S]
    ids: jax.Array  # cohort as the strategy returned it, int32 [S, K]
    candidates: jax.Array | None  # candidates as the strategy returned them, int32 [S, d]
    step: jax.Array  # whether the new model or the server's state is not finite, bool [S]
    weights: jax.Array  # whether an aggregation weight is not finite, bool [S]


def find_faults(named: UncheckedIds, num_clients: int, weights: jax.Array, held: Any) -> Faults:
    """Detect the faults of a round.

    `weights` are the aggregation weights, float32 [S, K]; `held` is the server's model and state after its step, with
    floating-point and integer leaves [S, ...].
    """

    def misnamed(ids: jax.Array, mask: jax.Array) -> jax.Array:
        """Return whether any ID is out of range, masked or not, or any unmasked ID occurs twice; a scalar."""
        outside = (ids < 0) | (ids >= num_clients)
        return outside.any() | (distinct(ids, mask, num_clients).sum() != mask.sum())

    names = jax.vmap(misnamed)
    wrong = names(named.ids, named.mask)
    if named.candidates is not None:
        wrong |= names(named.candidates, jnp.ones(named.candidates.shape, bool))
    broken = ~jax.vmap(server.is_finite)(held)
    return Faults(wrong, named.ids, named.candidates, broken, ~jnp.isfinite(weights).all(axis=1))


def clip_ids(ids: jax.Array, num_clients: int) -> jax.Array:
    """Clip IDs to 0..N-1, so that a round with invalid IDs can finish before the host ends the run."""
    return jnp.clip(ids, 0, num_clients - 1)
