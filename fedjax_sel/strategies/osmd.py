"""OSMD: sampling probabilities learned from the cohorts' updates (Zhao, Wang, Liu, Zhang, Zhou, Chen, Kolar, JMLR).

K independent draws with probabilities q, weighted by p_i / (K q_i), are unbiased for any q. Their variance is smallest
for q_i proportional to p_i |g_i|, but the server sees g_i of the cohort only. Online stochastic mirror descent (OSMD)
moves q after every round. The best learning rate is unknown, so E experts with rates that double run side by side, and
q is their mixture with weights theta that follow the experts' losses (adaptive OSMD).

    symbol   here                  shape    meaning
    p_i      State.importance      [N]      data share n_i / n
    g_i      gradients(outcome)    [P]      mean gradient along the local path: minus the update over rate x steps
    a_i      (p_i |g_i|)^2         scalar   what the probability of client i should follow
    a        State.bound^2         scalar   bound of a_i; here the largest a_i that was reported so far
    q_e      State.experts         [E, N]   probabilities of expert e, each at least alpha / N
    theta_e  State.trust           [E]      weight of expert e; at first (1 + 1/E) / (e (e + 1))
    q        State.law             [N]      sum_e theta_e q_e, among the available clients
    r_i      number of draws       scalar   draws of client i in this round
    eta_e    State.rates           scalar   2^(e-1) K^2 alpha^3 / (N^3 a) sqrt(log N / (2 T)); State has the last factor
    gamma    State.hedge           scalar   alpha / N sqrt(8 K / (T a)); State.hedge is gamma sqrt(a)

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
* T is the number of rounds of the run. The variants with a doubling trick and without replacement are left out.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.base import Env, Outcome, Selection, Static, Strategy


class State(NamedTuple):
    """Experts, and the law of this round's draws."""

    num_selected: Static  # K
    importance: jax.Array  # p, float32 [N]
    rates: jax.Array  # 2^(e-1) sqrt(log N / (2 T)), float32 [E]
    hedge: jax.Array  # alpha / N sqrt(8 K / T), float32 scalar
    experts: jax.Array  # q_e, float32 [E, N]
    trust: jax.Array  # theta, float32 [E]
    bound: jax.Array  # sqrt(a): the largest p_i |g_i| so far, float32 scalar
    law: jax.Array  # q, float32 [N]; 0 for unavailable clients


def osmd(*, alpha: float = 0.4) -> Strategy:
    """Make adaptive OSMD.

    Args:
        alpha: smallest probability of a client, in units of 1 / N, above 0 and below 1.
    """
    if not 0 < alpha < 1:
        raise UserError(f"osmd: alpha={alpha} is not between 0 and 1; give a number such as 0.4")

    def init(key: jax.Array, env: Env) -> State:
        del key
        n, k, rounds = env.num_clients, env.num_selected, env.num_rounds
        log_n = math.log(max(n, 2))
        num_experts = math.ceil(math.log2(1 + 4 * (rounds - 1) * math.log(n / alpha) / log_n) / 2) + 1
        e = jnp.arange(1, num_experts + 1, dtype=jnp.float32)
        uniform = jnp.full((n,), 1 / n, jnp.float32)
        return State(
            Static(k), env.importance, 2 ** (e - 1) * math.sqrt(log_n / (2 * rounds)),
            jnp.float32(alpha / n * math.sqrt(8 * k / rounds)), jnp.tile(uniform, (num_experts, 1)),
            (1 + 1 / num_experts) / (e * (e + 1)), jnp.float32(0), uniform,
        )  # fmt: skip

    def observe(state: State, info, round, available) -> State:
        del info, round
        law = jnp.matmul(state.trust, state.experts, precision=lax.Precision.HIGHEST)
        return state._replace(law=among(available, law))

    def select(key, state: State, info, round, available) -> Selection:
        del info, round
        return draw(key, state.law, among(available, state.importance), state.num_selected.value)

    def update(state: State, info, round, selection: Selection, outcome: Outcome) -> State:
        del info, round
        k, n = state.num_selected.value, state.importance.shape[0]
        ids = selection.ids
        scaled = state.importance[ids] * lengths(gradients(outcome))  # sqrt(a_i)
        taken = selection.mask & outcome.finite & jnp.isfinite(scaled)
        bound = jnp.maximum(state.bound, jnp.where(taken, scaled, 0.0).max())
        # r_i a_i / a
        feedback = jnp.where(taken, _draws(ids) * (scaled / jnp.where(bound > 0, bound, 1.0)) ** 2, 0.0)
        own, law = state.experts[:, ids], jnp.where(taken, state.law[ids], 1.0)
        losses = state.hedge * bound * (feedback / (k**2 * own * law)).sum(axis=1)  # gamma l_e
        # The powers of alpha / N in eta_e make each factor at most 1.
        floor = alpha / n
        steps = state.rates[:, None] * feedback * (floor / own) ** 2 * (floor / law)
        experts = jax.vmap(projected, (0, None))(jnp.log(state.experts).at[:, ids].add(steps), floor)
        return state._replace(experts=experts, trust=jax.nn.softmax(jnp.log(state.trust) - losses), bound=bound)

    def inclusion(state: State, info, round, available) -> jax.Array:
        del info, round, available
        return state.num_selected.value * state.law

    return Strategy("osmd", init, select, with_replacement=True, update=update, observe=observe, inclusion=inclusion)


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
    return Selection(ids, jnp.where(mask, _draws(ids) * ratio / k, 0.0), mask)


def _draws(ids: jax.Array) -> jax.Array:
    """Return the number of draws of each place's client, int32 [K]."""
    return (ids[:, None] == ids).sum(axis=1)


def gradients(outcome: Outcome) -> Any:
    """Return minus the mean gradient of each client along its local path, a pytree with leading axis [K].

    The server may not provide path lengths; the updates then stand in for the gradients.
    """
    if outcome.path_lengths is None:
        return outcome.updates
    divisor = jnp.where(outcome.path_lengths > 0, outcome.path_lengths, 1.0)  # 0: no report
    return jax.tree.map(lambda leaf: leaf / divisor.reshape(-1, *[1] * (leaf.ndim - 1)), outcome.updates)


def lengths(vectors: Any) -> jax.Array:
    """Return the Euclidean norm over a pytree with leading axis [K], float32 [K]."""
    squares = [jnp.square(leaf.astype(jnp.float32)).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(vectors)]
    return jnp.sqrt(jnp.sum(jnp.stack([square.sum(axis=1) for square in squares]), axis=0))
