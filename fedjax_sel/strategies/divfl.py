"""DivFL: cohorts whose gradients represent all clients, by facility location (Balakrishnan et al. 2022).

Each client is represented by the cohort member with the nearest gradient. The cohort is selected greedily to minimize
the sum of these distances. `lazy` (the paper's no-overhead variant) uses each client's gradient from its last
selection, starting from all gradients at w^0. `ideal` buys all gradients in every round.

    symbol   here                        shape    meaning
    g_i      info.gradient.value[i]      [P]      gradient of i's mean loss over all its data, before local training
    D_ij     State.distances             [N, N]   ||g_i - g_j||_2, not squared
    G(S)     facility_location.cost      scalar   sum_j min_{i in S} D_ij bounds the error of the cohort's gradient
    gamma_i  Selection.weights           [K]      |{j : i = argmin_{s in S} D_sj}| / N, with weights="cluster-size"

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

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import facility_location
from fedjax_sel.strategies.base import Env, Information, Outcome, Selection, Static, Strategy
from fedjax_sel.strategies.facts import ALL, NEVER, SELECTED, Request, always, at_start

_SUBSET_SHARE = 0.1  # fraction of clients that a stochastic greedy step evaluates, but at least K of them
_LONGEST = 1e18  # largest norm of a gradient; squared distances of longer ones overflow float32


class State(NamedTuple):
    """Distances between the clients' last known gradients."""

    num_selected: Static  # K
    distances: jax.Array  # D, float32 [N, N]


def divfl(
    *,
    variant: Literal["lazy", "ideal"] = "lazy",
    greedy: Literal["exact", "stochastic"] = "exact",
    weights: Literal["samples", "cluster-size"] = "samples",
    mixing: float = 0.0,
) -> Strategy:
    """Make DivFL.

    Args:
        variant: gradients from each client's last selection (`lazy`), or all gradients in every round (`ideal`).
        greedy: clients evaluated per greedy step: all (`exact`), or a random max(K, N / 10) (`stochastic`).
        weights: the simulator's aggregation rule (`samples`), or the fractions of clients represented (`cluster-size`).
        mixing: probability that a place of the cohort is filled uniformly, in [0, 1].
    """
    if not 0 <= mixing <= 1:
        raise UserError(f"divfl: mixing={mixing} is outside [0, 1]; the paper uses 0")

    def init(key: jax.Array, env: Env) -> State:
        del key
        # Before the gradients are measured all distances are zero, so cohorts are uniform.
        return State(Static(env.num_selected), jnp.zeros((env.num_clients, env.num_clients), jnp.float32))

    def refresh_all(state: State, info: Information) -> State:
        gradients = _usable(info.gradient.value.astype(state.distances.dtype))
        known = info.gradient.age < NEVER
        distances = facility_location.euclidean_distances(gradients, gradients)
        return state._replace(distances=jnp.where(known[:, None] & known, distances, 0.0))

    def prepare(state: State, info: Information) -> State:
        fresh = refresh_all(state._replace(distances=state.distances.astype(jnp.float64)), info)
        return fresh._replace(distances=_apart(fresh.distances, fresh.distances.max(), info.gradient.age < NEVER))

    def observe(state: State, info: Information, round, available) -> State:
        del round, available
        return refresh_all(state, info)

    def refresh_cohort(state: State, info: Information, round, selection: Selection, outcome: Outcome) -> State:
        del round, outcome
        gradients = _usable(info.gradient.value)
        known = info.gradient.age < NEVER
        fresh = facility_location.euclidean_distances(gradients[selection.ids], gradients)  # [K, N]
        fresh = jnp.where(known[selection.ids][:, None] & known, fresh, state.distances[selection.ids])
        rows = jnp.where(selection.mask, selection.ids, state.distances.shape[0])
        distances = state.distances.at[rows].set(fresh, mode="drop").at[:, rows].set(fresh.T, mode="drop")
        # The first nonzero distances give the scale for clients that never answered.
        first = ~(state.distances > 0).any()
        distances = jnp.where(first, _apart(distances, distances.max(), known), distances)
        return state._replace(distances=distances)

    def select(key, state: State, info, round, available) -> Selection:
        del info, round
        k, num_clients = state.num_selected.value, state.distances.shape[0]
        key_greedy, key_mixing = jax.random.split(key)
        subset = max(k, int(_SUBSET_SHARE * num_clients + 1e-9)) if greedy == "stochastic" else None
        ids = facility_location.select_greedily(state.distances, k, key_greedy, available, subset)
        if mixing > 0:
            ids = _mix(key_mixing, ids, mixing, num_clients, available)
        mask = jnp.ones((k,), bool) if available is None else available[ids]
        shares = facility_location.shares(state.distances, ids, mask) if weights == "cluster-size" else None
        return Selection(ids, shares, mask)

    if variant == "ideal":
        requests = (Request("gradient", ALL, always()),)
        return Strategy(name="divfl", init=init, select=select, requests=requests, observe=observe)
    requests = (Request("gradient", ALL, at_start()), Request("gradient", SELECTED, always()))
    return Strategy("divfl", init, select, requests, prepare=prepare, update=refresh_cohort)


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
