"""GreedyFed: the clients with the largest average Shapley values (Singhal, Pandey, Popovski, 2024).

The server estimates the contribution of each cohort member to a lower loss on its own examples. After every client has
been selected once, it selects the K clients with the largest average contribution.

    symbol    here                shape    meaning
    v(S)      -subset_loss        scalar   minus the loss of the average of the models of S; for no client, of w^t
    pi        permutations        [R, K]   random orders of the cohort; the clients take turns at the first place
    eps       `truncation`        scalar   values of v that differ by less count as equal
    phi_k     shapley_values      [K]      Shapley value of client k in this round
    SV_k      State.values[k]     [N]      average of phi_k over the rounds in which k reported

The marginal contribution of the client at place j of an order is

    v(pi_1, ..., pi_j) - v(pi_1, ..., pi_{j-1}),    or 0 once |v(all) - v(pi_1, ..., pi_i)| < eps for some i < j,

and phi_k is the mean over the orders (GTG-Shapley, Liu et al. 2022). With i = 0 all contributions of the round are 0.

Information bought: `evaluations` losses per round on the server's own examples, of averages of single updates.

Differs from the paper:
* The number of orders R is fixed: (evaluations - 2) / (K - 1), rounded down. The authors' code adds orders until the
  values converge, at most 50 K. Here the clients take turns at the first place in a random sequence, so that, without
  truncation, the estimate is unbiased for any R.
* All losses are evaluated before the truncation, which changes the values but saves no work.
* The first rounds visit the clients in random order. If K does not divide N, their last cohort is filled with the
  largest values; the authors' code fills it at random. Clients that were unavailable are visited later.
* v averages the members' models, without the server's optimizer.
* A lost report leaves the average unchanged; a client that was selected and never reported has the mean of the others.
  An update that is not finite contributes 0, as does one beyond --max-staleness. Ties are broken at random.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Decay, NonNegative, Within
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy
from fedjax_sel.strategies.facts import SERVER, Request, always


class State(NamedTuple):
    """The average Shapley values."""

    key: jax.Array  # source of each round's orders
    values: jax.Array  # SV, nats, float32 [N]
    counts: jax.Array  # reports of each client that arrived, int32 [N]
    visited: jax.Array  # clients that were selected, bool [N]


def greedyfed(
    *, memory: Decay | None = None, evaluations: Annotated[int, Within(2)] = 100, truncation: NonNegative = 1e-4
) -> Strategy:
    """Make GreedyFed.

    Args:
        memory: weight of the old average, SV <- memory SV + (1 - memory) phi, in [0, 1); the first phi starts the
            average. None: the mean of all phi.
        evaluations: losses that the server evaluates per round, at least K + 1.
        truncation: threshold eps of the truncation, nats, at least 0.
    """

    def init(key, now: Now) -> State:
        n, k = now.env.num_clients, now.env.num_selected
        if evaluations < k + 1:
            raise UserError(
                f"greedyfed: evaluations={evaluations} is below {k + 1}, one order of the {k} selected clients; give "
                f"at least {k + 1}"
            )
        return State(key, jnp.zeros((n,), jnp.float32), jnp.zeros((n,), jnp.int32), jnp.zeros((n,), bool))

    def select(key, state: State, now: Now) -> Selection:
        known = state.counts > 0
        average = jnp.where(known, state.values, 0.0).sum() / jnp.maximum(known.sum(), 1)
        scores = jnp.where(known, state.values, jnp.where(state.visited, average, jnp.inf))
        scores = scores if now.available is None else jnp.where(now.available, scores, -jnp.inf)
        return Selection.of(sampling.top_k(key, scores, now.env.num_selected), now.available)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        k, n = now.env.num_selected, now.env.num_clients
        num_orders = (evaluations - 2) // (k - 1) if k > 1 else 1
        places = permutations(jax.random.fold_in(state.key, now.round), num_orders, k)
        subsets = prefixes(places)
        unused = jnp.zeros((evaluations - len(subsets), k), bool)
        losses = outcome.subset_loss(jnp.concatenate([subsets, unused]))
        fresh = shapley_values(-losses[: len(subsets)], places, truncation)
        counts, values = state.counts[selection.ids], state.values[selection.ids]
        weight = 1.0 / (counts + 1) if memory is None else jnp.where(counts > 0, 1.0 - memory, 1.0)
        rows = jnp.where(outcome.reported, selection.ids, n)  # out of range, so mode="drop" skips it
        return state._replace(
            values=state.values.at[rows].set(values + weight * (fresh - values), mode="drop"),
            counts=state.counts.at[rows].add(1, mode="drop"),
            visited=state.visited.at[jnp.where(selection.mask, selection.ids, n)].set(True, mode="drop"),
        )

    request = Request("subset_loss", SERVER, always(), (("subsets", evaluations),))
    return Strategy("greedyfed", select, (request,), init, update)


def permutations(key: jax.Array, num_orders: int, k: int) -> jax.Array:
    """Return the place, from 0, of each of k clients in random orders, int32 [R, k]; all are first equally often.

    Each order is uniform over the permutations. If k does not divide R, the clients that are first once more are
    random.
    """
    key_first, key_rest = jax.random.split(key)
    first = jax.random.permutation(key_first, k)[jnp.arange(num_orders) % k]
    noise = jax.random.uniform(key_rest, (num_orders, k))
    return jnp.argsort(jnp.argsort(noise.at[jnp.arange(num_orders), first].set(-1.0), axis=1), axis=1)


def prefixes(places: jax.Array) -> jax.Array:
    """Return the sets to evaluate, bool [2 + R (K - 1), K]: none, all, and the proper prefixes of orders [R, K]."""
    k = places.shape[1]
    proper = places[:, None] < jnp.arange(1, k)[:, None]
    ends = jnp.broadcast_to(jnp.array([[False], [True]]), (2, k))
    return jnp.concatenate([ends, proper.reshape(-1, k)])


def shapley_values(values: jax.Array, places: jax.Array, truncation: float) -> jax.Array:
    """Return the estimated Shapley values phi, float32 [K], from v of the sets of `prefixes` [2 + R (K - 1)]."""
    num_orders, k = places.shape
    none, everyone = jnp.broadcast_to(values[:2, None], (2, num_orders))
    along = jnp.column_stack([none, values[2:].reshape(num_orders, k - 1), everyone])  # [R, K + 1]
    reached = jnp.cumsum(jnp.abs(values[1] - along[:, :-1]) < truncation, axis=1) > 0
    contributions = jnp.where(reached, 0.0, jnp.diff(along, axis=1))  # by place
    return jnp.take_along_axis(contributions, places, axis=1).mean(axis=0)
