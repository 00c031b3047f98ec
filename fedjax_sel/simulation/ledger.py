"""What a run sends and computes: events counted on the device, bytes on the host.

Counts are int32 and a round's; a byte total would overflow. Floats that answer a request are counted as answers, and
the host multiplies by their length. What the simulator evaluates for its own plots is not billed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BYTES_PER_FLOAT = 4


class Events(NamedTuple):
    """One round's events, int32; jax.Array on the device, NumPy arrays [seeds, rounds, ...] on the host."""

    models_down: Any  # distinct clients asked or selected, and copies that probes send out
    models_up: Any  # clients whose training arrived, for the global model or for a probe's
    vectors_down: Any  # of a model's size, that the optimizer sent to clients that train beside the model
    vectors_up: Any  # those that they sent beside their updates
    answers: Any  # clients that answered each request, [requests]
    floats_reported: Any  # sent with updates: losses that the strategy reads, and what the optimizer wants
    examples_trained: Any
    examples_evaluated: Any
    server_examples: Any  # that the server evaluated for the strategy
    losses_replaced: Any  # measured losses that were not finite
    reports_lost: Any  # clients that trained and whose training never reached the server
    updates_skipped: Any  # updates that were not finite


class Ledger(NamedTuple):
    """A run's counts, int64 arrays with leading axes [seeds, rounds]."""

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
    """Turn counts into the ledger, in exact integers.

    Args:
        events: NumPy arrays [seeds, rounds, ...].
        num_params: P.
        floats_per_answer: length of one answer to each request.
        num_carried: numbers beside them that travel with every model.

    Returns:
        The ledger.
    """
    counts = Events(*(np.asarray(leaf, np.int64) for leaf in events))
    floats_down = counts.vectors_down * num_params
    answered = counts.answers @ np.asarray(floats_per_answer, np.int64)
    floats_up = answered + counts.floats_reported + counts.vectors_up * num_params
    model_bytes = (num_params + num_carried) * BYTES_PER_FLOAT
    return Ledger(
        models_down=counts.models_down,
        models_up=counts.models_up,
        floats_down=floats_down,
        floats_up=floats_up,
        examples_trained=counts.examples_trained,
        examples_evaluated=counts.examples_evaluated,
        server_examples=counts.server_examples,
        losses_replaced=counts.losses_replaced,
        reports_lost=counts.reports_lost,
        updates_skipped=counts.updates_skipped,
        bytes_down=counts.models_down * model_bytes + floats_down * BYTES_PER_FLOAT,
        bytes_up=counts.models_up * model_bytes + floats_up * BYTES_PER_FLOAT,
    )


def distinct(ids: jax.Array, mask: jax.Array, num_clients: int) -> jax.Array:
    """Return which clients stand in a cohort: bool [N] from ids [K] and mask [K]."""
    return jnp.zeros((num_clients,), bool).at[ids].max(mask)
