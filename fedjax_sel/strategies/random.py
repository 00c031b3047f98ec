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

from typing import Literal

import jax
import jax.numpy as jnp

from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Selection, Strategy


def random(*, variant: Literal["uniform-wor", "md", "pps-wor", "weighted-wor"] = "uniform-wor") -> Strategy:
    """Make random selection.

    Args:
        variant: law of the cohort: uniform-wor, md, pps-wor or weighted-wor.
    """

    def select_distinct(key, state, now: Now) -> Selection:
        env, available = now.env, now.available
        if variant == "uniform-wor":
            ids = sampling.uniform_without_replacement(key, env.num_clients, env.num_selected, available)
        else:
            ids = sampling.without_replacement(key, env.importance, env.num_selected, available)
        return Selection.of(ids, available)

    def select_multinomial(key, state, now: Now) -> Selection:
        k, shares = now.env.num_selected, _shares(now)
        ids = sampling.with_replacement(key, shares, k)
        first = sampling.first_occurrence(ids)
        mask = first & (shares.sum() > 0)
        return Selection(ids, jnp.where(mask, sampling.draws(ids) / k, 0.0), mask)

    def select_systematic(key, state, now: Now) -> Selection:
        k, shares = now.env.num_selected, _shares(now)
        probabilities = sampling.capped_proportional(shares, k)
        ids = sampling.systematic(key, probabilities, k)
        mask = probabilities[ids] > 0
        weights = shares[ids] / shares.sum() / jnp.where(mask, probabilities[ids], 1.0)
        return Selection(ids, jnp.where(mask, weights, 0.0), mask)

    def inclusion(state, now: Now) -> jax.Array:
        n, k, available = now.env.num_clients, now.env.num_selected, now.available
        if variant == "md":
            shares = _shares(now)
            return k * shares / shares.sum()
        if variant == "pps-wor":
            return sampling.capped_proportional(_shares(now), k)
        num_reachable = n if available is None else jnp.maximum(available.sum(), k)
        return jnp.full((n,), k / num_reachable, jnp.float32)

    if variant == "md":
        return Strategy("random", select_multinomial, with_replacement=True, inclusion=inclusion)
    if variant == "pps-wor":
        return Strategy("random", select_systematic, inclusion=inclusion)
    # Weighted draws without replacement have no closed-form inclusion probabilities.
    return Strategy("random", select_distinct, inclusion=None if variant == "weighted-wor" else inclusion)


def _shares(now: Now) -> jax.Array:
    """Return p_k, with zeros for unavailable clients."""
    importance = now.env.importance
    return importance if now.available is None else jnp.where(now.available, importance, 0.0)
