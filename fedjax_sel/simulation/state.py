"""Shared types of the simulation: the static plan, the scan carry, the context and the results of a round."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from fedjax_sel import devices
from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Model, Params
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import ledger
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.ledger import Bill, Events
from fedjax_sel.strategies.contract import Env, Evaluation, Information, OutputLayer, Selection, Strategy
from fedjax_sel.strategies.privacy import Noise, TrainingNoise
from fedjax_sel.timing import Clock, Timing
from fedjax_sel.training import client
from fedjax_sel.training.client import OptimizerState, Trainer
from fedjax_sel.training.optimizers import Memory
from fedjax_sel.training.server import StalenessWeight


class Kept(NamedTuple):
    """State that a client keeps between rounds: a row of the client table, which has leaves [S, N, ...]."""

    optimizer: OptimizerState | None  # state of the client's own optimizer; None if it restarts each round
    own: Any  # the federated optimizer's client memory (`Memory.own`)


class Asynchrony(NamedTuple):
    """Static configuration of reports that outlast a round."""

    concurrency: int | None  # C, clients that train at the same time; None: synchronous rounds that use late reports
    weight: StalenessWeight  # factor of the aggregation weight
    max_staleness: int | None  # older reports are not aggregated; None: all are


class Plan(NamedTuple):
    """A run's static configuration, fixed before tracing."""

    mesh: Mesh
    strategy: Strategy
    trainer: Trainer
    server: optax.GradientTransformation
    aggregation: str  # rule of the aggregation weights
    loss_on: str  # part of a client's data that losses are measured on by default
    keep_client_optimizers: bool  # whether clients' own optimizers keep their state between rounds
    available: float | None  # probability that a client is available in a round; None: a table or a trace has it
    all_at_start: bool  # whether all clients answer the queries before round 1, or those available in round 1
    report_failure_rate: float  # probability that a report never reaches the server
    cohort_size: int  # clients that the strategy selects: K, or more with over-selection
    num_places: int  # places of a cohort: `cohort_size`, or more if the strategy's cohort size is random
    clock: Clock | None  # simulated time; None: rounds have no duration
    asynchrony: Asynchrony | None  # None: no report outlasts its round
    availability_seconds: float  # simulated duration of a row of availability; 0: a row per round
    num_rounds: int  # T
    eval_every: int  # rounds between evaluations; 0: never (benchmarks)
    train_metrics_every: int  # rounds between evaluations on the training data; 0: never
    eval_clients_every: int  # rounds between evaluations on the clients' own tests
    last_every: int  # period of the rounds that can be the last one: T, or a chunk if seconds end the run
    tests_in_training_set: bool  # whether those tests are examples of the training set
    evaluation_block: int  # examples evaluated together
    clients_at_once: int  # clients that a device trains together; 0: all of its share
    facts_at_once: int  # clients that a device measures together
    blocks_at_once: int  # evaluation blocks that a device works on together
    noise: Noise | None = None  # noise of what clients send for selection; None without --privacy, or if none is needed
    private_training: TrainingNoise | None = None  # None without --private-training
    epsilons: tuple[float, ...] = ()  # spent by a client's answers and trainings; see `numerics.privacy.epsilons`

    def kept_at_first(self, weights: Weights) -> Kept:
        """Return the client table's row of a client that has never trained."""
        trainer = self.trainer
        of_own = client.fresh(trainer, weights.trained) if self.keep_client_optimizers else None
        return Kept(of_own, trainer.optimizer.init_own(weights.trained))


class Carry(NamedTuple):
    """A run's state between rounds: the scan carry. Every leaf has the leading axis [S]."""

    params: Weights  # global model w^t
    server: optax.OptState  # state of the server's optimizer
    strategy: Any  # the strategy's state
    info: Information  # fact tables
    clients: Kept  # client table, [S, N, ...]
    shared: Any  # the federated optimizer's server memory (`Memory.shared`)
    evaluation: Evaluation | None  # metrics of `params` on the data of the strategy's `server_metrics` request
    start: Bill  # cost of the facts measured before the first round, billed to the first round
    flight: Any = None  # reports in flight (`asynchronous.Flight`, `late.Flight`); None if none outlasts its round
    clock: Any = None  # simulated seconds so far, float32 [S]; None unless availability follows the clock
    answered: jax.Array | None = None  # perturbed answers of each client so far, int32 [S, N]; None without noise
    trainings: Any = None  # reports of each client so far, int32 [S, N]; None without --private-training


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


class Records(NamedTuple):
    """A round's records, leaves [S, ...]; NaN for measurements that are not due in this round."""

    cohort: jax.Array  # IDs of the clients that trained, int32 [S, K]; -1 for an empty place
    measured: dict[str, jax.Array]  # metrics by the names of `tasks.names`, and the seconds
    nonfinite: jax.Array  # whether this client's update held NaN or infinity, bool [S, K]
    faults: Faults
    events: Events
    epsilons: jax.Array | None  # that each client has spent so far, float32 [S, N]; None without noise


class RoundContext(NamedTuple):
    """Inputs of a round: configuration, data, state, random streams, and available clients."""

    plan: Plan  # static
    federation: Federation
    carry: Carry  # the run's state at w^t
    streams: Streams
    round: jax.Array  # t, int32 scalar
    available: jax.Array | None  # mask of available clients, bool [S, N]; None: all
    timing: Timing | None = None  # the round's speed of each client, with jitter, leaves [S, N]; None without a clock
    # Seconds from the start of the round until each client goes offline, [S, N]; None unless availability follows the
    # clock.
    online: jax.Array | None = None


def env_of(plan: Plan, federation: Federation, params: Params) -> Env:
    """Return what the strategy knows without a query, leaves [S, N]; `params` are the trained weights, [S, ...]."""
    model, (num_clients, num_classes) = plan.trainer.model, federation.label_counts.shape[1:]
    sizes = federation.train_sizes
    counts = (num_clients, plan.cohort_size, plan.num_rounds, num_classes, model.num_params)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), params)
    importance = sizes / sizes.sum(axis=1, keepdims=True)
    env = Env(*counts, sizes, importance, federation.sizes, shapes, output_layer(model), plan.clock is not None)
    if plan.noise is None:
        return env
    counts = ledger.fact_counts(model, num_classes)
    examples_of = partial(ledger.answer_examples, federation=federation, loss_on=plan.loss_on)
    return dataclasses.replace(env, noise=plan.noise.deviations(counts, examples_of))


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
    late: jax.Array | None = None  # seconds to a report after the round, float32; inf: none; None: not used
    # Asynchronous rounds: `selection` and `reports` are of clients whose training ends in this round.
    started: Selection | None = None  # clients whose training starts in this round; None: `selection`
    staleness: jax.Array | None = None  # server steps since the model's dispatch, int32; None: zero


class Trained(NamedTuple):
    """Each client's training result, leaves [S, K, ...]."""

    updates: Params  # w_k - w^t; zeros, at no cost, if the strategy does not read them
    finite: jax.Array  # bool
    loss_before: jax.Array  # nats; zero if the strategy does not read it
    loss_after: jax.Array  # nats; zero if the strategy does not read it
    training_loss: jax.Array  # nats; zero if not requested
    path_lengths: jax.Array  # see `Outcome`; zero if the strategy does not read them
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
    clients: Kept  # client table, [S, N, ...]
    shared: Any  # the federated optimizer's server memory, [S, ...]
    round: jax.Array  # t, int32 scalar

    def received(self, replicate: jax.Array) -> Weights:
        """Return the model that the clients of a replicate receive."""
        return devices.replicate_slice(self.params, replicate)

    def kept(self, replicate: jax.Array, client: jax.Array) -> Kept:
        """Return a client's row of the client table."""
        return jax.tree.map(lambda leaf: leaf[replicate, client], self.clients)

    def memory(self, replicate: jax.Array, kept: Kept) -> Memory:
        """Return the federated optimizer's memory: the client's, from its row `kept`, and the server's."""
        return Memory(kept.own, devices.replicate_slice(self.shared, replicate))


def to_train(context: RoundContext, params: Weights | None = None) -> ToTrain:
    """Return the shared inputs of training jobs that start from w^t, or from `params` if given."""
    carry = context.carry
    received = carry.params if params is None else params
    return ToTrain(context.federation, received, carry.clients, carry.shared, context.round)


def written(table: Any, mask: jax.Array, ids: jax.Array, rows: Any) -> Any:
    """Return a table, leaves [S, N, ...], with `rows`, leaves [S, K, ...], of the clients `ids` in the mask, [S, K]."""

    def write(table: jax.Array, rows: jax.Array) -> jax.Array:
        places = jnp.where(mask, ids, table.shape[1])  # row N does not exist: dropped
        return jax.vmap(lambda old, places, new: old.at[places].set(new, mode="drop"))(table, places, rows)

    return jax.tree.map(write, table, rows)
