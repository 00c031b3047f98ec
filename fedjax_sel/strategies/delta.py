"""DELTA: clients whose gradients differ from the global gradient (Wang, Guo, Lin, Tang, NeurIPS 2023).

K independent draws with probabilities q, weighted by p_i / (K q_i), are unbiased for any q. DELTA's bound on the
convergence is smallest for q_i proportional to sqrt(alpha_1 zeta_i^2 + alpha_2 sigma_i^2) (Eq. 11): clients with
diverse gradients, instead of large ones. The paper has two forms. The theoretical form measures the gradients of all
clients in every round. The practical form (Sec. 4) uses the cohort's own. This file implements the practical form.

    symbol   here                   shape    meaning
    p_i      now.env.importance     [N]      data share n_i / n
    S        selection.ids, mask    set      clients whose reports arrived
    g_i      osmd.gradients         [P]      mean gradient along the local path: minus the update over rate x steps
    zeta_i   diversity(...)         scalar   |g_i - mean of g_j over S|: diversity of the gradient
    s_i      scores                 scalar   zeta_i, or p_i zeta_i
    q_i      State.probabilities    [N]      probability of a draw; at first 1 / N

After a round, clients in S share their own probability Q = 1 - sum_{j not in S} q_j; the others keep theirs:

    q_i <- Q s_i / sum_{j in S} s_j

Information bought: none. The server reads single updates (no secure aggregation).

Differs from the paper:
* The catalog of facts has no variance of mini-batch gradients, so sigma is 0 and zeta alone decides. The authors' code
  has no variance in the practical form either.
* In the authors' code s_i = p_i zeta_i, which minimizes the variance for data shares p_i (score="share-diversity"). The
  paper's Eq. 11 has no p_i. Its code can also mix in p_i |g_i|.
* The draws and weights are those of the paper. Most scripts of the authors' code draw K distinct clients in the
  practical form, but keep weights in proportion to p_i / q_i, which are then biased. They also divide p_i by the
  cohort's total share.
* A client drawn r times trains once, has weight r p_i / (K q_i), and counts once in the mean of S.
* If all scores are zero, as for K = 1, the probabilities stay.
* Each q_i is at least 0.01 / N. The paper has no floor: a client with s_i = 0 would never be drawn again, and the
  average would lose it. If a share falls below the floor, all q_i of S become floor + c max(0, q_i - floor), where c
  keeps their sum Q. In runs of 500 rounds of 100 clients, no q_i fell below 0.2 / N.
* Draws are from the available clients: p and q are scaled to sum 1 among them.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy
from fedjax_sel.strategies.osmd import among, draw, gradients, lengths

_FLOOR = 0.01  # smallest q, in units of 1 / N: a weight is at most 100 times that of a uniform draw


class State(NamedTuple):
    """Probabilities of a draw."""

    probabilities: jax.Array  # q, float32 [N]


def delta(*, score: Literal["diversity", "share-diversity"] = "diversity") -> Strategy:
    """Make the practical form of DELTA.

    Args:
        score: s_i: the gradient's diversity (`diversity`), or its product with the data share (`share-diversity`).
    """

    def init(key, now: Now) -> State:
        n = now.env.num_clients
        return State(jnp.full((n,), 1 / n, jnp.float32))

    def select(key, state: State, now: Now) -> Selection:
        law, importance = among(now.available, state.probabilities), among(now.available, now.env.importance)
        return draw(key, law, importance, now.env.num_selected)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        ids, arrived, n = selection.ids, outcome.reported & outcome.finite, now.env.num_clients
        scores = diversity(gradients(outcome), arrived)
        if score == "share-diversity":
            scores *= now.env.importance[ids]
        usable = jnp.isfinite(scores.sum()) & (scores.sum() > 0)
        share = jnp.where(arrived, state.probabilities[ids], 0.0).sum()
        fresh = floored(scores / jnp.where(usable, scores.sum(), 1.0) * share, arrived, _FLOOR / n)
        places = jnp.where(arrived & usable, ids, n)
        return State(state.probabilities.at[places].set(fresh, mode="drop"))

    def inclusion(state: State, now: Now) -> jax.Array:
        return now.env.num_selected * among(now.available, state.probabilities)

    return Strategy("delta", select, init=init, update=update, inclusion=inclusion, with_replacement=True)


def diversity(vectors: Any, arrived: jax.Array) -> jax.Array:
    """Return the distance of each vector, leaves [K, ...], to the mean of those that arrived, [K]; 0 for the others."""
    count = jnp.maximum(arrived.sum(), 1)

    def centered(leaf: jax.Array) -> jax.Array:
        rows = arrived.reshape(-1, *[1] * (leaf.ndim - 1))
        leaf = jnp.where(rows, leaf.astype(jnp.float32), 0.0)
        return jnp.where(rows, leaf - leaf.sum(axis=0) / count, 0.0)

    return lengths(jax.tree.map(centered, vectors))


def floored(law: jax.Array, arrived: jax.Array, floor: float) -> jax.Array:
    """Return probabilities [K] of at least `floor` with the same sum over the clients that arrived, bool [K]."""
    excess = jnp.where(arrived, jnp.maximum(law - floor, 0.0), 0.0)
    rest = jnp.maximum((law - floor).sum(where=arrived), 0.0)  # what the floors leave
    lifted = floor + excess * rest / jnp.where(excess.sum() > 0, excess.sum(), 1.0)
    return jnp.where((arrived & (law < floor)).any(), lifted, law)
