"""Named random streams: every draw takes a key by purpose, round and client, never one that is carried along.

So neither the chunk length, the devices, the other seeds nor the strategy changes a client's batches, and two
strategies that select the same client in the same round train it on the same batches with the same dropout.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

PURPOSES = ("data", "model", "selection", "training")
"""What a root seed is used for. The position is part of the stream: append, never reorder."""


class Streams(NamedTuple):
    """One key a replicate for each purpose on the device, [S] each; `data` is drawn on the host."""

    model: jax.Array
    selection: jax.Array
    training: jax.Array


def streams(seeds: Sequence[int], fixed: dict[str, int | None]) -> Streams:
    """The streams of all replicates.

    Args:
        seeds: root seeds, [S].
        fixed: purpose -> a seed shared by all replicates, or None.

    Returns:
        The keys.
    """

    def of(purpose: str) -> jax.Array:
        shared = fixed.get(purpose)
        roots = jnp.array([seed if shared is None else shared for seed in seeds], jnp.uint32)
        return jax.vmap(lambda root: jax.random.fold_in(jax.random.key(root), PURPOSES.index(purpose)))(roots)

    return Streams(of("model"), of("selection"), of("training"))


def of_round(stream: jax.Array, round: jax.Array) -> jax.Array:
    """The key of a round, counted from 0."""
    return jax.random.fold_in(stream, round)


def of_client(stream: jax.Array, round: jax.Array, client: jax.Array) -> jax.Array:
    """The key of a client in a round."""
    return jax.random.fold_in(of_round(stream, round), client)


INITIALISATION = jnp.iinfo(jnp.int32).max
"""The "round" of draws before the first one."""
