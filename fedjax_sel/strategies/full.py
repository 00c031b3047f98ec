"""Full participation: all available clients train in every round (FedAvg with C = 1, McMahan et al. 2017).

The upper reference for every strategy: no update is missing. A cohort has N places whatever K is, so memory, time and
traffic are N / K times those of the others.

Information bought: none.

Differs from the paper: the weights are those of --aggregation. FedAvg weights by data share: --aggregation samples.
"""

import jax.numpy as jnp

from fedjax_sel.strategies.contract import Now, Selection, Strategy


def full() -> Strategy:
    """Make full participation."""

    def select(key, state, now: Now) -> Selection:
        return Selection.of(jnp.arange(now.env.num_clients, dtype=jnp.int32), now.available)

    def inclusion(state, now: Now):
        return jnp.ones((now.env.num_clients,), jnp.float32)

    return Strategy("full", select, inclusion=inclusion, max_selected=lambda n, k: n)
