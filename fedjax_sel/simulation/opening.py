"""The state of the federation when a round opens: what facts are measured on, and what the cohort trains from."""

from typing import NamedTuple

import jax
from jax.sharding import Mesh

from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Params
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.training.client import Trainer
from fedjax_sel.training.optimizers.base import Memory


class Opening(NamedTuple):
    """The state of the federation when a round opens, and how it is measured."""

    mesh: Mesh
    trainer: Trainer
    strategy: Strategy
    loss_on: str
    aggregation: str
    num_selected: int
    at_once: int  # clients that a device measures together
    federation: Federation
    params: Params
    memory: Memory  # of the federated optimizer
    streams: Streams
    round: jax.Array
    available: jax.Array | None  # bool [S, N]; None: everyone
