"""AFL, Active Federated Learning: clients whose data still have a high loss, drawn by a softmax (Goetz et al. 2019).

The server keeps a valuation of every client, from the loss of the model that the client last received. Low valuations
are set aside, most of the cohort is drawn from the rest with weights that grow with the valuation, and a few places go
to anybody.

    symbol    here                      shape    meaning
    l_k       info.loss.value[k]        scalar   mean loss of the last received model on k's data, before training
    n_k       State.sizes[k]            scalar   training examples
    v_k       valuations                [N]      sqrt(n_k) l_k: the summed loss over sqrt(n_k)
    alpha_1   `alpha1`                           share of clients, of the lowest valuation, that are set aside
    alpha_2   `alpha2`                           q_k proportional to exp(alpha_2 v_k) on the others
    alpha_3   `alpha3`                           share of the cohort drawn uniformly from those not yet chosen

Information bought: the loss of all at the start (N models down, N floats up), then one float from each of the cohort a
round. Who is not selected is known by an old loss.

Differs from the paper:
* The paper writes 1 / sqrt(n_k) times the loss of a client; read as the summed loss, as in public code. Dividing the
  mean loss would favour small clients.
* floor((1 - alpha_3) K) places are drawn by valuation: with K = 1 and alpha_3 > 0 none is, and AFL is uniform.
* Where those that are left would not fill these places, fewer are set aside.
* Clients that are not available: the method on the federation of those that are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.base import ALL, NEVER, SELECTED, Env, Request, Selection, Static, Strategy, always, at_start


class State(NamedTuple):
    """Nothing is learned: the table of losses is the memory."""

    num_selected: Static  # K
    sizes: jax.Array  # n_k, float32 [N]


def afl(*, alpha1: float = 0.75, alpha2: float = 0.01, alpha3: float = 0.1) -> Strategy:
    """Make AFL, Active Federated Learning.

    Args:
        alpha1: share of the clients that are set aside, in [0, 1].
        alpha2: how much the draw prefers high valuations, at least 0.
        alpha3: share of the cohort that is drawn uniformly, in [0, 1].

    Returns:
        The strategy.

    Raises:
        UserError: a parameter outside its range.
    """
    for name, value, usual in (("alpha1", alpha1, 0.75), ("alpha3", alpha3, 0.1)):
        if not 0 <= value <= 1:
            raise UserError(f"afl: {name}={value} is outside [0, 1]; the paper uses {usual}")
    if not 0 <= alpha2 < float("inf"):
        raise UserError(f"afl: alpha2={alpha2} must be a number from 0; the paper uses 0.01")

    def init(key: jax.Array, env: Env) -> State:
        del key
        return State(Static(env.num_selected), env.sizes.astype(jnp.float32))

    def select(key, state: State, info, round, available) -> Selection:
        del round
        k = state.num_selected.value
        values = known_or_largest(valuations(info.loss.value, state.sizes), info.loss.age)
        ids = active_cohort(key, values, k, alpha1, alpha2, alpha3, available)
        return Selection(ids, None, jnp.ones((k,), bool) if available is None else available[ids])

    return Strategy(
        name="afl",
        init=init,
        select=select,
        requests=(Request("loss", ALL, at_start()), Request("loss", SELECTED, always())),
    )


def valuations(losses: jax.Array, sizes: jax.Array) -> jax.Array:
    """Return v_k = sqrt(n_k) l_k.

    Args:
        losses: mean losses, [N].
        sizes: n_k, [N].

    Returns:
        [N].
    """
    return jnp.sqrt(sizes) * losses


def known_or_largest(values: jax.Array, age: jax.Array) -> jax.Array:
    """Return values in which clients that never answered have the largest that is known, so that they are tried soon.

    In a simulation all answer before the first round; a server of real clients may hear nothing of some.

    Args:
        values: [N].
        age: of the facts that they are made of, [N].

    Returns:
        [N]; zeros where nobody ever answered.
    """
    known = age < NEVER
    largest = jnp.where(known, values, -jnp.inf).max()
    return jnp.where(known, values, jnp.where(known.any(), largest, 0.0))


def active_cohort(
    key: jax.Array,
    values: jax.Array,
    k: int,
    alpha1: float,
    alpha2: float,
    alpha3: float,
    available: jax.Array | None = None,
) -> jax.Array:
    """Draw a cohort as AFL does (Goetz et al. 2019).

    Args:
        key: consumed.
        values: v_k, finite, [N].
        k: K.
        alpha1: share set aside.
        alpha2: inverse temperature of the softmax.
        alpha3: share drawn uniformly.
        available: bool [N]; all without it. Clients that are not available come last.

    Returns:
        int32 [K], distinct.
    """
    key_ties, key_draw, key_rest = jax.random.split(key, 3)
    num_clients = values.shape[0]
    by_value = int((1 - alpha3) * k + 1e-9)
    # 1e-9: 0.9 x 10 and the like must not fall below the integer that they are; so the floors are taken here.
    counts = np.arange(num_clients + 1)
    num_kept = np.maximum(counts - np.floor(alpha1 * counts + 1e-9), np.minimum(by_value, counts)).astype(np.int32)
    reachable = jnp.ones((num_clients,), bool) if available is None else available
    kept_here = num_kept[-1] if available is None else jnp.asarray(num_kept)[reachable.sum()]
    kept = sampling.among_largest(key_ties, jnp.where(reachable, values, -jnp.inf), kept_here)

    # Weights stay logarithms: exp of a large difference would be zero.
    drawn = sampling.by_logits(key_draw, alpha2 * values, by_value, kept)

    # Where so few are there that unavailable ones are drawn, all that are there are drawn as well, and stand in tier 0.
    tiers = jnp.where(reachable, 1, 2).at[drawn].add(-1)
    return sampling.top_k(key_rest, -tiers.astype(jnp.float32), k)
