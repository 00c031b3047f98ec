"""Named random streams: every key is derived from purpose, round and client; the simulator's carry holds no key.

A client's batches therefore do not depend on chunk length, devices, other seeds or strategy. Two strategies that select
the same client in the same round train it on the same batches with the same dropout.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings


class Streams(NamedTuple):
    """Root seeds or keys of each purpose, one per replicate, [S]. `data` is absent: it is drawn on the host."""

    model: Any
    selection: Any
    training: Any
    facts: Any  # probe cohorts, and the examples on which a loss is measured
    availability: Any
    reports: Any  # lost reports
    privacy: Any = None  # noise of answers and of aggregates; None unless the run is `private`


PURPOSES = ("data", *Streams._fields)
"""Purposes of random streams. A purpose's position is part of its stream: append, never reorder."""


def roots(seeds: Sequence[int], fixed: dict[str, int | None], private: bool = False) -> Streams:
    """Return root seeds, uint32 [S] for each purpose; `fixed` maps a purpose to a seed shared by all replicates."""

    def roots_of(purpose: str) -> np.ndarray:
        shared = fixed.get(purpose)
        return np.array([seed if shared is None else shared for seed in seeds], np.uint32)

    found = Streams(*map(roots_of, Streams._fields))
    return found if private else found._replace(privacy=None)


def streams(root_seeds: Streams) -> Streams:
    """Return typed keys, [S] for each purpose."""

    def keys_of(purpose: str, seeds: Any) -> jax.Array | None:
        position = PURPOSES.index(purpose)
        if seeds is None:
            return None
        return jax.vmap(lambda seed: jax.random.fold_in(jax_settings.key(seed), position))(jnp.asarray(seeds))

    return Streams(*map(keys_of, Streams._fields, root_seeds))


def round_key(stream: jax.Array, round: jax.Array) -> jax.Array:
    """Return the key of a round, counted from 0."""
    return jax.random.fold_in(stream, round)


def client_key(stream: jax.Array, round: jax.Array, client: jax.Array) -> jax.Array:
    """Return the key of a client in a round."""
    return jax.random.fold_in(round_key(stream, round), client)


def probe_key(stream: jax.Array, round: jax.Array, probe: int) -> jax.Array:
    """Return the key of a probe; `fold_in` derives the keys of its cohort and its clients from it."""
    return jax.random.fold_in(round_key(stream, round), PROBES + probe)


CANDIDATES = 2**30 - 1
"""Folded into the selection key of a round to draw its candidates."""

JITTER = 2**30 - 1
"""Folded into the availability key of a round to draw the jitter of its speeds."""

AGGREGATE = 2**30 - 1
"""Folded into the privacy key of a round to draw the noise of the mean update."""

ZONES = 2**30 - 2
"""Folded into the availability key of the time before the first round to draw the clients' time zones."""

PROBES = 2**30
"""Client number that stands for probe 0 in key derivation: above every real client ID."""

COHORT = jnp.iinfo(jnp.int32).max
"""Folded into the key of a probe to draw its cohort."""

START = jnp.iinfo(jnp.int32).max
"""Round number that stands for the time before the first round in key derivation."""
