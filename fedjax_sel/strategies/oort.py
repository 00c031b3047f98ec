"""Oort: clients with a high training loss, plus a decaying fraction of exploration (Lai et al., OSDI 2021).

The server keeps each client's statistical utility from its last participation. Most of a cohort is drawn from clients
with a score near the top (exploitation). The rest is drawn from clients never selected (exploration).

    symbol    here                    shape    meaning
    U_i       State.utilities         [N]      n_i sqrt(mean of squared losses over the samples of the first local pass)
    L_i       State.last              [N]      round of i's last participation, from 1
    t         round + 1               scalar   round number, from 1
    U_cap     `cap`                            quantile of the utilities of explored clients, at which they are clipped
    U_min, U_max                      scalar   smallest and largest utility of the explored clients
    s_i       scores                  [N]      (min(U_i, U_cap) - U_min) / (U_max - U_min) + sqrt(0.1 ln t / L_i)
    eps       State.exploration       scalar   fraction of exploration: max(eps_min, eps decay) each round
    T / t_i   State.slowness          [N]      system factor (T / t_i)^alpha if t_i > T, the preferred duration; else 1

Exploitation: floor((1 - eps) K) clients, drawn with weights s_i from the clients with s_i >= `cut` x threshold. The
threshold is the floor((1 - eps) K)-th largest score. Exploration: the remaining m clients, drawn with weights n_i from
the `explore_pool` x m largest unexplored clients. Any places still empty are filled uniformly from the other clients.

Information bought: one float from each selected client per round (its loss over the first local pass).

Differs from the paper and its code:
* preset="code" has the numbers of the public code. preset="paper" has the paper's: decay 0.98, cap 0.95, cut 0.95, and
  exclusion of clients selected more than 10 times. At most 30% of all clients, the most selected ones, are excluded,
  as in the code; they are still drawn if too few other clients are available.
* It does not use the simulated clock (`--timing`). system="sizes" assumes that a client's duration is proportional to
  its examples, and that T is a fixed quantile of the durations, without the pacer that adapts T. system="none" uses
  statistical utility only.
* L_i is a round index, as in the code, so the bonus sqrt(0.1 ln t / L_i) is larger for older participations.
* U_min and U_max are over explored, available clients. The code also includes the sizes of unexplored clients, and uses
  0.999 U_min. U_max - U_min is at least 1e-4, as in the code.
* The cut is relative to the score of the last exploited place. The code reads the next place, which is out of range if
  all explored clients are exploited.
* Exploration ends permanently once every client has been explored, as in the code. With K = 1 and eps > 0, exploitation
  starts only then.
* U_i uses n_i samples; the code uses min(n_i, steps x batch). The code draws its first cohort uniformly.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.base import SELECTED, Env, Information, Outcome, Request, Selection, Static, Strategy, always

_MAX_EXCLUDED = 0.3  # largest fraction of clients that `max_participations` excludes
_SMALLEST_RANGE = 1e-4  # lower bound of U_max - U_min


class Numbers(NamedTuple):
    """Numbers in which the public code and the paper differ. Static."""

    exploration_decay: float  # factor of eps per round
    cap: float  # quantile at which utilities are clipped
    cut: float  # fraction of the last exploited score
    max_participations: int  # 0: no limit


_TABLE: dict[str, Numbers] = {
    "code": Numbers(exploration_decay=0.95, cap=0.98, cut=0.7, max_participations=0),
    "paper": Numbers(exploration_decay=0.98, cap=0.95, cut=0.95, max_participations=10),
}
_ALPHA, _QUANTILE = 2.0, 0.5  # defaults of the system factor


class State(NamedTuple):
    """Participation history and utilities of the clients."""

    num_selected: Static  # K
    sizes: jax.Array  # n_i, float32 [N]
    slowness: jax.Array  # system factor, in (0, 1], float32 [N]
    utilities: jax.Array  # U_i, initially 0, float32 [N]
    last: jax.Array  # L_i, initially 0, int32 [N]
    count: jax.Array  # number of participations, int32 [N]
    exploration: jax.Array  # eps of the previous round, float32 scalar
    least: jax.Array  # eps_min; 0 once every client has been explored, float32 scalar


def oort(
    *,
    preset: Literal["code", "paper"] = "code",
    exploration: float = 0.9,
    exploration_decay: float | None = None,
    exploration_min: float = 0.2,
    cap: float | None = None,
    cut: float | None = None,
    explore_pool: float = 5.0,
    max_participations: int | None = None,
    system: Literal["none", "sizes"] = "none",
    alpha: float = _ALPHA,
    preferred_duration_quantile: float = _QUANTILE,
) -> Strategy:
    """Make Oort.

    Args:
        preset: source of the parameters that are None: the public `code` or the `paper`.
        exploration: eps before the first round, in [0, 1].
        exploration_decay: factor of eps per round, in [0, 1].
        exploration_min: eps_min, in [0, 1].
        cap: quantile at which utilities are clipped, in [0, 1].
        cut: lowest exploited score as a fraction of the threshold, in [0, 1].
        explore_pool: size of the exploration pool as a multiple of the explored places; at least 1.
        max_participations: number of selections above which a client is excluded; 0: no limit.
        system: system factor: larger clients are slower (`sizes`), or all are equally fast (`none`).
        alpha: exponent of the system factor, at least 0.
        preferred_duration_quantile: T as a quantile of the durations, in [0, 1].
    """
    quantile = preferred_duration_quantile
    for name, value, usual in (("alpha", alpha, _ALPHA), ("preferred_duration_quantile", quantile, _QUANTILE)):
        if value != usual and system == "none":
            raise UserError(f"oort: {name}={value} has no effect with system=none; set system=sizes")
    given = (exploration_decay, cap, cut, max_participations)
    decay, cap, cut, limit = (value if value is not None else default for value, default in zip(given, _TABLE[preset]))
    fractions = {
        "exploration": exploration, "exploration_decay": decay, "exploration_min": exploration_min,
        "cap": cap, "cut": cut, "preferred_duration_quantile": quantile,
    }  # fmt: skip
    for name, value in fractions.items():
        if not 0 <= value <= 1:
            raise UserError(f"oort: {name}={value} is outside [0, 1]; leave it out for the default")
    for name, value, low in (("explore_pool", explore_pool, 1), ("max_participations", limit, 0), ("alpha", alpha, 0)):
        if not low <= value < float("inf"):
            raise UserError(f"oort: {name}={value} is below {low} or not finite; leave it out for the default")

    def init(key: jax.Array, env: Env) -> State:
        del key
        n = env.num_clients
        sizes = env.sizes.astype(jnp.float32)
        preferred = sampling.value_at(sizes, min(int(n * quantile + 1e-9), n - 1))
        slowness = jnp.minimum(preferred / sizes, 1.0) ** alpha if system == "sizes" else jnp.ones_like(sizes)
        zeros = jnp.zeros((n,), jnp.int32)
        return State(
            Static(env.num_selected), sizes, slowness, jnp.zeros_like(sizes), zeros, zeros,
            jnp.float32(exploration), jnp.float32(exploration_min),
        )  # fmt: skip

    def current(state: State) -> jax.Array:  # this round's eps
        return jnp.maximum(state.exploration * decay, state.least)

    def select(key, state: State, info, round, available) -> Selection:
        del info
        k, n = state.num_selected.value, state.sizes.shape[0]
        key_out, key_exploit, key_pool, key_explore, key_rest = jax.random.split(key, 5)
        reachable = jnp.ones((n,), bool) if available is None else available
        eligible = reachable
        if limit > 0:
            most = sampling.among_largest(key_out, state.count.astype(jnp.float32), int(_MAX_EXCLUDED * n + 1e-9))
            eligible = reachable & ~(most & (state.count > limit))
        explored_before, unexplored = eligible & (state.count > 0), reachable & (state.count == 0)

        # 1e-4: rounding must not reduce an integer product to the integer below.
        num_exploited = jnp.floor(k * (1 - current(state)) + 1e-4).astype(jnp.int32)
        num_exploited = jnp.minimum(num_exploited, explored_before.sum())
        scores = jnp.where(explored_before, _scores(state, explored_before, round + 1, cap) * state.slowness, 0.0)
        threshold = -sampling.value_at(-scores, jnp.maximum(num_exploited - 1, 0))
        near_the_top = explored_before & (scores >= cut * threshold)
        exploited = sampling.without_replacement(key_exploit, jnp.where(near_the_top, scores, 0.0), k, near_the_top)

        num_explored = jnp.minimum(unexplored.sum(), k - num_exploited)
        rewards = state.sizes * state.slowness
        pool_size = jnp.floor(explore_pool * num_explored + 1e-4).astype(jnp.int32)
        pool = unexplored & sampling.among_largest(key_pool, jnp.where(unexplored, rewards, -jnp.inf), pool_size)
        explored = sampling.without_replacement(key_explore, jnp.where(pool, rewards, 0.0), k, pool)

        tiers = k + jnp.where(eligible, 0, jnp.where(reachable, 1, 2))
        position = jnp.arange(k)
        for drawn, first, count in ((explored, num_exploited, num_explored), (exploited, 0, num_exploited)):
            tiers = tiers.at[jnp.where(position < count, drawn, n)].set(first + position, mode="drop")
        ids = sampling.first((tiers.astype(jnp.uint32), *sampling.random_words(key_rest, n)), k)
        return Selection(ids, None, reachable[ids])

    def update(state: State, info: Information, round, selection: Selection, outcome: Outcome) -> State:
        del outcome
        n = state.sizes.shape[0]
        fact = info.training_loss
        answered = selection.mask & (fact.age[selection.ids] == 0)
        rows = jnp.where(answered, selection.ids, n)
        utilities = (state.sizes * fact.value)[selection.ids]
        all_explored = (state.count > 0).all()  # before this round's participations
        return state._replace(
            utilities=state.utilities.at[rows].set(utilities, mode="drop"),
            last=state.last.at[rows].set(round + 1, mode="drop"),
            count=state.count.at[rows].add(1, mode="drop"),
            exploration=jnp.where(all_explored, 0.0, current(state)),
            least=jnp.where(all_explored, 0.0, state.least),
        )

    request = Request("training_loss", SELECTED, always(), (("statistic", "rms-first-pass"),))
    return Strategy(name="oort", init=init, select=select, requests=(request,), update=update)


def _scores(state: State, explored: jax.Array, t: jax.Array, cap: float) -> jax.Array:
    """Return s_i without the system factor, [N]; undefined for unexplored clients."""
    n = explored.shape[0]
    utilities = jnp.where(explored, state.utilities, jnp.inf)
    # The quantile's index is looked up by the number of explored clients, because a float32 product is not exact.
    counts = np.arange(n + 1)
    places = np.minimum(np.floor(counts * cap + 1e-9), np.maximum(counts - 1, 0)).astype(np.int32)
    clipped = jnp.minimum(state.utilities, sampling.value_at(utilities, jnp.asarray(places)[explored.sum()]))
    least = utilities.min()
    spread = jnp.maximum(jnp.max(jnp.where(explored, state.utilities, -jnp.inf)) - least, _SMALLEST_RANGE)
    bonus = jnp.sqrt(0.1 * jnp.log(jnp.asarray(t, jnp.float32)) / jnp.maximum(state.last, 1))
    return (clipped - least) / spread + bonus
