"""What a run cannot go on after, whoever is to blame: found within a round, read by the host with its records.

Shapes: S replicates, N clients, K selected, d candidates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.simulation import ledger
from fedjax_sel.training import server


class Named(NamedTuple):
    """Whom a strategy names in a round, as it says it."""

    ids: jax.Array  # int32 [S, K]
    mask: jax.Array  # bool [S, K]: who of them trains
    candidates: jax.Array | None  # int32 [S, d]; None where it names none


class Faults(NamedTuple):
    """A round's."""

    names: jax.Array  # bool [S]: some id is nobody's, or a client is named twice
    ids: jax.Array  # int32 [S, K], as the strategy gave them
    candidates: jax.Array | None  # int32 [S, d], likewise
    step: jax.Array  # bool [S]: the new model, or what the server remembers beside it, is not finite
    weights: jax.Array  # bool [S]: nor are the weights of the aggregation


def find(named: Named, num_clients: int, weights: jax.Array, held: Any) -> Faults:
    """Look for all of a round's faults.

    Args:
        named: whom the strategy names.
        num_clients: N.
        weights: of the aggregation, float32 [S, K].
        held: what the server has after its step: floating-point and integer leaves [S, ...].

    Returns:
        The faults.
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


def somebody(ids: jax.Array, num_clients: int) -> jax.Array:
    """Return ids of clients for any ids, and clients' as they are: for the rest of a round that will not count."""
    return jnp.clip(ids, 0, num_clients - 1)


def _misnamed(ids: jax.Array, mask: jax.Array, num_clients: int) -> jax.Array:
    """Return whether an id is none of 0 to N - 1, also where the mask is False, or stands twice where it is True."""
    outside = (ids < 0) | (ids >= num_clients)
    return outside.any() | (ledger.distinct(ids, mask, num_clients).sum() != mask.sum())
