"""E3CS: clients that report reliably, with a fairness floor (Huang et al., IEEE Internet of Things Journal 2022).

Selected clients may fail to report. An adversarial bandit (Exp3 with several draws) learns which clients report. Each
client keeps a minimum probability sigma_t, the fairness quota.

    symbol    here                       shape    meaning
    N, k                                          number of clients (the paper's K), and of selected clients
    sigma_t   quota * k / N              scalar   fairness quota of round t: smallest probability
    w_i       exp(State.log_weights[i])  scalar   exponential weight, divided by the largest one
    alpha_t   cap                        scalar   cap on the weights, with which no probability exceeds 1
    S_t       p_i >= _CERTAIN            [N]      clients whose weight exceeds alpha_t, so that p_i = 1
    p_i       allocation                 [N]      allocated probability; the sum over all clients is k
    x_i       outcome.reported           [k]      1 if the report of a selected client arrived, else 0
    eta       `learning_rate`                     learning rate of the weights

ProbAlloc, with w'_i = min(w_i, alpha_t):

    p_i = sigma_t + (k - N sigma_t) w'_i / sum_j w'_j

If no weight exceeds the cap, w' = w. Otherwise alpha_t solves p_i = 1 for the clients in S_t. With the number of free
places q = (k - N sigma_t) / (1 - sigma_t) and the m largest weights capped, alpha_t = (sum of the others) / (q - m).
Then p_i = sigma_t + (1 - sigma_t) w'_i / alpha_t.

Update, with the unbiased estimate xhat_i = x_i / p_i for selected clients and 0 for others:

    w_i <- w_i exp((k - N sigma_t) eta xhat_i / N) if i is not in S_t, else w_i

Without lost reports, every selected client succeeds, and the weights follow the draws. With --deadline, slow clients
fail. With --report-failure-rate, all clients fail equally often.

Information bought: none. Whether a report arrives is known without a request.

Differs from the paper:
* draw="sequential" is the paper's multinomial draw without replacement: clients are drawn one after another with
  probabilities in proportion to p_i. Client i is then selected with a probability that differs from p_i. For k = 2
  and p = (1, 1/2, 1/2), client 0 is selected with probability 5/6, not 1. draw="systematic" selects each client with
  probability p_i, on which the unbiasedness of xhat_i rests. It allows --aggregation unbiased if every round has a
  quota; without one, p_i can become 0 for good. A public port draws sequentially; it also updates the weights of
  clients that were not selected, and cuts p_i at 1 without a cap on w.
* Unavailable clients get no probability: N counts the available clients, and k is at most N. If at most k clients are
  available, all have probability 1 and no weight changes. The paper assumes that all clients can be selected.
* In asynchronous rounds, p_i is that of the round in which a report arrives: xhat_i is then approximate.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.core.plugins import Positive, Share
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy

_SMALLEST = 1e-30  # of a probability that a division sees
_CERTAIN = 1 - 1e-6  # from here on, a probability is 1 but for rounding


class State(NamedTuple):
    """The bandit's weights."""

    log_weights: jax.Array  # log w_i minus the largest one, float32 [N]


def e3cs(
    *,
    quota: Share = 0.5,
    quota_start: Share = 0.0,
    learning_rate: Positive = 0.5,
    draw: Literal["sequential", "systematic"] = "sequential",
) -> Strategy:
    """Make E3CS.

    Args:
        quota: fairness quota as a fraction of k / N, from 0 (no floor) to 1 (uniform selection).
        quota_start: fraction of all rounds before the quota starts; it is 0 until then. quota=1,quota_start=0.25 is
            the paper's E3CS-inc.
        learning_rate: learning rate eta of the weights, above 0.
        draw: `sequential` draws in proportion to the probabilities, `systematic` with exactly these probabilities.
    """
    if quota_start and not quota:
        raise UserError(f"e3cs: quota_start={quota_start} has no effect with quota=0; leave one out")

    def init(key, now: Now) -> State:
        return State(jnp.zeros((now.env.num_clients,), jnp.float32))

    def fraction(now: Now) -> jax.Array:
        return jnp.where(now.round < quota_start * now.env.num_rounds, 0.0, quota)

    def probabilities(state: State, now: Now) -> jax.Array:
        return allocation(state, now, fraction(now))[0]

    def select(key, state: State, now: Now) -> Selection:
        chance, k = probabilities(state, now), now.env.num_selected
        if draw == "sequential":
            ids = sampling.without_replacement(key, chance, k, now.available)
        else:
            ids = sampling.systematic(key, chance, k)
        return Selection.of(ids, now.available)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        growth = allocation(state, now, fraction(now), learning_rate)[1]
        gains = jnp.where(outcome.reported, growth[selection.ids], 0.0)
        log_weights = state.log_weights.at[selection.ids].add(gains)
        return State(log_weights - log_weights.max())

    exact = probabilities if draw == "systematic" and quota > 0 and quota_start == 0 else None
    return Strategy("e3cs", select, init=init, update=update, inclusion=exact)


def allocation(
    state: State, now: Now, fraction: jax.Array | float, learning_rate: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Return p_i, and the growth of log w_i if client i is selected and reports; both are float32 [N].

    The quota is `fraction` of k / N.
    """
    here = jnp.ones(state.log_weights.shape, bool) if now.available is None else now.available
    n = jnp.maximum(here.sum(), 1).astype(jnp.float32)
    k = jnp.minimum(now.env.num_selected, n)
    probabilities = allocate(state.log_weights, here, k, fraction)
    gains = k * (1 - fraction) * learning_rate / (n * jnp.maximum(probabilities, _SMALLEST))
    return probabilities, jnp.where(here & (probabilities < _CERTAIN), gains, 0.0)


def allocate(log_weights: jax.Array, here: jax.Array, k: jax.Array | float, fraction: jax.Array | float) -> jax.Array:
    """Return the probabilities (ProbAlloc), float32 [N], with sum k and zero for unavailable clients.

    `here` marks the available clients, bool [N]; k is at most their number. The quota is `fraction` of k / N.
    """
    total = jnp.maximum(here.sum(), 1)
    sigma = fraction * k / total
    places = k * (1 - fraction) / jnp.maximum(1 - sigma, _SMALLEST)  # q
    logits = jnp.where(here, log_weights, jnp.finfo(jnp.float32).min)
    descending = -jnp.sort(-logits)
    # Sums of the weights from the m-th on, relative to the m-th: a sum of logarithms of any size keeps its digits.
    _, sums = lax.associative_scan(_add, (descending, jnp.ones_like(descending)), reverse=True)
    m = jnp.arange(logits.shape[0])
    last = jnp.maximum((places > m).sum() - 1, 0)  # the largest possible number; rounding may reject all others
    count = jnp.argmax((sums >= places - m) | (m == last))
    weights = jnp.exp(logits - descending[count])
    cap = sums[count] / jnp.maximum(places - count, 0.0)
    probabilities = sigma + (1 - sigma) * jnp.minimum(weights / cap, 1.0)
    return jnp.where(here, probabilities, 0.0)


def _add(small: tuple[jax.Array, jax.Array], large: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Add two sums of weights, each a logarithm of the largest weight and the sum relative to it."""
    return large[0], large[1] + small[1] * jnp.exp(small[0] - large[0])
