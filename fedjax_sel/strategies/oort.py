"""Oort: clients whose training samples have a high loss, with a share of exploration (Lai et al., OSDI 2021).

A client that took part is known by the utility it had then. Most of a cohort is drawn from the clients whose score is
near the top (exploitation), the rest from those never tried (exploration); the share of exploration decays.

    symbol    here                    shape    meaning
    U_i       State.utilities         [N]      n_i sqrt(mean of squared losses over the samples of the first local pass)
    L_i       State.last              [N]      round of i's last participation, from 1
    t         round + 1               scalar   this round
    U_cap     `cap`                            this quantile of the utilities of those tried; U_min, U_max likewise
    s_i       scores                  [N]      (min(U_i, U_cap) - U_min) / (U_max - U_min) + sqrt(0.1 ln t / L_i)
    eps       State.exploration       scalar   share of exploration: max(eps_min, eps decay) each round
    T / t_i   State.slowness          [N]      system factor (T / t_i)^alpha where t_i > T, the preferred duration

Exploitation: floor((1 - eps) K) of the clients with s_i >= `cut` times the score of the last that would be taken in
order of the score, drawn with weights s_i. Exploration: the rest of the places from the `explore_pool` times as many
largest clients never tried, with weights n_i. Places that are left go to anybody, uniformly.

Information bought: one float from each of the cohort a round (its loss over the first local pass).

Differs from the paper and its code:
* preset="code" has the numbers of the public code, "paper" those of the paper: decay 0.98, cap 0.95, cut 0.95, and
  clients are left out once they were selected more than 10 times. Of these at most 30% of all clients, the most
  selected ones, are left out, as in the code; they fill places that nobody else can.
* The simulator has no clock: system="sizes" takes a client's duration as proportional to its examples, and T as a fixed
  quantile of them. The pacer, which moves T, is left out. system="none" is the statistical part alone.
* L_i is the index of a round, as in the code: the bonus is larger the longer ago a client took part.
* U_min and U_max are over those tried and available; the code also counts the sizes of clients not yet tried, and
  takes 0.999 U_min. U_max - U_min is at least 1e-4, as there.
* The cut is relative to the score of the last exploited place; the code reads the place after it, out of range where
  all of the tried are exploited.
* Once nobody is left to be tried, exploration ends for good, as in the code. With K = 1 and eps > 0 only that starts
  exploitation.
* U_i counts n_i samples; the code counts min(n_i, steps x batch). The code draws its first cohort uniformly.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import partial_order, sampling
from fedjax_sel.strategies.base import SELECTED, Env, Information, Outcome, Request, Selection, Static, Strategy, always

_LEFT_OUT = 0.3  # at most this share of the clients is left out for having been selected often
_SMALLEST_RANGE = 1e-4  # of the utilities


class Numbers(NamedTuple):
    """What the public code and the paper disagree in. Static."""

    exploration_decay: float  # factor of eps a round
    cap: float  # quantile at which utilities are clipped
    cut: float  # share of the last exploited score
    max_participations: int  # 0: no limit


_TABLE: dict[str, Numbers] = {
    "code": Numbers(exploration_decay=0.95, cap=0.98, cut=0.7, max_participations=0),
    "paper": Numbers(exploration_decay=0.98, cap=0.95, cut=0.95, max_participations=10),
}


_ALPHA, _QUANTILE = 2.0, 0.5  # of the system factor


class State(NamedTuple):
    """What is known of the clients."""

    num_selected: Static  # K
    sizes: jax.Array  # n_i, float32 [N]
    slowness: jax.Array  # system factor, in (0, 1], float32 [N]
    utilities: jax.Array  # U_i, 0 at first, float32 [N]
    last: jax.Array  # L_i, 0 at first, int32 [N]
    count: jax.Array  # rounds in which the client took part, int32 [N]
    exploration: jax.Array  # eps of the round before, float32 scalar
    least: jax.Array  # eps_min; 0 once everybody was tried, float32 scalar


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
        preset: where numbers come from that are None here: the public `code` or the `paper`.
        exploration: eps before the first round, in [0, 1].
        exploration_decay: factor of eps a round, in [0, 1].
        exploration_min: eps_min, in [0, 1].
        cap: quantile at which utilities are clipped, in [0, 1].
        cut: share of the last exploited score from which clients may be drawn, in [0, 1].
        explore_pool: clients that may be explored, as a multiple of the places; at least 1.
        max_participations: clients selected more often are left out; 0: no limit.
        system: whether larger clients count as slower (`sizes`) or not (`none`).
        alpha: exponent of the system factor, at least 0.
        preferred_duration_quantile: T as a quantile of the durations, in [0, 1].

    Returns:
        The strategy.

    Raises:
        UserError: a parameter outside its range, or without effect.
    """
    for name, value, usual in (
        ("alpha", alpha, _ALPHA),
        ("preferred_duration_quantile", preferred_duration_quantile, _QUANTILE),
    ):
        if value != usual and system == "none":
            raise UserError(f"oort: {name}={value} has no effect with system=none; give system=sizes, too")
    chosen = (exploration_decay, cap, cut, max_participations)
    decay, cap, cut, limit = (mine if mine is not None else its for mine, its in zip(chosen, _TABLE[preset]))
    for name, value in (
        ("exploration", exploration),
        ("exploration_decay", decay),
        ("exploration_min", exploration_min),
        ("cap", cap),
        ("cut", cut),
        ("preferred_duration_quantile", preferred_duration_quantile),
    ):
        if not 0 <= value <= 1:
            raise UserError(f"oort: {name}={value} is outside [0, 1]; leave it out for the usual number")
    for name, value, low in (("explore_pool", explore_pool, 1), ("max_participations", limit, 0), ("alpha", alpha, 0)):
        if not low <= value < float("inf"):
            raise UserError(f"oort: {name}={value} must be a number from {low}; leave it out for the usual one")

    def init(key: jax.Array, env: Env) -> State:
        del key
        n = env.num_clients
        sizes = env.sizes.astype(jnp.float32)
        preferred = sampling.value_at(sizes, min(int(n * preferred_duration_quantile + 1e-9), n - 1))
        slowness = jnp.minimum(preferred / sizes, 1.0) ** alpha if system == "sizes" else jnp.ones_like(sizes)
        nobody = jnp.zeros((n,), jnp.int32)
        return State(
            Static(env.num_selected), sizes, slowness, jnp.zeros_like(sizes), nobody, nobody,
            jnp.float32(exploration), jnp.float32(exploration_min),
        )  # fmt: skip

    def current(state: State) -> jax.Array:
        """Return this round's eps."""
        return jnp.maximum(state.exploration * decay, state.least)

    def select(key, state: State, info, round, available) -> Selection:
        del info
        k, n = state.num_selected.value, state.sizes.shape[0]
        key_out, key_exploit, key_pool, key_explore, key_rest = jax.random.split(key, 5)
        reachable = jnp.ones((n,), bool) if available is None else available
        welcome = reachable
        if limit > 0:
            most = sampling.among_largest(key_out, state.count.astype(jnp.float32), int(_LEFT_OUT * n + 1e-9))
            welcome = reachable & ~(most & (state.count > limit))
        tried, untried = welcome & (state.count > 0), reachable & (state.count == 0)

        # 1e-4: the product must not fall below the integer that it is.
        num_exploited = jnp.floor(k * (1 - current(state)) + 1e-4).astype(jnp.int32)
        num_exploited = jnp.minimum(num_exploited, tried.sum())
        scores = jnp.where(tried, _scores(state, tried, round + 1, cap) * state.slowness, 0.0)
        marginal = -sampling.value_at(-scores, jnp.maximum(num_exploited - 1, 0))
        near_the_top = tried & (scores >= cut * marginal)
        exploited = sampling.without_replacement(key_exploit, jnp.where(near_the_top, scores, 0.0), k, near_the_top)

        num_explored = jnp.minimum(untried.sum(), k - num_exploited)
        rewards = state.sizes * state.slowness
        pool_size = jnp.floor(explore_pool * num_explored + 1e-4).astype(jnp.int32)
        pool = untried & sampling.among_largest(key_pool, jnp.where(untried, rewards, -jnp.inf), pool_size)
        explored = sampling.without_replacement(key_explore, jnp.where(pool, rewards, 0.0), k, pool)

        tiers = k + jnp.where(welcome, 0, jnp.where(reachable, 1, 2))
        position = jnp.arange(k)
        for drawn, first, count in ((explored, num_exploited, num_explored), (exploited, 0, num_exploited)):
            tiers = tiers.at[jnp.where(position < count, drawn, n)].set(first + position, mode="drop")
        words = (tiers.astype(jnp.uint32), *sampling.random_words(key_rest, n))
        ids = partial_order.first(words, k)
        return Selection(ids, None, reachable[ids])

    def update(state: State, info: Information, round, selection: Selection, outcome: Outcome) -> State:
        del outcome
        n = state.sizes.shape[0]
        fact = info.training_loss
        answered = selection.mask & (fact.age[selection.ids] == 0)
        rows = jnp.where(answered, selection.ids, n)
        utilities = (state.sizes * fact.value)[selection.ids]
        all_tried = (state.count > 0).all()  # when the cohort was selected
        return state._replace(
            utilities=state.utilities.at[rows].set(utilities, mode="drop"),
            last=state.last.at[rows].set(round + 1, mode="drop"),
            count=state.count.at[rows].add(1, mode="drop"),
            exploration=jnp.where(all_tried, 0.0, current(state)),
            least=jnp.where(all_tried, 0.0, state.least),
        )

    statistic = (("statistic", "rms-first-pass"),)
    return Strategy(
        name="oort",
        init=init,
        select=select,
        requests=(Request("training_loss", SELECTED, always(), statistic),),
        update=update,
    )


def _scores(state: State, tried: jax.Array, t: jax.Array, cap: float) -> jax.Array:
    """Return s_i without the system factor, [N]; meaningless for clients that were not tried."""
    n = tried.shape[0]
    known = jnp.where(tried, state.utilities, jnp.inf)
    # The quantile's place is a table over the number of those tried: exact where a float32 product is not.
    counts = np.arange(n + 1)
    places = np.minimum(np.floor(counts * cap + 1e-9), np.maximum(counts - 1, 0)).astype(np.int32)
    clipped = jnp.minimum(state.utilities, sampling.value_at(known, jnp.asarray(places)[tried.sum()]))
    least = known.min()
    spread = jnp.maximum(jnp.max(jnp.where(tried, state.utilities, -jnp.inf)) - least, _SMALLEST_RANGE)
    bonus = jnp.sqrt(0.1 * jnp.log(jnp.asarray(t, jnp.float32)) / jnp.maximum(state.last, 1))
    return (clipped - least) / spread + bonus
