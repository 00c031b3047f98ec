"""DivFL: cohorts whose gradients represent all clients, by facility location (Balakrishnan et al. 2022).

Each client is represented by the cohort member with the nearest gradient. The cohort is selected greedily to minimize
the sum of these distances. `lazy` (the paper's no-overhead variant) uses each client's gradient from its last
selection, starting from all gradients at w^0. `ideal` buys all gradients in every round.

    symbol   here                            shape    meaning
    g_i      now.info.gradient.value[i]      [P]      gradient of i's mean loss over all its data, before local training
    D_ij     distances                       [N, N]   ||g_i - g_j||_2, not squared
    G(S)     facility_location.select_greedily        sum_j min_{i in S} D_ij bounds the error of the cohort's gradient
    gamma_i  Selection.weights               [K]      |{j : i = argmin_{s in S} D_sj}| / N, with weights="cluster-size"

Information bought: `lazy`: all gradients at the start (N models down, N P floats up), then K P floats per round.
`ideal`: all gradients in every round (N models down, N P floats up). Neither allows secure aggregation.

Differs from the paper:
* Ties are broken at random; the authors' code breaks them by index. Ties are frequent: two clients that would represent
  only each other have equal cost.
* The greedy step evaluates all clients. The priority queue of the authors' code gives the same set up to ties.
* weights="samples" leaves aggregation to the simulator, as in the paper's experiments. weights="cluster-size" uses the
  weights of the paper's derivation. A client equally near to several members counts in equal parts.
* Given D the cohort is deterministic. With stale gradients it can freeze on clients whose own gradients shrink.
  `mixing` is the probability that a place goes to a client drawn uniformly from those not selected.
* Unavailable clients are represented but not selected. In `ideal` their last gradient is used, and clients that never
  answered do not count.
* A gradient that is not finite, or has a norm above 1e18, is treated as zero.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Share
from fedjax_sel.numerics import facility_location
from fedjax_sel.strategies.contract import Fact, Now, Outcome, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, NEVER, SELECTED, Request, always, at_start

_SUBSET_SHARE = 0.1  # fraction of clients that a stochastic greedy step evaluates, but at least K of them
_LONGEST = 1e18  # largest norm of a gradient; squared distances of longer ones overflow float32


class State(NamedTuple):
    """Distances between the clients' last known gradients, for `lazy`."""

    distances: jax.Array  # D, float32 [N, N]


def divfl(
    *,
    variant: Literal["lazy", "ideal"] = "lazy",
    greedy: Literal["exact", "stochastic"] = "exact",
    weights: Literal["samples", "cluster-size"] = "samples",
    mixing: Share = 0.0,
) -> Strategy:
    """Make DivFL.

    Args:
        variant: gradients from each client's last selection (`lazy`), or all gradients in every round (`ideal`).
        greedy: clients evaluated per greedy step: all (`exact`), or a random max(K, N / 10) (`stochastic`).
        weights: the simulator's aggregation rule (`samples`), or the fractions of clients represented (`cluster-size`).
        mixing: probability that a place of the cohort is filled uniformly, in [0, 1].
    """

    def init(key, now: Now) -> State:
        value, age = now.info.gradient
        distances = known_distances(Fact(value.astype(jnp.float64), age))
        return State(_apart(distances, distances.max(), age < NEVER))

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        gradients, known = _usable(now.info.gradient.value), now.info.gradient.age < NEVER
        fresh = facility_location.euclidean_distances(gradients[selection.ids], gradients)  # [K, N]
        fresh = jnp.where(known[selection.ids][:, None] & known, fresh, state.distances[selection.ids])
        rows = jnp.where(outcome.reported, selection.ids, now.env.num_clients)
        distances = state.distances.at[rows].set(fresh, mode="drop").at[:, rows].set(fresh.T, mode="drop")
        # The first nonzero distances give the scale for clients that never answered.
        first = ~(state.distances > 0).any()
        return State(jnp.where(first, _apart(distances, distances.max(), known), distances))

    def select(key, state, now: Now) -> Selection:
        k, num_clients, available = now.env.num_selected, now.env.num_clients, now.available
        distances = known_distances(now.info.gradient) if variant == "ideal" else state.distances
        key_greedy, key_mixing = jax.random.split(key)
        subset = max(k, int(_SUBSET_SHARE * num_clients + 1e-9)) if greedy == "stochastic" else None
        ids = facility_location.select_greedily(distances, k, key_greedy, available, subset)
        if mixing > 0:
            ids = _mix(key_mixing, ids, mixing, num_clients, available)
        mask = jnp.ones((k,), bool) if available is None else available[ids]
        if weights == "samples":
            return Selection(ids, None, mask)
        known = now.info.gradient.age < NEVER if variant == "ideal" else None
        return Selection(ids, facility_location.shares(distances, ids, mask, known), mask)

    if variant == "ideal":
        return Strategy("divfl", select, (Request("gradient", ALL, always()),))
    requests = (Request("gradient", ALL, at_start()), Request("gradient", SELECTED, always()))
    return Strategy("divfl", select, requests, init=init, update=update)


def known_distances(gradient: Fact) -> jax.Array:
    """Return D, [N, N], from gradients [N, P]; 0 for clients that never answered."""
    gradients, known = _usable(gradient.value), gradient.age < NEVER
    return jnp.where(known[:, None] & known, facility_location.euclidean_distances(gradients, gradients), 0.0)


def _apart(distances: jax.Array, largest: jax.Array, known: jax.Array) -> jax.Array:
    """Impute the distances of clients that never answered (only real clients) with the largest distance.

    Such clients represent only themselves, so they are selected until they have trained.
    """
    itself = jnp.eye(len(known), dtype=bool)
    return jnp.where(known[:, None] & known | itself, distances, largest)


def _usable(gradients: jax.Array) -> jax.Array:
    """Return gradients [N, P], with zeros for rows that are not finite or whose square overflows."""
    # A comparison with NaN is False.
    return jnp.where(jnp.sum(gradients**2, axis=1, keepdims=True) < _LONGEST**2, gradients, 0.0)


def _mix(key: jax.Array, ids: jax.Array, mixing: float, num_clients: int, available: jax.Array | None) -> jax.Array:
    """Replace a random number of the last members of a greedy cohort by clients drawn uniformly from the rest."""
    key_count, key_rest = jax.random.split(key)
    k = ids.shape[0]
    places = jnp.arange(k)
    kept = places < k - jax.random.bernoulli(key_count, mixing, (k,)).sum()
    ranks = k + jax.random.permutation(key_rest, num_clients)
    if available is not None:
        ranks = jnp.where(available, ranks, ranks + num_clients)
    ranks = ranks.at[jnp.where(kept, ids, num_clients)].set(places, mode="drop")
    return jnp.argsort(ranks)[:k].astype(jnp.int32)
