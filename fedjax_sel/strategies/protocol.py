"""What a server does between two rounds that does not depend on how facts are had."""

import jax.numpy as jnp

from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.base import Fact, Information, Strategy
from fedjax_sel.strategies.kinds import KINDS, Counts
from fedjax_sel.strategies.requests import NEVER


def nothing_known(strategy: Strategy, counts: Counts, *clients: int) -> Information:
    """Return the tables before anything is known.

    Args:
        strategy: whose requests.
        counts: what the lengths of facts depend on.
        *clients: the leading axes: N, or S and N.
    """
    return Information(
        strategy.name,
        {
            request.kind: Fact(
                jnp.zeros((*clients, *kinds.shape(request, counts)), jnp.float32),
                jnp.full(clients, NEVER, jnp.int32),
            )
            for request in strategy.requests
            if KINDS[request.kind].has_table
        },
    )
