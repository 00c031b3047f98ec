"""Cyclic participation: groups of clients take turns in a fixed order (Cho et al., ICML 2023).

The clients form m groups. Round t trains clients of group t mod m only, so that m rounds visit all groups once. Phones
that charge at night, in several time zones, participate in this way.

    symbol   here                  shape    meaning
    m        `num_groups`                   number of groups, random and of equal size
    g_i      State.groups[i]       scalar   group of client i, from 0

Each round draws K clients of its group uniformly, without replacement.

Information bought: none.

Differs from the paper:
* The paper's groups are given by the clients' availability, and their data may differ. Here they are random, so
  selection is cyclic but the data of two groups differ by chance only. For groups of similar clients, use
  --available label or --available daily with another strategy.
* A group with fewer than K available clients is filled from the next groups.
* The default number of groups is this package's choice.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Count
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Selection, Strategy, check_count


class State(NamedTuple):
    """Random groups; cyclic participation learns nothing."""

    groups: jax.Array  # group of each client, int32 [N]


def cyclic(*, num_groups: Count = 5) -> Strategy:
    """Make cyclic participation.

    Args:
        num_groups: number of groups m, from 1 to N; 1 is uniform selection.
    """

    def init(key, now: Now) -> State:
        n = now.env.num_clients
        check_count("cyclic: num_groups", num_groups, now.env)
        return State(jax.random.permutation(key, (jnp.arange(n) * num_groups // n).astype(jnp.int32)))

    def select(key, state: State, now: Now) -> Selection:
        turns = (state.groups - now.round) % num_groups  # rounds until each client's group is due
        if now.available is not None:
            turns = jnp.where(now.available, turns, num_groups)
        words = sampling.random_words(key, now.env.num_clients)
        return Selection.of(sampling.first((turns.astype(jnp.uint32), *words), now.env.num_selected), now.available)

    return Strategy("cyclic", select, init=init)
