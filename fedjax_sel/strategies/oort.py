"""Oort: fast clients with a high training loss, plus a decaying fraction of exploration (Lai et al., OSDI 2021).

The server keeps each client's statistical utility from its last participation. A part of a cohort, which grows, is
drawn from clients with a score near the top (exploitation). The rest are clients never selected (exploration).

With system="clock", clients slower than the preferred duration T lose score, and exploration prefers fast clients. The
pacer raises T while the utility of the cohorts stays flat. By default, durations are ignored.

In asynchronous rounds, staleness_discount=0.5 lowers the utility of clients whose reports were late, by the rule of
Pisces (Jiang et al., SoCC 2022).

    symbol    here                    shape    meaning
    U_i       State.utilities         [N]      n_i sqrt(mean of squared losses over the samples of the first local pass)
    L_i       State.last              [N]      round of i's last participation, from 1
    t         now.round + 1           scalar   round number, from 1
    U_cap     `cap`                            quantile of the utilities of explored clients, at which they are clipped
    U_min, U_max                      scalar   smallest and largest utility of the explored clients
    s_i       scores                  [N]      (min(U_i, U_cap) - U_min) / (U_max - U_min) + sqrt(0.1 ln t / L_i)
    tau_i     State.staleness         [N, 5]   mean of the staleness of i's last 5 reports; U_i / (tau_i + 1)^beta
                                               replaces U_i in s_i, with beta = staleness_discount
    eps       State.exploration       scalar   fraction of exploration: max(eps_min, eps decay) each round
    t_i       Pacer.durations         [N]      seconds of i's last report in time; bought before the first one
    q         Pacer.percentile        scalar   percentile of T among the durations of all clients
    T         _preferred              scalar   preferred duration: sorted t_i at floor(N q / 100); infinite at q = 100
    v         Pacer.gains             [2 W]    mean new U_i of exploited clients that reported, in the last 2 W rounds
    W, Delta  pacer_step, pacer_delta          rounds between the pacer's decisions; change of q, percentage points
              `slowness`              [N]      system factor (T / t_i)^alpha if t_i > T; else 1 (Eq. 2)

Exploitation: floor((1 - eps) K) clients, drawn with weights s_i x factor from the clients that reach `cut` x threshold.
The threshold is the floor((1 - eps) K)-th largest of these weights. Exploration: the remaining m clients, drawn from
the `explore_pool` x m unexplored clients of the largest weights: n_i, or 1 / t_i with system="clock" (Alg. 1, line 16).
Any places still empty are filled uniformly from the other clients.

Pacer: before rounds 2 W, 3 W, ..., the sum of the last W entries of v is compared with the sum P of the W before. If
they differ by at most 0.1 P, q rises by Delta, to at most 100. If they differ by at least 5 P, q falls by Delta, to at
least Delta.

Information bought: one float from each selected client per round (its loss over the first local pass). With
system="clock", also one local training of every client before the first round (its duration: N models down, N floats
up).

Differs from the paper and its code:
* preset="code" has the numbers of the public code. preset="paper" has the paper's: decay 0.98, cap 0.95, cut 0.95, and
  exclusion of clients selected more than 10 times. At most 30% of all clients, the most selected ones, are excluded,
  as in the code; they are still drawn if too few other clients are available.
* system="none" uses statistical utility only. system="clock" is the full strategy; it needs simulated time
  (`--timing`).
* The pacer is the code's. The paper's T starts at Delta and only rises, by Delta, if the utility of the last W rounds
  is below that of the W before. `round_threshold` is FedScale's default; Oort's code has 10, and 30 for speech.
* Alg. 1 explores by speed, read here as weights 1 / t_i. The code has n_i x factor instead. The pool is the code's.
* The code knows the durations of unexplored clients from their device profiles; here the server buys them. A client
  that never answered counts with the median of the known durations, or 1 s if none is known.
* A selected client whose report does not count (lost, past the deadline, or after the K-th) keeps U_i, L_i and t_i, and
  is unexplored until its first report: clients that never report share the places of exploration. The code gives
  over-selected clients the mean U_i of the reports, and counts a participation.
* L_i is a round index, as in the code, so the bonus sqrt(0.1 ln t / L_i) is larger for older participations.
* U_min and U_max are over explored, available clients. The code also includes the sizes of unexplored clients, and uses
  0.999 U_min. U_max - U_min is at least 1e-4, as in the code.
* The cut is relative to the score of the last exploited place. The code reads the next place, which is out of range if
  all explored clients are exploited.
* Exploration ends permanently once every client has been explored, as in the code. With K = 1 and eps > 0, exploitation
  starts only then.
* U_i uses n_i samples; the code uses min(n_i, steps x batch). The code draws its first cohort uniformly.
* Pisces exploits the clients with the largest U_i / (tau_i + 1)^beta, without bonus, clipping or system factor, and
  explores uniformly. Here these parts are Oort's; system="none" has no system factor. Pisces's pace of aggregation and
  its optional rule against corrupted clients (DBSCAN of recent losses) are left out.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core.plugins import AtLeastOne, Count, CountOrZero, NonNegative, Share, Within
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, NEVER, SELECTED, Request, always, at_start

_MAX_EXCLUDED = 0.3  # largest fraction of clients that `max_participations` excludes
_SMALLEST_RANGE = 1e-4  # lower bound of U_max - U_min
_SHORTEST = 1e-6  # lower bound of t_i, seconds; real servers may report 0
_FLAT, _SHARP = 0.1, 5.0  # bounds of the pacer's relative change of utility
_RECENT = 5  # reports in tau_i, as in Pisces's code


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
_ALPHA = 2.0  # default exponent of the system factor
_ROUND_THRESHOLD, _PACER_STEP, _PACER_DELTA = 30.0, 20, 5.0  # defaults of the pacer
Percent = Annotated[float, Within(0, 100)]


class Pacer(NamedTuple):
    """Durations of the clients, and the pacer of their preferred duration."""

    durations: jax.Array  # t_i, seconds, float32 [N]
    percentile: jax.Array  # q, float32 scalar
    gains: jax.Array  # v, oldest first, initially 0, float32 [2 W]


class State(NamedTuple):
    """Participation history and utilities of the clients."""

    utilities: jax.Array  # U_i, initially 0, float32 [N]
    last: jax.Array  # L_i, initially 0, int32 [N]
    count: jax.Array  # number of participations, int32 [N]
    exploration: jax.Array  # eps of the previous round, float32 scalar
    least: jax.Array  # eps_min; 0 once every client has been explored, float32 scalar
    pacer: Pacer | None = None  # None unless system="clock"
    staleness: jax.Array | None = None  # of the last 5 reports, int32 [N, 5]; None without a discount


def oort(
    *,
    preset: Literal["code", "paper"] = "code",
    exploration: Share = 0.9,
    exploration_decay: Share | None = None,
    exploration_min: Share = 0.2,
    cap: Share | None = None,
    cut: Share | None = None,
    explore_pool: AtLeastOne = 5.0,
    max_participations: CountOrZero | None = None,
    system: Literal["none", "clock"] = "none",
    alpha: NonNegative = _ALPHA,
    round_threshold: Percent = _ROUND_THRESHOLD,
    pacer_step: Count = _PACER_STEP,
    pacer_delta: Percent = _PACER_DELTA,
    staleness_discount: NonNegative = 0.0,
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
        system: durations: simulated seconds (`clock`), or all equal (`none`).
        alpha: exponent of the system factor, at least 0 (the code's `round_penalty`); with `clock`.
        round_threshold: q of the first round, a percentile of the durations, in [0, 100]; with `clock`.
        pacer_step: W, rounds between the pacer's decisions, at least 1; with `clock`.
        pacer_delta: change of q per decision, percentage points, in [0, 100]; with `clock`.
        staleness_discount: beta, exponent of the discount of stale clients, at least 0; Pisces: 0.5.
    """
    for name, value, usual in (
        ("alpha", alpha, _ALPHA),
        ("round_threshold", round_threshold, _ROUND_THRESHOLD),
        ("pacer_step", pacer_step, _PACER_STEP),
        ("pacer_delta", pacer_delta, _PACER_DELTA),
    ):
        if value != usual and system != "clock":
            raise UserError(f"oort: {name}={value} has no effect with system={system}; set system=clock")
    given = (exploration_decay, cap, cut, max_participations)
    decay, cap, cut, limit = (value if value is not None else default for value, default in zip(given, _TABLE[preset]))

    def init(key, now: Now) -> State:
        n = now.env.num_clients
        zeros, pacer = jnp.zeros((n,), jnp.int32), None
        if system == "clock":
            if not now.env.has_clock:
                raise UserError(
                    "oort: system=clock reads the simulated seconds of reports; add --timing, or leave it out"
                )
            gains = jnp.zeros((2 * pacer_step,), jnp.float32)
            pacer = Pacer(known_or_median(*now.info.seconds), jnp.float32(round_threshold), gains)
        utilities = jnp.zeros((n,), jnp.float32)
        staleness = jnp.zeros((n, _RECENT), jnp.int32) if staleness_discount else None
        return State(utilities, zeros, zeros, jnp.float32(exploration), jnp.float32(exploration_min), pacer, staleness)

    def slowness(state: State, sizes: jax.Array) -> jax.Array:  # system factor of Eq. 2, in (0, 1], float32 [N]
        if state.pacer is None:
            return jnp.ones_like(sizes)
        return jnp.minimum(_preferred(state.pacer) / state.pacer.durations, 1.0) ** alpha

    def current(state: State) -> jax.Array:  # this round's eps
        return jnp.maximum(state.exploration * decay, state.least)

    def exploited_places(state: State, k: int) -> jax.Array:  # this round's places for exploitation, int32 scalar
        # 1e-4: rounding must not reduce an integer product to the integer below.
        return jnp.floor(k * (1 - current(state)) + 1e-4).astype(jnp.int32)

    def select(key, state: State, now: Now) -> Selection:
        k, n, sizes = now.env.num_selected, now.env.num_clients, now.env.sizes.astype(jnp.float32)
        factor = slowness(state, sizes)
        key_out, key_exploit, key_pool, key_explore, key_rest = jax.random.split(key, 5)
        reachable = jnp.ones((n,), bool) if now.available is None else now.available
        eligible = reachable
        if limit > 0:
            most = sampling.among_largest(key_out, state.count.astype(jnp.float32), int(_MAX_EXCLUDED * n + 1e-9))
            eligible = reachable & ~(most & (state.count > limit))
        explored_before, unexplored = eligible & (state.count > 0), reachable & (state.count == 0)

        num_exploited = jnp.minimum(exploited_places(state, k), explored_before.sum())
        utilities = state.utilities
        if state.staleness is not None:
            mean = state.staleness.sum(axis=1) / jnp.clip(state.count, 1, _RECENT)
            utilities /= (mean + 1) ** staleness_discount
        scores = _scores(utilities, state.last, explored_before, now.round + 1, cap) * factor
        scores = jnp.where(explored_before, scores, 0.0)
        threshold = -sampling.value_at(-scores, jnp.maximum(num_exploited - 1, 0))
        near_the_top = explored_before & (scores >= cut * threshold)
        exploited = sampling.without_replacement(key_exploit, jnp.where(near_the_top, scores, 0.0), k, near_the_top)

        num_explored = jnp.minimum(unexplored.sum(), k - num_exploited)
        rewards = sizes * factor if state.pacer is None else 1 / state.pacer.durations
        pool_size = jnp.floor(explore_pool * num_explored + 1e-4).astype(jnp.int32)
        pool = unexplored & sampling.among_largest(key_pool, jnp.where(unexplored, rewards, -jnp.inf), pool_size)
        explored = sampling.without_replacement(key_explore, jnp.where(pool, rewards, 0.0), k, pool)

        tiers = k + jnp.where(eligible, 0, jnp.where(reachable, 1, 2))
        position = jnp.arange(k)
        for drawn, first, count in ((explored, num_exploited, num_explored), (exploited, 0, num_exploited)):
            tiers = tiers.at[jnp.where(position < count, drawn, n)].set(first + position, mode="drop")
        ids = sampling.first((tiers.astype(jnp.uint32), *sampling.random_words(key_rest, n)), k)
        return Selection(ids, None, reachable[ids])

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        losses, age = now.info.training_loss
        answered = outcome.reported & (age[selection.ids] == 0)
        rows = jnp.where(answered, selection.ids, now.env.num_clients)
        utilities = (now.env.sizes.astype(jnp.float32) * losses)[selection.ids]
        all_explored = (state.count > 0).all()  # before this round's participations
        if state.pacer is not None:
            durations = state.pacer.durations.at[rows].set(jnp.maximum(outcome.seconds, _SHORTEST), mode="drop")
            places = jnp.arange(selection.ids.shape[0])
            exploited = (
                answered & (places < exploited_places(state, now.env.num_selected)) & (state.count[selection.ids] > 0)
            )
            gain = jnp.where(exploited, utilities, 0.0).sum() / jnp.maximum(exploited.sum(), 1)
            pacer = _pace(state.pacer._replace(durations=durations), gain, now.round + 2, pacer_step, pacer_delta)
            state = state._replace(pacer=pacer)
        if state.staleness is not None:
            oldest = state.count[selection.ids] % _RECENT
            staleness = state.staleness.at[rows, oldest].set(outcome.staleness, mode="drop")
            state = state._replace(staleness=staleness)
        return state._replace(
            utilities=state.utilities.at[rows].set(utilities, mode="drop"),
            last=state.last.at[rows].set(now.round + 1, mode="drop"),
            count=state.count.at[rows].add(1, mode="drop"),
            exploration=jnp.where(all_explored, 0.0, current(state)),
            least=jnp.where(all_explored, 0.0, state.least),
        )

    losses = Request("training_loss", SELECTED, always(), (("statistic", "rms-first-pass"),))
    if system != "clock":
        return Strategy("oort", select, (losses,), init, update)
    return Strategy("oort", select, (losses, Request("seconds", ALL, at_start())), init, update)


def known_or_median(seconds: jax.Array, age: jax.Array) -> jax.Array:
    """Impute the durations [N] of clients that never answered with the median of the known ones, or with 1 s."""
    known = age < NEVER
    median = sampling.value_at(jnp.where(known, seconds, jnp.inf), known.sum() // 2)
    return jnp.maximum(jnp.where(known, seconds, jnp.where(known.any(), median, 1.0)), _SHORTEST)


def _preferred(pacer: Pacer) -> jax.Array:
    """Return T: the percentile q of all clients' durations, or infinity at q = 100; float32 scalar."""
    n = pacer.durations.shape[0]
    place = jnp.minimum(jnp.floor(n * pacer.percentile / 100 + 1e-4).astype(jnp.int32), n - 1)
    return jnp.where(pacer.percentile < 100, sampling.value_at(pacer.durations, place), jnp.inf)


def _pace(pacer: Pacer, gain: jax.Array, t: jax.Array, step: int, delta: float) -> Pacer:
    """Append a round's v; before round t = 2 W, 3 W, ..., move q by the change of the sum over W rounds."""
    gains = jnp.append(pacer.gains[1:], gain)
    before = gains[:step].sum()
    change = jnp.abs(gains[step:].sum() - before)
    due, q = (t >= 2 * step) & (t % step == 0), pacer.percentile
    lower = jnp.where(change >= _SHARP * before, jnp.maximum(q - delta, delta), q)
    moved = jnp.where(change <= _FLAT * before, jnp.minimum(q + delta, 100.0), lower)
    return pacer._replace(gains=gains, percentile=jnp.where(due, moved, q))


def _scores(values: jax.Array, last: jax.Array, explored: jax.Array, t: jax.Array, cap: float) -> jax.Array:
    """Return s_i from the utilities U_i and L_i, without the system factor, [N]; undefined for unexplored clients."""
    n = explored.shape[0]
    utilities = jnp.where(explored, values, jnp.inf)
    # The quantile's index is looked up by the number of explored clients, because a float32 product is not exact.
    counts = np.arange(n + 1)
    places = np.minimum(np.floor(counts * cap + 1e-9), np.maximum(counts - 1, 0)).astype(np.int32)
    clipped = jnp.minimum(values, sampling.value_at(utilities, jnp.asarray(places)[explored.sum()]))
    least = utilities.min()
    spread = jnp.maximum(jnp.max(jnp.where(explored, values, -jnp.inf)) - least, _SMALLEST_RANGE)
    bonus = jnp.sqrt(0.1 * jnp.log(jnp.asarray(t, jnp.float32)) / jnp.maximum(last, 1))
    return (clipped - least) / spread + bonus
