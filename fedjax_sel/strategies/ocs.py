"""OCS, optimal client sampling: probabilities proportional to the update's norm (Chen, Horvath, Richtarik 2022).

The candidates train and report the norm of their weighted update. Each then sends its update with its own probability,
independently of the others. The probabilities minimize the variance of the aggregated update for K clients on average.

    symbol     here                           shape    meaning
    n          `num_candidates`                        number of clients that train, drawn uniformly
    m          now.env.num_selected           scalar   number of clients that send their update on average: K
    lambda_i   now.env.importance             [N]      n_i / sum n, relative to the candidates
    ||U_i||    now.info.update_norm.value[i]  scalar   Euclidean norm of the update of one local training
    u_i        importance * norms             [N]      lambda_i ||U_i||
    p_i        `probabilities`                [N]      probability of client i
    j_max      `rescalings`                            rescalings of AOCS, the approximation for secure aggregation

OCS sets p_i = min(1, c u_i) with the factor c for which the sum is m. AOCS starts from p_i = min(1, m u_i / sum u).
Then j_max times, it scales the probabilities below 1 so that the sum is m, and caps them at 1. With enough rescalings,
both are equal. The new model is w + sum lambda_i / p_i U_i over the clients that send: in expectation the sum lambda_i
U_i over all candidates.

Information bought: the norm of each candidate per round: n local trainings, n models down, n floats up. Only the
selected clients send their models, and they do not train again.

Differs from the paper:
* The server computes the probabilities from the norms. The paper's clients compute them from sums, for secure
  aggregation: another 2 floats up per client and rescaling, which are not billed.
* By default all clients are candidates. The authors' scripts draw n = 32 candidates, with m = 2 or 3.
* The places of a cohort are limited (`sampling.independent`).
* A client whose norm is not finite has probability 0, and one with a negative noisy norm (--privacy), too. If all norms
  are 0, no client is selected.
* Candidates are drawn from the available clients.
"""

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Count, CountOrZero
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Selection, Strategy, check_count, independent_selection
from fedjax_sel.strategies.facts import ALL, CANDIDATES, Request, always


def ocs(*, num_candidates: Count | None = None, rescalings: CountOrZero | None = 4) -> Strategy:
    """Make optimal client sampling.

    Args:
        num_candidates: number n of clients that train and report their norm, from K to N. None: all.
        rescalings: rescalings j_max of AOCS, at least 0. None: until the sum is K, which is OCS.
    """

    def candidates(key, state, now: Now) -> jax.Array:
        n, k = now.env.num_clients, now.env.num_selected
        assert num_candidates is not None
        check_count("ocs: num_candidates", num_candidates, now.env, least=k)
        return sampling.uniform_without_replacement(key, n, num_candidates, now.available)

    def probabilities(state, now: Now) -> jax.Array:
        norms = now.info.update_norm.value
        norms = jnp.where(_candidates(now) & jnp.isfinite(norms), norms, 0)
        if "update_norm" in now.env.noise:
            norms = jnp.maximum(norms, 0)
        return sampling.capped_proportional(now.env.importance * norms, now.env.num_selected, rescalings)

    def select(key, state, now: Now) -> Selection:
        env, chance = now.env, probabilities(state, now)
        num_places = sampling.independent_places(env.num_clients, env.num_selected)
        return independent_selection(key, chance, env.importance, num_places, _candidates(now))

    return Strategy(
        "ocs", select, (Request("update_norm", ALL if num_candidates is None else CANDIDATES, always()),),
        candidates=None if num_candidates is None else candidates, inclusion=probabilities,
        max_selected=sampling.independent_places,
    )  # fmt: skip


def _candidates(now: Now) -> jax.Array:
    """Return the mask of clients that reported their norm in this round, bool [N]."""
    answered = now.info.update_norm.age == 0
    return answered if now.available is None else answered & now.available
