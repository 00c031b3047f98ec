"""FedCS: the candidates that finish before a deadline, at most K (Nishio, Yonetani, ICC 2019).

Each round draws random candidates, whose durations are known from the start. The cohort is the largest set of
candidates that the deadline allows, at most K.

    symbol     here                   shape    meaning
    d          count(env)             scalar   number of candidates, the fraction C of the N clients, rounded up
    K'         candidates             [d]      the candidates, drawn uniformly
    total_k    info.seconds.value[k]  scalar   k's download, training and upload of a model
    T_round    `round_seconds`                 deadline of a round
    S          Selection.ids          [K]      the selected candidates, the fastest first; other places are empty

Uploads are parallel in the simulated clock, so a round lasts as long as its slowest client. The deadline then bounds
each client alone: total_k < T_round. The largest set is all such candidates, or the K fastest of them.

Information bought: the duration of all clients before the first round: N local trainings, N models down, N floats up.

Differs from the paper:
* The paper's clients upload one after another, each while the next ones still train. Its greedy algorithm adds the
  client that extends this schedule least. Here uploads are parallel and the order does not matter. The durations
  cannot be split into training and upload, so there is no sequential variant.
* The model's distribution counts per client. In the paper all clients wait for the slowest download.
* At most K clients are selected; the paper has no limit.
* A paper's client states its resources in each round, at no cost. Here a client trains to measure its duration, so it
  does that once, and later changes of speed are not seen. A client that did not answer is ranked at the median of the
  known durations.
* The paper asks a tenth of 1,000 clients. The default is the larger of N / 10 and 2 K, and at most N.
* Candidates are drawn from the available clients. Ties are broken at random.
"""

import math

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Positive, PositiveShare
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Env, Now, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, NEVER, Request, at_start
from fedjax_sel.strategies.oort import known_or_median

_FRACTION = 0.1  # C in the paper


def fedcs(*, round_seconds: Positive = 180.0, fraction: PositiveShare | None = None) -> Strategy:
    """Make FedCS.

    Args:
        round_seconds: deadline T_round of a round, in seconds, above 0.
        fraction: candidates as a fraction C of all clients, at most 1; at least K clients. None: 0.1, or more for 2 K
            candidates.
    """

    def count(env: Env) -> int:
        """Return the number of candidates."""
        n, k = env.num_clients, env.num_selected
        # 1e-9: rounding must not raise an integer product to the integer above.
        d = math.ceil(n * (_FRACTION if fraction is None else fraction) - 1e-9)
        if fraction is not None and d < k:
            raise UserError(
                f"fedcs: fraction={fraction} of the {n} clients are {d} candidates, below the cohort size {k}; give at "
                f"least {k / n:.4g}, or leave it out"
            )
        return d if fraction is not None else min(max(d, 2 * k), n)

    def select(key, state, now: Now) -> Selection:
        key_candidates, key_ties = jax.random.split(key)
        n, k, available = now.env.num_clients, now.env.num_selected, now.available
        candidates = sampling.uniform_without_replacement(key_candidates, n, count(now.env), available)
        value, age = now.info.seconds
        eligible = jnp.zeros(age.shape, bool).at[candidates].set(True)
        eligible &= (age == NEVER) | (value < round_seconds)
        if available is not None:
            eligible &= available
        ids = sampling.top_k(key_ties, jnp.where(eligible, -known_or_median(value, age), -jnp.inf), k)
        return Selection(ids, None, eligible[ids])

    return Strategy("fedcs", select, (Request("seconds", ALL, at_start()),))
