"""The ledger of a run, and the bill of a round's queries.

The device counts the ledger's events as int32; bytes would overflow. It counts answers to requests, and the host
multiplies them by their length. Evaluations for the simulator's own curves are not billed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Model
from fedjax_sel.simulation import keys
from fedjax_sel.strategies import facts
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.facts import KINDS, Counts, Request
from fedjax_sel.training import schedule
from fedjax_sel.training.schedule import LocalWork

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
    """Return the masks of cohorts' clients: bool [S, N] from ids [S, K] and mask [S, K]."""
    return jax.vmap(lambda ids, mask: jnp.zeros((num_clients,), bool).at[ids].max(mask))(ids, mask)


class Time(NamedTuple):
    """Simulated seconds of a round's queries so far, float32."""

    busy: jax.Array  # seconds of each client's current exchange, zero for clients without one, [S, N]
    elapsed: jax.Array  # seconds of the completed exchanges, [S]


class Bill(NamedTuple):
    """Cost of serving a round's requests; leaves [S, ...]."""

    asked: jax.Array  # clients that received the round's model to answer a query, bool [S, N]
    trained: jax.Array  # clients that trained from the round's model to answer a query, bool [S, N]
    answers: jax.Array  # number of clients that answered each request, int32 [S, requests]
    probe_models_down: jax.Array  # copies of probe models sent to clients for evaluation, int32 [S]
    probe_models_up: jax.Array  # reports of probe cohorts that arrived, int32 [S]
    probe_reports_lost: jax.Array  # reports of probe cohorts that did not arrive, int32 [S]
    examples_trained: jax.Array  # int32 [S]; excludes the training of `trained` and of the cohort
    examples_evaluated: jax.Array  # int32 [S]
    losses_replaced: jax.Array  # measured losses that were not finite, int32 [S]
    time: Time | None = None  # simulated seconds of the queries; None without a clock
    perturbed: jax.Array | None = None  # perturbed answers of each client, int32 [S, N]; None without noise


def empty_bill(num_replicates: int, num_clients: int, num_requests: int, timed: bool, noisy: bool = False) -> Bill:
    """Return the bill of a round without requests; `timed`: there is a clock; `noisy`: answers have noise."""
    zero = jnp.zeros((num_replicates,), jnp.int32)
    no_clients = jnp.zeros((num_replicates, num_clients), bool)
    answers = jnp.zeros((num_replicates, num_requests), jnp.int32)
    time = Time(jnp.zeros((num_replicates, num_clients)), jnp.zeros((num_replicates,))) if timed else None
    perturbed = jnp.zeros((num_replicates, num_clients), jnp.int32) if noisy else None
    return Bill(no_clients, no_clients, answers, zero, zero, zero, zero, zero, zero, time, perturbed)


def examples_evaluated(request: Request, federation: Federation, loss_on: str) -> jax.Array:
    """Count the examples that each client evaluates to answer, int32 [S, N]."""
    if KINDS[request.kind].evaluates == "none":
        return jnp.zeros_like(federation.train_sizes)
    return answer_examples(request, federation, loss_on) * (1 + facts.num_probes(request))


def answer_examples(request: Request, federation: Federation, loss_on: str) -> jax.Array:
    """Count the examples of each client that one number of its answer depends on, int32 [S, N]."""
    if request.kind in KINDS and KINDS[request.kind].evaluates != "part":
        return federation.sizes
    examples = examples_on(federation, request.option("on") or loss_on)
    size = request.option("batch_size")
    return examples if size is None else jnp.minimum(examples, size)


def examples_on(federation: Federation, part: str) -> jax.Array:
    """Count the examples of each client on which a loss of this part of its data is measured, int32 [S, N]."""
    if part == "all":
        return federation.sizes
    held = federation.holdout_sizes
    return jnp.where((part == "holdout") & (held > 0), held, federation.train_sizes)


def examples_of_training(work: LocalWork, sizes: jax.Array, stream: jax.Array, round: jax.Array) -> jax.Array:
    """Count the examples that each client would process in a round's training, int32 [S, N].

    `sizes` are the clients' training examples, int32 [S, N]; `stream` is the stream of training, [S].
    """
    if not work.varies:
        return schedule.num_examples(work, sizes, 0 if work.epochs is None else work.epochs[0])

    def examples_of(stream: jax.Array, client: jax.Array, size: jax.Array) -> jax.Array:
        return schedule.num_examples(work, size, schedule.epochs(work, keys.client_key(stream, round, client)))

    each = jax.vmap(jax.vmap(examples_of, (None, 0, 0)), (0, None, 0))
    return each(stream, jnp.arange(sizes.shape[1]), sizes)


def floats_per_answer(strategy: Strategy, model: Model, num_classes: int) -> tuple[int, ...]:
    """Return the number of floats in one client's answer to each request."""
    counts = fact_counts(model, num_classes)
    return tuple(facts.floats(request, counts) for request in strategy.requests)


def fact_counts(model: Model, num_classes: int) -> Counts:
    """Return the counts that determine the lengths of facts."""
    return Counts(model.num_params, num_classes, model.profile_size)
