"""The ledger: a run's communication and computation, with events counted on the device and bytes on the host.

The device counts each round's events as int32; bytes would overflow. It counts answers to requests, and the host
multiplies them by their length. Evaluations for the simulator's own curves are not billed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BYTES_PER_FLOAT = 4


class Events(NamedTuple):
    """Event counts of a round, int32: JAX arrays on the device, NumPy arrays [seeds, rounds, ...] on the host."""

    models_down: Any  # distinct clients queried or selected, plus copies of probe models
    models_up: Any  # reports that arrived, for the global model or for a probe
    vectors_down: Any  # model-sized vectors that the optimizer sends to training clients beside the model
    vectors_up: Any  # model-sized vectors that clients send beside their updates
    answers: Any  # clients that answered each request, [requests]
    floats_reported: Any  # floats sent with updates: losses that the strategy reads, and the optimizer's own
    examples_trained: Any  # examples that clients processed in training, repetitions counted
    examples_evaluated: Any  # examples that clients evaluated
    server_examples: Any  # examples that the server evaluated for the strategy
    losses_replaced: Any  # measured losses that were not finite
    reports_lost: Any  # clients that trained and whose report never reached the server
    updates_skipped: Any  # updates that were not finite


class Ledger(NamedTuple):
    """A run's communication and computation, int64 arrays [seeds, rounds]. `Events` explains the counts."""

    models_down: np.ndarray
    models_up: np.ndarray
    floats_down: np.ndarray
    floats_up: np.ndarray
    examples_trained: np.ndarray
    examples_evaluated: np.ndarray
    server_examples: np.ndarray
    losses_replaced: np.ndarray
    reports_lost: np.ndarray
    updates_skipped: np.ndarray
    bytes_down: np.ndarray
    bytes_up: np.ndarray


def settle(events: Events, num_params: int, floats_per_answer: Sequence[int], num_carried: int = 0) -> Ledger:
    """Return the ledger of the counts [seeds, rounds, ...]; `num_carried` numbers travel with every model."""
    counts = Events(*(np.asarray(leaf, np.int64) for leaf in events))
    floats_down = counts.vectors_down * num_params
    answered = counts.answers @ np.asarray(floats_per_answer, np.int64)
    floats_up = answered + counts.floats_reported + counts.vectors_up * num_params
    model_bytes = (num_params + num_carried) * BYTES_PER_FLOAT
    return Ledger(
        **{name: getattr(counts, name) for name in Ledger._fields if name in Events._fields},
        floats_down=floats_down,
        floats_up=floats_up,
        bytes_down=counts.models_down * model_bytes + floats_down * BYTES_PER_FLOAT,
        bytes_up=counts.models_up * model_bytes + floats_up * BYTES_PER_FLOAT,
    )


def distinct(ids: jax.Array, mask: jax.Array, num_clients: int) -> jax.Array:
    """Return the mask of a cohort's clients: bool [N] from ids [K] and mask [K]."""
    return jnp.zeros((num_clients,), bool).at[ids].max(mask)
