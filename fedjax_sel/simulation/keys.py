"""Named random streams: every draw takes a key by purpose, round and client, never one that is carried along.

So neither the chunk length, the devices, the other seeds nor the strategy changes a client's batches, and two
strategies that select the same client in the same round train it on the same batches with the same dropout.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings

PURPOSES = ("data", "model", "selection", "training", "facts", "availability", "reports")
"""What a root seed is used for. The position is part of the stream: append, never reorder."""


class Streams(NamedTuple):
    """For each purpose on the device one root seed or one key a replicate, [S]; `data` is drawn on the host."""

    model: Any
    selection: Any
    training: Any
    facts: Any  # probe cohorts, and the examples that a measured loss is on
    availability: Any
    reports: Any  # whose training never reaches the server


def roots(seeds: Sequence[int], fixed: dict[str, int | None]) -> Streams:
    """Return the root seed of every purpose.

    Args:
        seeds: one a replicate.
        fixed: purpose -> a seed shared by all replicates, or None.

    Returns:
        uint32 [S] each.
    """

    def roots_of(purpose: str) -> np.ndarray:
        shared = fixed.get(purpose)
        return np.array([seed if shared is None else shared for seed in seeds], np.uint32)

    return Streams(*(roots_of(purpose) for purpose in Streams._fields))


def streams(root_seeds: Streams) -> Streams:
    """Return the keys of all replicates: typed keys, [S] each."""

    def keys_of(purpose: str, seeds: jax.Array) -> jax.Array:
        return jax.vmap(lambda seed: jax.random.fold_in(jax_settings.key(seed), PURPOSES.index(purpose)))(seeds)

    return Streams(*(keys_of(purpose, jnp.asarray(getattr(root_seeds, purpose))) for purpose in Streams._fields))


def of_round(stream: jax.Array, round: jax.Array) -> jax.Array:
    """Return the key of a round, counted from 0."""
    return jax.random.fold_in(stream, round)


def of_client(stream: jax.Array, round: jax.Array, client: jax.Array) -> jax.Array:
    """Return the key of a client in a round."""
    return jax.random.fold_in(of_round(stream, round), client)


def of_probe(stream: jax.Array, round: jax.Array, probe: int) -> jax.Array:
    """Return the stream of a probe: its cohort's key, and below it (`fold_in`) its clients'."""
    return jax.random.fold_in(of_round(stream, round), PROBES + probe)


CANDIDATES = 2**30 - 1
"""What distinguishes the draw of candidates from the selection of the same round."""

PROBES = 2**30
"""The first "client" of a probe's stream: above every real one."""

INITIALISATION = jnp.iinfo(jnp.int32).max
"""The "round" of draws before the first one."""
