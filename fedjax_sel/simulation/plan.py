"""What is fixed before a run is traced, and what a round hands to the next. Shapes: S replicates, K selected."""

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
    """Everything about a run that is fixed before tracing. Static."""

    mesh: Mesh
    strategy: Strategy
    trainer: Trainer
    server: optax.GradientTransformation
    aggregation: str
    loss_on: str
    keep_client_optimizers: bool
    store: HostStore | None  # where what is kept of clients lies; None: on the devices
    available: float | None  # share of the clients that can be reached in a round; None: the federation says who
    report_failure_rate: float  # share of the cohort whose training never reaches the server
    num_selected: int
    num_rounds: int
    eval_every: int  # 0: never, which only benchmarks want
    train_metrics_every: int  # 0: never
    evaluation_block: int  # examples
    clients_at_once: int  # that a device trains together; 0: all of its share
    facts_at_once: int  # clients that a device measures together
    blocks_at_once: int

    def kept_at_first(self, weights: Weights) -> Kept:
        """Return what is kept of a client that never trained."""
        trainer = self.trainer
        of_own = client.fresh(trainer, weights.trained) if self.keep_client_optimizers else None
        return Kept(of_own, trainer.optimizer.init_own(weights.trained))


class Carry(NamedTuple):
    """What a round hands to the next; every leaf has the leading axis [S]."""

    params: Weights
    server: optax.OptState
    strategy: Any
    info: Information
    clients: Kept | HostTable  # what is kept of each client, [S, N, ...] on the devices
    shared: Any  # what the federated optimizer has the server remember
    evaluation: Evaluation | None  # of `params`, on the data that the strategy asked the server to use
    start: Bill  # what was bought before the first round, which pays for it


class Records(NamedTuple):
    """What a round reports; leaves [S, ...], NaN where it was not the turn of a measurement."""

    cohort: jax.Array  # int32 [S, K]; -1 where nobody trained
    measured: dict[str, jax.Array]  # by the names of `measures.names`
    nonfinite: jax.Array  # bool [S, K]: this client's update held NaN or infinity
    faults: Faults
    events: Events
