"""Static run configuration (`Plan`), scan carry (`Carry`) and outputs (`Records`). S replicates, K selected."""

from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh

from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation.bill import Bill
from fedjax_sel.simulation.client_table import HostStore, HostTable, Kept
from fedjax_sel.simulation.faults import Faults
from fedjax_sel.simulation.ledger import Events
from fedjax_sel.strategies.base import Evaluation, Information, Strategy
from fedjax_sel.training import client
from fedjax_sel.training.client import Trainer


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
    available: float | None  # probability that a client is available in a round; None: the federation has a trace
    report_failure_rate: float  # probability that a report never reaches the server
    num_selected: int  # K
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
    measured: dict[str, jax.Array]  # metrics by the names of `measures.names`
    nonfinite: jax.Array  # whether this client's update held NaN or infinity, bool [S, K]
    faults: Faults
    events: Events
