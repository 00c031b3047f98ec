"""K-Vib: independent sampling with probabilities learned from the cohort's own updates (Zeng et al. 2025).

The server keeps a sum of squared feedback for each client, where the feedback is the norm of the client's weighted
update. Each client is selected independently, with a probability that grows with its sum. A share theta of the
probability is uniform. Weights by inverse probability keep the aggregated update unbiased.

    symbol       here                   shape    meaning
    lambda_i     now.env.importance     [N]      n_i / sum n
    pi_t(i)      sqrt(squares)          [places] lambda_i ||w_i - w||, the feedback of client i in round t
    omega_i      State.feedback         [N]      sum over the rounds with client i of pi_t(i)^2 / p~_i
    theta        share                  scalar   uniform share, (N / (T K))^(1/3) for T rounds, at most 1
    G            sqrt(State.bound)      scalar   bound of the feedback
    gamma        G^2 N / (theta K)      scalar   regularization of the sums
    p_i          `capped_proportional`  [N]      min(1, c a_i) with sum K, for a_i = sqrt(omega_i + gamma)
    p~_i         `probabilities`        [N]      (1 - theta) p_i + theta K / N: probability of client i

The probabilities p minimize sum (omega_i + gamma) / p_i: the estimated variance of all rounds so far, plus the
regularization. The first round is uniform.

Information bought: none. The server reads single updates (no secure aggregation).

Differs from the paper:
* G is not known in advance. By default it is the largest feedback in the first round with a report.
* law="linear" sets a_i = omega_i + gamma, as the authors' code does; its commands set G^2 = 0.1, that is bound=0.316.
  The solver of that code also gives the smallest capped client a probability above 1; here it is 1.
* The places of a cohort are limited (`sampling.independent`).
* A lost or nonfinite report leaves the sum of its client unchanged, as does one whose pi^2 exceeds 1e30.
* With unavailable clients, N counts the available clients in p and p~.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Positive, PositiveShare
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy, independent_selection
from fedjax_sel.strategies.osmd import squared_norms

_LARGEST = 1e30  # of pi^2; larger ones overflow float32 when divided by a probability


class State(NamedTuple):
    """The sums of feedback that K-Vib learns, and their bound."""

    bound: jax.Array  # G^2, float32 []; 0 before the first report
    feedback: jax.Array  # omega, float32 [N]


def kvib(
    *, theta: PositiveShare | None = None, bound: Positive | None = None, law: Literal["root", "linear"] = "root"
) -> Strategy:
    """Make K-Vib.

    Args:
        theta: uniform share of the probabilities, in (0, 1]. None: (N / (T K))^(1/3), at most 1.
        bound: bound G of the feedback, above 0. None: the largest feedback in the first round with a report.
        law: `root`: a = sqrt(omega + gamma), which minimizes the variance; `linear`: a = omega + gamma, as in the
            authors' code.
    """

    def init(key, now: Now) -> State:
        return State(jnp.float32((bound or 0) ** 2), jnp.zeros((now.env.num_clients,), jnp.float32))

    def inclusion(state: State, now: Now) -> jax.Array:
        n, k = now.env.num_clients, now.env.num_selected
        share = min(1.0, (n / (now.env.num_rounds * k)) ** (1 / 3)) if theta is None else theta
        return probabilities(state.feedback, state.bound, jnp.float32(share), k, law, now.available)

    def select(key, state: State, now: Now) -> Selection:
        env = now.env
        num_places = sampling.independent_places(env.num_clients, env.num_selected)
        return independent_selection(key, inclusion(state, now), env.importance, num_places, now.available)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        ids = selection.ids
        squares = squared_norms(outcome.updates) * now.env.importance[ids] ** 2  # pi_t(i)^2
        arrived = outcome.reported & outcome.finite & (squares < _LARGEST)
        squares = jnp.where(arrived, squares, 0.0)
        chance = jnp.where(arrived, inclusion(state, now)[ids], 1.0)
        return State(
            bound=jnp.where(state.bound > 0, state.bound, squares.max()),
            feedback=state.feedback.at[ids].add(squares / chance),
        )

    return Strategy(
        "kvib", select, init=init, update=update, inclusion=inclusion, max_selected=sampling.independent_places
    )


def probabilities(
    feedback: jax.Array, bound: jax.Array, theta: jax.Array, k: int, law: str, available: jax.Array | None
) -> jax.Array:
    """Return p~, float32 [N], from the sums of squared feedback [N], G^2 and theta; 0 for unavailable clients."""
    n = feedback.shape[0]
    reachable = jnp.ones((n,), bool) if available is None else available
    regularized = feedback + bound * (n / k) / theta  # omega_i + gamma
    a = jnp.sqrt(regularized) if law == "root" else regularized
    a = jnp.where(reachable, jnp.where(bound > 0, a, 1.0), 0.0)
    uniform = jnp.minimum(1.0, k / jnp.maximum(reachable.sum(), 1))
    return jnp.where(reachable, (1 - theta) * sampling.capped_proportional(a, k) + theta * uniform, 0.0)
