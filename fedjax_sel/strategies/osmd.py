"""OSMD: sampling probabilities learned from the cohorts' updates (Zhao, Wang, Liu, Zhang, Zhou, Chen, Kolar, JMLR).

K independent draws with probabilities q, weighted by p_i / (K q_i), are unbiased for any q. Their variance is smallest
for q_i proportional to p_i |g_i|, but the server sees g_i of the cohort only. Online stochastic mirror descent (OSMD)
moves q after every round. The best learning rate is unknown, so E experts with rates that double run side by side, and
q is their mixture with weights theta that follow the experts' losses (adaptive OSMD).

    symbol   here                  shape    meaning
    p_i      now.env.importance    [N]      data share n_i / n
    g_i      gradients(outcome)    [P]      mean gradient along the local path: minus the update over rate x steps
    a_i      (p_i |g_i|)^2         scalar   what the probability of client i should follow
    a        State.bound^2         scalar   bound of a_i; here the largest a_i that was reported so far
    q_e      State.experts         [E, N]   probabilities of expert e, each at least alpha / N
    theta_e  State.trust           [E]      weight of expert e; at first (1 + 1/E) / (e (e + 1))
    q        probabilities         [N]      sum_e theta_e q_e, among the available clients
    r_i      number of draws       scalar   draws of client i in this round
    eta_e    rates, scaled         scalar   2^(e-1) K^2 alpha^3 / (N^3 a) sqrt(log N / (2 T))
    gamma    hedge / sqrt(a)       scalar   alpha / N sqrt(8 K / (T a))

After a round, with the estimated losses l_e = sum_i r_i a_i / (K^2 q_e,i q_i):

    theta_e <- theta_e exp(-gamma l_e), normalized
    q_e,i   <- q_e,i exp(eta_e r_i a_i / (K^2 q_e,i^2 q_i)), projected on {q >= alpha / N, sum q = 1}

The projection minimizes the relative entropy to its argument.

Information bought: none. The server reads single updates (no secure aggregation).

Differs from the paper:
* The authors' code sets a to the largest a_i of all clients at the start, which costs N gradients that are not counted.
  Here a is the largest a_i of the cohorts so far. Until the first report, nothing is learned.
* In the authors' code a client drawn r times enters the update of q_e once, although l_e counts every draw. Here both
  count every draw, so that the estimates are unbiased.
* A client drawn r times trains once and has weight r p_i / (K q_i).
* The paper assumes that all clients are available. Here the draws are from the available clients: p and q are scaled to
  sum 1 among them. A lost report counts as a client that was not drawn.
* Exponents are normalized before exp, so that theta does not underflow; the authors' code then resets theta.
* In asynchronous rounds, q is that of the round in which a report arrives, and r_i is 1: l_e is then approximate.
* T is the number of rounds of the run. The variants with a doubling trick and without replacement are left out.
"""

import math
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel.core.plugins import Within
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy


class State(NamedTuple):
    """Experts, and the bound of their feedback."""

    experts: jax.Array  # q_e, float32 [E, N]
    trust: jax.Array  # theta, float32 [E]
    bound: jax.Array  # sqrt(a): the largest p_i |g_i| so far, float32 scalar


def osmd(*, alpha: Annotated[float, Within(above=0, below=1)] = 0.4) -> Strategy:
    """Make adaptive OSMD.

    Args:
        alpha: smallest probability of a client, in units of 1 / N, above 0 and below 1.
    """

    def init(key, now: Now) -> State:
        n, num_rounds = now.env.num_clients, now.env.num_rounds
        inside = 1 + 4 * (num_rounds - 1) * math.log(n / alpha) / math.log(max(n, 2))
        num_experts = math.ceil(math.log2(inside) / 2) + 1
        e = jnp.arange(1, num_experts + 1, dtype=jnp.float32)
        experts = jnp.full((num_experts, n), 1 / n, jnp.float32)
        return State(experts, (1 + 1 / num_experts) / (e * (e + 1)), jnp.float32(0))

    def select(key, state: State, now: Now) -> Selection:
        shares = among(now.available, now.env.importance)
        return draw(key, probabilities(state, now.available), shares, now.env.num_selected)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        n, k, num_rounds, ids = now.env.num_clients, now.env.num_selected, now.env.num_rounds, selection.ids
        # `rates` is eta_e a N^3 / (K^2 alpha^3), and `hedge` is gamma sqrt(a).
        rates = 2.0 ** np.arange(len(state.trust)) * math.sqrt(math.log(max(n, 2)) / (2 * num_rounds))
        hedge = alpha / n * math.sqrt(8 * k / num_rounds)
        scaled = now.env.importance[ids] * lengths(gradients(outcome))  # sqrt(a_i)
        taken = outcome.reported & outcome.finite & jnp.isfinite(scaled)
        bound = jnp.maximum(state.bound, jnp.where(taken, scaled, 0.0).max())
        # r_i a_i / a
        feedback = jnp.where(taken, sampling.draws(ids) * (scaled / jnp.where(bound > 0, bound, 1.0)) ** 2, 0.0)
        own, chance = state.experts[:, ids], jnp.where(taken, probabilities(state, now.available)[ids], 1.0)
        losses = hedge * bound * (feedback / (k**2 * own * chance)).sum(axis=1)  # gamma l_e
        # The powers of alpha / N in eta_e make each factor at most 1.
        floor = alpha / n
        steps = rates.astype(np.float32)[:, None] * feedback * (floor / own) ** 2 * (floor / chance)
        experts = jax.vmap(projected, (0, None))(jnp.log(state.experts).at[:, ids].add(steps), floor)
        return State(experts, jax.nn.softmax(jnp.log(state.trust) - losses), bound)

    def inclusion(state: State, now: Now) -> jax.Array:
        return now.env.num_selected * probabilities(state, now.available)

    return Strategy("osmd", select, init=init, update=update, inclusion=inclusion, with_replacement=True)


def probabilities(state: State, available: jax.Array | None) -> jax.Array:
    """Return q, float32 [N]; 0 for unavailable clients."""
    return among(available, jnp.matmul(state.trust, state.experts, precision=lax.Precision.HIGHEST))


def projected(logits: jax.Array, floor: float) -> jax.Array:
    """Return the probabilities of at least `floor` with the smallest relative entropy to exp(logits), [N].

    They are max(floor, s exp(logits)), where the factor s makes the sum 1.
    """
    n = logits.shape[0]
    weights = jnp.exp(logits - logits.max())
    ascending = jnp.sort(weights)
    rest = jnp.cumsum(ascending[::-1])[::-1]
    factors = (1 - floor * jnp.arange(n)) / rest  # s, if the m smallest are at the floor
    count = (ascending * factors <= floor).sum()
    return jnp.maximum(floor, weights * factors[jnp.minimum(count, n - 1)])


def among(available: jax.Array | None, law: jax.Array) -> jax.Array:
    """Return probabilities [N] restricted to the available clients, with sum 1; zeros if no client is available."""
    law = law if available is None else jnp.where(available, law, 0.0)
    return law / jnp.where(law.sum() > 0, law.sum(), 1.0)


def draw(key: jax.Array, law: jax.Array, importance: jax.Array, k: int) -> Selection:
    """Draw k clients independently, with weights r p / (k q) for r draws; in expectation the weights sum to 1.

    `law` is q, float32 [N], all zero if no client is available; `importance` is p, float32 [N]. The key is consumed.
    """
    ids = sampling.with_replacement(key, law, k)
    mask = sampling.first_occurrence(ids) & (law[ids] > 0)
    ratio = importance[ids] / jnp.where(mask, law[ids], 1.0)
    return Selection(ids, jnp.where(mask, sampling.draws(ids) * ratio / k, 0.0), mask)


def gradients(outcome: Outcome) -> Any:
    """Return minus the mean gradient of each client along its local path, a pytree with leading axis [K]."""
    divisor = jnp.where(outcome.path_lengths > 0, outcome.path_lengths, 1.0)  # 0: no report
    return jax.tree.map(lambda leaf: leaf / divisor.reshape(-1, *[1] * (leaf.ndim - 1)), outcome.updates)


def lengths(vectors: Any) -> jax.Array:
    """Return the Euclidean norm over a pytree with leading axis [K], float32 [K]."""
    return jnp.sqrt(squared_norms(vectors))


def squared_norms(updates) -> jax.Array:
    """Return the squared Euclidean norm of each update, float32 [places], from a pytree with leaves [places, ...]."""
    parts = [jnp.square(leaf).reshape(leaf.shape[0], -1).sum(axis=1) for leaf in jax.tree.leaves(updates)]
    return jnp.stack(parts).sum(axis=0)
