"""Shared types of the simulation: ledger, client table, static plan, scan carry, and the context of a round."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.experimental import io_callback
from jax.sharding import Mesh

from fedjax_sel import devices
from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Model, Params
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.strategies.contract import Env, Evaluation, Information, OutputLayer, Selection, Strategy
from fedjax_sel.timing import Clock, Timing
from fedjax_sel.training import client, server
from fedjax_sel.training.client import OptimizerState, Trainer
from fedjax_sel.training.optimizers import Memory

# The device counts the ledger's events as int32; bytes would overflow. It counts answers to requests, and the host
# multiplies them by their length. Evaluations for the simulator's own curves are not billed.

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


# Fatal errors of a round are detected on the device and reach the host with its records. Shapes: S replicates, N
# clients, K places of a cohort, d candidates.
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


# The client table: state that clients keep between rounds, N rows of about the model's size. It lives on the devices,
# or in host memory if it does not fit there, with equal results. In host memory, a compiled round reads the rows of its
# training clients through callbacks and writes them back at its end. Data dependencies alone order these callbacks:
# each write returns a new version number, each read takes the version as an argument, and a write waits for all other
# results of the round. All devices of a group of seeds write the same rows.
class Kept(NamedTuple):
    """One client's row; as a table, leaves [S, N, ...]."""

    optimizer: OptimizerState | None  # state of the client's own optimizer; None if it restarts each round
    own: Any  # the federated optimizer's client memory (`Memory.own`)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class HostStore:
    """The client table of all seeds in host memory. Static under jit, although its arrays change."""

    arrays: tuple[np.ndarray, ...]  # leaves of the table, [seeds, N, ...]
    structure: Any

    def read(self, slots: Any, version: Any, clients: Any) -> tuple[np.ndarray, ...]:
        """Return the rows of the given clients; all arguments have the same shape."""
        del version
        slots, clients = np.asarray(slots), np.asarray(clients)
        return tuple(array[slots, clients] for array in self.arrays)

    def write(self, slots: Any, version: Any, clients: Any, kept: Any, *rows: Any) -> np.ndarray:
        """Write the rows [S, K, ...] of the clients [S, K] that `kept` [S, K] marks; return the new version [S]."""
        kept, clients = np.asarray(kept), np.asarray(clients)
        of_seed = np.broadcast_to(np.asarray(slots)[:, None], clients.shape)
        for array, values in zip(self.arrays, rows):
            array[of_seed[kept], clients[kept]] = np.asarray(values)[kept]
        return np.asarray(version) + np.int32(1)

    def copy(self) -> Kept:
        """Return a copy of the whole table, [seeds, N, ...]."""
        return jax.tree.unflatten(self.structure, [array.copy() for array in self.arrays])

    def load(self, seeds: slice, table: Kept) -> None:
        """Set the rows of some seeds, so far zero, to [seeds, N, ...], or [seeds, 1, ...] for equal rows."""
        for array, values in zip(self.arrays, jax.tree.leaves(table), strict=True):
            if np.any(values):  # most systems allocate the memory of zeros at the first write
                array[seeds] = values


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HostTable:
    """Reference to a table in host memory, in the carry's place for the table."""

    slots: Any  # each replicate's index in the store, int32 [S]
    version: Any  # number of writes so far, int32 [S]
    store: HostStore = dataclasses.field(metadata={"static": True})


def write_rows(
    table: Kept | HostTable, clients: jax.Array, kept: jax.Array, rows: Kept, after: Any
) -> Kept | HostTable:
    """Return the table with the new rows [S, K, ...] of the clients [S, K] where `kept` [S, K] is True; distinct there.

    The write waits for `after`, which holds every result that may depend on a read of the table.
    """
    if isinstance(table, HostTable):
        version, _ = lax.optimization_barrier((table.version, after))
        shape = jax.ShapeDtypeStruct(version.shape, jnp.int32)
        arguments = (table.slots, version, clients, kept, *jax.tree.leaves(rows))
        return dataclasses.replace(table, version=io_callback(table.store.write, shape, *arguments))

    def write_leaf(leaf: jax.Array, values: jax.Array) -> jax.Array:
        places = jnp.where(kept, clients, leaf.shape[1])  # row N does not exist: dropped
        return jax.vmap(lambda old, places, new: old.at[places].set(new, mode="drop"))(leaf, places, values)

    return jax.tree.map(write_leaf, table, rows)


class Plan(NamedTuple):
    """A run's static configuration, fixed before tracing."""

    mesh: Mesh
    strategy: Strategy
    trainer: Trainer
    server: optax.GradientTransformation
    aggregation: str  # rule of the aggregation weights
    loss_on: str  # part of a client's data that losses are measured on by default
    keep_client_optimizers: bool  # whether clients' own optimizers keep their state between rounds
    store: HostStore | None  # client table in host memory; None: on the devices
    available: float | None  # probability that a client is available in a round; None: a table or a trace has it
    all_at_start: bool  # whether all clients answer the queries before round 1, or those available in round 1
    report_failure_rate: float  # probability that a report never reaches the server
    num_selected: int  # clients that the strategy selects: K, or more with over-selection
    num_places: int  # places of a cohort: `num_selected`, or more if the strategy's cohort size is random
    clock: Clock | None  # simulated time; None: rounds have no duration
    num_rounds: int  # T
    eval_every: int  # rounds between evaluations; 0: never (benchmarks)
    train_metrics_every: int  # rounds between evaluations on the training data; 0: never
    evaluation_block: int  # examples evaluated together
    clients_at_once: int  # clients that a device trains together; 0: all of its share
    facts_at_once: int  # clients that a device measures together
    blocks_at_once: int  # evaluation blocks that a device works on together

    def kept_at_first(self, weights: Weights) -> Kept:
        """Return the client table's row of a client that has never trained."""
        trainer = self.trainer
        of_own = client.fresh(trainer, weights.trained) if self.keep_client_optimizers else None
        return Kept(of_own, trainer.optimizer.init_own(weights.trained))


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
    time: "Time | None" = None  # simulated seconds of the queries; None without a clock


class Time(NamedTuple):
    """Simulated seconds of a round's queries so far, float32."""

    busy: jax.Array  # seconds of each client's current exchange, zero for clients without one, [S, N]
    elapsed: jax.Array  # seconds of the completed exchanges, [S]


class Carry(NamedTuple):
    """A run's state between rounds: the scan carry. Every leaf has the leading axis [S]."""

    params: Weights  # global model w^t
    server: optax.OptState  # state of the server's optimizer
    strategy: Any  # the strategy's state
    info: Information  # fact tables
    clients: Kept | HostTable  # client table, [S, N, ...] on the devices
    shared: Any  # the federated optimizer's server memory (`Memory.shared`)
    evaluation: Evaluation | None  # metrics of `params` on the data of the strategy's `server_metrics` request
    start: Bill  # cost of the facts measured before the first round, billed to the first round


class Records(NamedTuple):
    """A round's records, leaves [S, ...]; NaN for measurements that are not due in this round."""

    cohort: jax.Array  # IDs of the clients that trained, int32 [S, K]; -1 for an empty place
    measured: dict[str, jax.Array]  # metrics by the names of `tasks.names`, and the seconds
    nonfinite: jax.Array  # whether this client's update held NaN or infinity, bool [S, K]
    faults: Faults
    events: Events


class RoundContext(NamedTuple):
    """Inputs of a round: configuration, data, state, random streams, and available clients."""

    plan: Plan  # static
    federation: Federation
    carry: Carry  # the run's state at w^t
    streams: Streams
    round: jax.Array  # t, int32 scalar
    available: jax.Array | None  # mask of available clients, bool [S, N]; None: all
    timing: Timing | None = None  # the round's speed of each client, with jitter, leaves [S, N]; None without a clock


def env_of(plan: Plan, federation: Federation, params: Params) -> Env:
    """Return what the strategy knows without a query, leaves [S, N]; `params` are the trained weights, [S, ...]."""
    model, (num_clients, num_classes) = plan.trainer.model, federation.label_counts.shape[1:]
    sizes = federation.train_sizes
    counts = (num_clients, plan.num_selected, plan.num_rounds, num_classes, model.num_params)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), params)
    importance = sizes / sizes.sum(axis=1, keepdims=True)
    return Env(*counts, sizes, importance, federation.sizes, shapes, output_layer(model), plan.clock is not None)


def output_layer(model: Model) -> OutputLayer | None:
    """Return the position of a model's output layer, as strategies read it."""
    return None if model.output_layer is None else OutputLayer(*model.output_layer)


class Cohort(NamedTuple):
    """The participants of a round, leaves [S, K]."""

    named: UncheckedIds  # as the strategy returned them
    selection: Selection  # its mask marks the clients that train
    reports: Selection  # the same clients; its mask marks those whose report reaches the server
    durations: jax.Array | None = None  # seconds from the model's dispatch to the report, float32; None without a clock
    seconds: jax.Array | None = None  # duration of the training phase, float32 [S]; None without a clock


class Trained(NamedTuple):
    """Each client's training result, leaves [S, K, ...]."""

    updates: Params  # w_k - w^t; zeros, at no cost, if the strategy does not read them
    finite: jax.Array  # bool
    loss_before: jax.Array  # nats
    loss_after: jax.Array  # nats
    training_loss: jax.Array  # nats; zero if not requested
    path_lengths: jax.Array | None  # see `Outcome`; None if the strategy does not read them
    kept: Kept  # the client's new row of the client table
    carried: Any  # changes of the non-trained model state; None unless the strategy averages models


class Sums(NamedTuple):
    """Weighted sums of the finite reports, leaves [S, ...]."""

    averaged: Any  # pair: `Report.averaged`, and changes of non-trained model state; by aggregation weight
    contributed: Any  # `Report.contributed`, weighted by 1/N


class ServerStep(NamedTuple):
    """The server's model and state after its step, leaves [S, ...]."""

    params: Weights  # w^(t+1)
    optimizer: optax.OptState
    shared: Any  # the federated optimizer's server memory (`Memory.shared`)
    evaluation: Evaluation | None  # metrics of the new model, if the strategy requests them


class ToTrain(NamedTuple):
    """Inputs that all training jobs share; `devices.spread` passes them to every job."""

    federation: Federation
    params: Weights  # the models that clients receive, [S, ...]
    clients: Kept | HostTable  # client table
    shared: Any  # the federated optimizer's server memory, [S, ...]
    round: jax.Array  # t, int32 scalar

    def received(self, replicate: jax.Array) -> Weights:
        """Return the model that the clients of a replicate receive."""
        return devices.of_replicate(self.params, replicate)

    def kept(self, replicate: jax.Array, client: jax.Array) -> Kept:
        """Return a client's row of the client table, from either place."""
        table = self.clients
        if not isinstance(table, HostTable):
            return jax.tree.map(lambda leaf: leaf[replicate, client], table)
        store = table.store
        shapes = tuple(jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for array in store.arrays)
        where = (table.slots[replicate], table.version[replicate], client)
        leaves = jax.pure_callback(store.read, shapes, *where, vmap_method="broadcast_all")
        return jax.tree.unflatten(store.structure, leaves)

    def memory(self, replicate: jax.Array, kept: Kept) -> Memory:
        """Return the federated optimizer's memory: the client's, from its row `kept`, and the server's."""
        return Memory(kept.own, devices.of_replicate(self.shared, replicate))


def to_train(context: RoundContext, params: Weights | None = None) -> ToTrain:
    """Return the shared inputs of training jobs that start from w^t, or from `params` if given."""
    carry = context.carry
    received = carry.params if params is None else params
    return ToTrain(context.federation, received, carry.clients, carry.shared, context.round)
