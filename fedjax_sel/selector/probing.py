"""Cohorts of probes, drawn with the simulator's random keys."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.numerics import sampling
from fedjax_sel.selector.answers import Name
from fedjax_sel.selector.terms import Terms
from fedjax_sel.simulation import keys


def cohorts(terms: Terms, round: int, probes: int, available: np.ndarray | None) -> tuple[tuple[Name, ...], ...]:
    """Return a uniformly random cohort for each probe of a round, with at most K available clients.

    Args:
        terms: the Selector's configuration.
        round: the round, from 0.
        probes: number of probes, S.
        available: mask of the available clients, bool [N]; None: all clients.
    """
    facts = keys.streams(keys.roots([terms.seed], {})).facts[0]
    size = terms.size
    drawn = []
    for number in range(probes):
        key = jax.random.fold_in(keys.of_probe(facts, jnp.int32(round), number), keys.INITIALISATION)
        reachable = None if available is None else jnp.asarray(available)
        ids = np.asarray(sampling.uniform_without_replacement(key, size.num_clients, size.num_selected, reachable))
        drawn.append(terms.clients.named(ids if available is None else ids[available[ids]]))
    return tuple(drawn)
