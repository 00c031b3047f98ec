"""Random selection: the baseline of every paper.

`uniform-wor`   K distinct clients, every K-subset equally likely: the baseline of FedGP, FedCor and FL-DP3S (FedAvg).
`md`            K independent draws with P(k) = p_k = n_k / sum n. A client drawn r times trains once and its update has
                weight r / K. The expected aggregated model is then sum p_k w_k.
`pps-wor`       K distinct clients, by systematic sampling in random order (Madow 1949). Client k is in the cohort with
                probability pi_k = min(1, c p_k), where c makes the sum K. Its update has weight p_k / pi_k. The weights
                sum to 1, and the expected aggregated model is that of `md`.
`weighted-wor`  K distinct clients, drawn sequentially with weights p_k. With uniform aggregation it is biased towards
                large clients.

Information bought: none.
Differs from the papers: in `md` a client drawn twice trains once, not twice with different shuffles.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.base import Env, Selection, Static, Strategy


class State(NamedTuple):
    """Constants; random selection learns nothing."""

    num_selected: Static  # K
    importance: jax.Array  # p_k, float32 [N]


def random(*, variant: Literal["uniform-wor", "md", "pps-wor", "weighted-wor"] = "uniform-wor") -> Strategy:
    """Make random selection.

    Args:
        variant: law of the cohort: uniform-wor, md, pps-wor or weighted-wor.
    """

    def init(key: jax.Array, env: Env) -> State:
        del key
        return State(Static(env.num_selected), env.importance)

    def select_distinct(key, state, info, round, available) -> Selection:
        del info, round
        k = state.num_selected.value
        if variant == "uniform-wor":
            ids = sampling.uniform_without_replacement(key, state.importance.shape[0], k, available)
        else:
            ids = sampling.without_replacement(key, state.importance, k, available)
        return Selection.of(ids, available)

    def select_multinomial(key, state, info, round, available) -> Selection:
        del info, round
        k = state.num_selected.value
        shares = _shares(state, available)
        ids = sampling.with_replacement(key, shares, k)
        first = sampling.first_occurrence(ids)
        draws = (ids[:, None] == ids[None, :]).sum(axis=1)  # r, the number of draws of each client
        mask = first & (shares.sum() > 0)
        return Selection(ids, jnp.where(mask, draws / k, 0.0), mask)

    def select_systematic(key, state, info, round, available) -> Selection:
        del info, round
        k = state.num_selected.value
        shares = _shares(state, available)
        probabilities = sampling.capped_proportional(shares, k)
        ids = sampling.systematic(key, probabilities, k)
        mask = probabilities[ids] > 0
        weights = shares[ids] / shares.sum() / jnp.where(mask, probabilities[ids], 1.0)
        return Selection(ids, jnp.where(mask, weights, 0.0), mask)

    def inclusion(state: State, info, round, available) -> jax.Array:
        del info, round
        k, num_clients = state.num_selected.value, state.importance.shape[0]
        if variant == "md":
            shares = _shares(state, available)
            return k * shares / shares.sum()
        if variant == "pps-wor":
            return sampling.capped_proportional(_shares(state, available), k)
        num_reachable = num_clients if available is None else jnp.maximum(available.sum(), k)
        return jnp.full((num_clients,), k / num_reachable, jnp.float32)

    if variant == "md":
        return Strategy("random", init, select_multinomial, with_replacement=True, inclusion=inclusion)
    if variant == "pps-wor":
        return Strategy("random", init, select_systematic, inclusion=inclusion)
    # Weighted draws without replacement have no closed-form inclusion probabilities.
    return Strategy("random", init, select_distinct, inclusion=None if variant == "weighted-wor" else inclusion)


def _shares(state: State, available: jax.Array | None) -> jax.Array:
    """Return p_k, with zeros for unavailable clients."""
    return state.importance if available is None else jnp.where(available, state.importance, 0.0)
