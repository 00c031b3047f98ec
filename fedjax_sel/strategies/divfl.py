"""DivFL: cohorts whose gradients stand for everybody's, by facility location (Balakrishnan et al. 2022).

Every client is represented by the member of the cohort whose gradient is nearest to its own; the cohort is chosen
greedily so that the sum of these distances is small. `lazy` (the paper's no-overhead variant) knows the gradient of a
client from the last round in which it was selected, and everybody's at w^0; `ideal` buys all gradients in every round.

    symbol   here                        shape    meaning
    g_i      info.gradient.value[i]      [P]      gradient of i's mean loss over all its data, before local training
    D_ij     State.distances             [N, N]   ||g_i - g_j||_2, not squared
    G(S)     facility_location.cost      scalar   sum_j min_{i in S} D_ij bounds the error of the cohort's gradient
    gamma_i  Selection.weights           [K]      |{j : i = argmin_{s in S} D_sj}| / N, with weights="cluster-size"

Information bought: `lazy`: all gradients at the start (N models down, N P floats up), then K P floats a round. `ideal`:
all gradients in every round (N models down, N P floats up).

Differs from the paper:
* Ties are broken at random, by index in the authors' code. They are frequent: two clients that would each represent the
  other one, and nobody else, cost the same.
* The greedy step is evaluated in full: the priority queue of the authors' code gives the same set up to ties.
* weights="samples" leaves aggregation to the simulator, as in the paper's experiments; the weights that its derivation
  gives are weights="cluster-size". A client that is equally near to several counts in equal parts.
* Given D the cohort has no chance in it, and with stale gradients it can freeze on clients whose own gradients shrink:
  with `mixing` each place goes, with that probability, to a client drawn uniformly from those not chosen.
* Clients that are not available are represented, and not chosen; in `ideal` their last gradient stands, and who never
  answered does not count.
* A gradient that is not finite, or longer than 1e18, counts as zero.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import facility_location
from fedjax_sel.strategies.base import (
    ALL,
    NEVER,
    SELECTED,
    Env,
    Information,
    Outcome,
    Request,
    Selection,
    Static,
    Strategy,
    always,
    at_start,
    keep_state,
)

_SUBSET_SHARE = 0.1  # of the clients that a stochastic step looks at, at least K of them
_LONGEST = 1e18  # of gradients; beyond it squared distances leave float32


class State(NamedTuple):
    """What is known of the gradients."""

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
        variant: gradients from a client's last participation (`lazy`), or all of them in every round (`ideal`).
        greedy: each step looks at all clients (`exact`), or at a random max(K, N / 10) of them (`stochastic`).
        weights: the simulator's aggregation rule (`samples`), or the shares of clients represented (`cluster-size`).
        mixing: probability that a place of the cohort is drawn uniformly, in [0, 1].

    Returns:
        The strategy.

    Raises:
        UserError: mixing outside [0, 1].
    """
    if not 0 <= mixing <= 1:
        raise UserError(f"divfl: mixing={mixing} is outside [0, 1]; the paper uses 0")

    def init(key: jax.Array, env: Env) -> State:
        del key
        # Until gradients are in, all clients are alike: cohorts are uniform.
        return State(Static(env.num_selected), jnp.zeros((env.num_clients, env.num_clients), jnp.float32))

    def refresh_all(state: State, info: Information) -> State:
        gradients = _usable(info.gradient.value.astype(state.distances.dtype))
        known = info.gradient.age < NEVER
        distances = facility_location.euclidean_distances(gradients, gradients)
        return state._replace(distances=jnp.where(known[:, None] & known, distances, 0.0))

    def prepare(state: State, info: Information) -> State:
        found = refresh_all(state._replace(distances=state.distances.astype(jnp.float64)), info)
        return found._replace(distances=_apart(found.distances, found.distances.max(), info.gradient.age < NEVER))

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
        # The first that differ say how far apart two are; before, the silent could not be put away from anybody.
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

    lazy = variant == "lazy"
    return Strategy(
        name="divfl",
        init=init,
        select=select,
        requests=(
            (Request("gradient", ALL, at_start()), Request("gradient", SELECTED, always()))
            if lazy
            else (Request("gradient", ALL, always()),)
        ),
        prepare=prepare if lazy else keep_state,
        update=refresh_cohort if lazy else keep_state,
        observe=keep_state if lazy else observe,
    )


def _apart(distances: jax.Array, largest: jax.Array, known: jax.Array) -> jax.Array:
    """Return distances in which clients that never answered are as far from all others as any two are.

    They represent nobody but themselves, and nobody them: they are tried until they have trained. In a simulation all
    answer before the first round; a server of real clients may hear nothing of some.
    """
    itself = jnp.eye(len(known), dtype=bool)
    return jnp.where(known[:, None] & known | itself, distances, largest)


def _usable(gradients: jax.Array) -> jax.Array:
    """Return gradients [N, P], zero where they are not finite or too long to be squared."""
    # A comparison with NaN is False.
    return jnp.where(jnp.sum(gradients**2, axis=1, keepdims=True) < _LONGEST**2, gradients, 0.0)


def _mix(key: jax.Array, ids: jax.Array, mixing: float, num_clients: int, available: jax.Array | None) -> jax.Array:
    """Give some places of a greedy cohort, the last ones, to clients drawn uniformly from the rest."""
    key_count, key_rest = jax.random.split(key)
    k = ids.shape[0]
    places = jnp.arange(k)
    kept = places < k - jax.random.bernoulli(key_count, mixing, (k,)).sum()
    ranks = k + jax.random.permutation(key_rest, num_clients)
    if available is not None:
        ranks = jnp.where(available, ranks, ranks + num_clients)
    ranks = ranks.at[jnp.where(kept, ids, num_clients)].set(places, mode="drop")
    return jnp.argsort(ranks)[:k].astype(jnp.int32)
