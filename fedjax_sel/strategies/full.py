"""Full participation: all available clients train in every round (FedAvg with C = 1, McMahan et al. 2017).

The upper reference for every strategy: no update is missing. A cohort has N places whatever K is, so memory, time and
traffic are N / K times those of the others.

Information bought: none.

Differs from the paper: the weights are those of --aggregation. FedAvg weights by data share: --aggregation samples.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.strategies.base import Env, Selection, Strategy


class State(NamedTuple):
    """Constants; full participation learns nothing."""

    everyone: jax.Array  # True for each client, bool [N]


def full() -> Strategy:
    """Make full participation."""

    def init(key: jax.Array, env: Env) -> State:
        del key
        return State(jnp.ones((env.num_clients,), bool))

    def select(key, state: State, info, round, available) -> Selection:
        del key, info, round
        ids = jnp.arange(state.everyone.shape[0], dtype=jnp.int32)
        return Selection(ids, None, state.everyone if available is None else available)

    def inclusion(state: State, info, round, available) -> jax.Array:
        del info, round, available
        return state.everyone.astype(jnp.float32)

    return Strategy("full", init, select, inclusion=inclusion, max_selected=lambda n, k: n)
