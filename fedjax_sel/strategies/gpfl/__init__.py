"""GPFL: a bandit that selects clients whose updates align with the global direction (Na, Liang, Yiu).

A selected client's reward is its softmax share of the cohort's projections on the global direction, times a factor for
the round's change in accuracy. The next cohort has the largest scores: mean reward plus a bonus for rare selection.

    symbol    here                 shape    meaning
    Delta_i   outcome.updates      [K, P]   update of client i
    D         outcome.step         [P]      step of the global model; g is the step of the previous round
    c_i       project              [K]      <Delta_i, g> / ||g||                                              (Eq. 3)
    c~_i      shares               [K]      softmax of c over the cohort                                      (Eq. 5)
    f_t       outcome_factor       scalar   2 exp(A' - A), or by the loss F where the accuracy A is unchanged (Eq. 8)
    rbar_i    reward_sum / count   [N]      sum of f c~_i / n_i                                               (Eq. 6)
    n_i       State.count          [N]      rounds in which i was selected
    alpha_t   exploration          scalar   rho t / T                                                         (Eq. 7)
    u_i       scores               [N]      rbar_i + alpha_t sqrt(2 ln t / n_i), infinite for n_i = 0         (Eq. 6)

Information bought: the server's own evaluation of every global model. start="all-clients" adds one local update of
every client at the start (N models down, N P floats up).

Differs from the paper, which cannot be implemented as printed:
* The server has no gradients. An update divided by learning rate times steps is minus the mean gradient along the
  client's local path (scale="gradient"). The global step stands for -g; its norm cancels. scale="update" omits the
  division, so c is smaller, the softmax is nearly uniform, and clients are selected in turns. A Selector without
  `path_lengths`, and the first projections of start="all-clients", always use undivided updates.
* In the first round g is that round's D. A round without a usable update keeps g.
* Unseen clients come first, in random order: a sweep of N / K rounds replaces the paper's first round of all clients.
* The softmax is over the cohort, the only clients with fresh projections. softmax="all-with-stale" adds the last
  projections of the other clients.
* Means are over the rounds in which a client was selected; S_{t+1} is selected by the scores after round t.
* Eq. 8 as printed rewards a rising loss; outcome="corrected" reverses the sign. Ties are broken at random.
* An update that is not finite has no share (c = -inf); its client counts as selected.
* start="all-clients": the initial rewards are the shares among all clients with f = 1. c is over the whole model, D is
  the unweighted mean of the updates, and the model remains w^0.
* preset="gpfl-ref" follows the released code: D of the same round, projections per tensor, f by sign, a mean that
  includes an initial reward of 0, a tent-shaped alpha, t starting at 0, and a warm-up in chunks. Here a chunk has at
  most K clients, and the first round is compared with w^0 instead of an accuracy of 0.
* The momentum of Eq. 1-2 belongs to the clients' training and is not a parameter of the selection.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.base import (
    ALL,
    NEVER,
    SERVER,
    Env,
    Information,
    Outcome,
    Request,
    Selection,
    Static,
    Strategy,
    always,
    at_start,
    keep_state,
)
from fedjax_sel.strategies.gpfl import presets, rewards
from fedjax_sel.strategies.gpfl.presets import (
    Counted,
    Direction,
    EvaluatedOn,
    Exploration,
    Mean,
    OutcomeRule,
    Preset,
    Projection,
    Scale,
    Softmax,
    Start,
)


class State(NamedTuple):
    """Rewards and projections of the clients, and the global direction."""

    num_selected: Static  # K
    num_rounds: Static  # T
    reward_sum: jax.Array  # float32 [N]
    count: jax.Array  # n_i, int32 [N]
    projections: jax.Array  # c_i of the last participation, -inf before, float32 [N]
    direction: jax.Array  # g, float32 [P]; shape [0] with direction="current"
    known: jax.Array  # whether g has been set, bool scalar


def gpfl(
    *,
    preset: Preset = "gpfl-c",
    direction: Direction | None = None,
    smoothing: float | None = None,
    scale: Scale | None = None,
    projection: Projection | None = None,
    softmax: Softmax | None = None,
    mean: Mean | None = None,
    alpha: Exploration | None = None,
    rho: float | None = None,
    outcome: OutcomeRule | None = None,
    start: Start | None = None,
    warm_up_rounds: int | None = None,
    accuracy_on: EvaluatedOn | None = None,
    n: Counted | None = None,
) -> Strategy:
    """Make GPFL.

    Args:
        preset: source of the parameters that are None: a consistent reading of the paper (`gpfl-c`) or the released
            code (`gpfl-ref`).
        direction: direction g: the step of the previous round, of this round, or g <- smoothing g + step.
        smoothing: smoothing factor of `smoothed`, in [0, 1). None: 0.1.
        scale: vectors projected by c: mean gradients along the local paths (updates over learning rate times steps), or
            updates.
        projection: projection over the whole model, or mean of the projections over its tensors.
        softmax: softmax over the cohort, or over all clients with their last projections.
        mean: mean reward: the sum of rewards divided by n_i, by t, or by n_i + 1.
        alpha: exploration schedule: rho t / T, rho, rho (1 - t / T), or a tent with its peak at round 100.
        rho: factor of the exploration, at least 0.
        outcome: factor of a round's rewards: the paper's with the loss's sign corrected, as printed, or a sign.
        start: first selections: unseen clients first, K per round; all clients' updates before the first round; or a
            warm-up in chunks of N / warm_up_rounds, rounded up, at most K.
        warm_up_rounds: number of chunks of `warm-up-sweep`, at least 1. None: 20.
        accuracy_on: data of the server's evaluation: its validation data, or the test set.
        n: argument of the logarithm: rounds t, or selections t K.

    Returns:
        The strategy.

    Raises:
        UserError: a parameter is outside its range or has no effect.
    """
    numbers = presets.resolve(
        presets.look_up(preset), direction=direction, smoothing=smoothing, scale=scale,
        projection=projection, softmax=softmax,
        mean=mean, alpha=alpha, rho=rho, outcome=outcome, start=start, warm_up_rounds=warm_up_rounds,
        accuracy_on=accuracy_on, n=n,
    )  # fmt: skip
    gamma = numbers.smoothing if numbers.direction == "smoothed" else 0.0
    own_direction = numbers.direction == "current"

    def init(key: jax.Array, env: Env) -> State:
        del key
        clients, params = env.num_clients, 0 if own_direction else env.num_params
        return State(
            Static(env.num_selected), Static(env.num_rounds), jnp.zeros((clients,), jnp.float32),
            jnp.zeros((clients,), jnp.int32), jnp.full((clients,), -jnp.inf, jnp.float32),
            jnp.zeros((params,), jnp.float32), jnp.zeros((), bool),
        )  # fmt: skip

    def prepare(state: State, info: Information) -> State:
        updates, age = info.update
        answered = age < NEVER
        usable = answered & jnp.isfinite(updates).all(axis=1)
        total = jnp.sum(jnp.where(usable[:, None], updates, 0.0), axis=0, dtype=jnp.float64)
        step = total / jnp.maximum(usable.sum(), 1)
        along = rewards.unit(step)
        projections = lax.map(lambda update: jnp.sum(update * along), updates)
        # A projection that overflows float32 belongs to a client that diverged.
        usable &= jnp.abs(projections) < jnp.finfo(jnp.float32).max
        projections = jnp.where(usable, projections, -jnp.inf)
        return state._replace(
            reward_sum=rewards.shares(projections),
            count=answered.astype(jnp.int32),
            projections=projections,
            direction=state.direction if own_direction else step,
            known=usable.any(),
        )

    def scores(state: State, round: jax.Array) -> jax.Array:
        t = jnp.maximum(jnp.asarray(round, jnp.float32) + numbers.first_round, 1.0)
        count = jnp.maximum(state.count, 1).astype(jnp.float32)
        played = {"selections": count, "selections-and-zero": state.count + 1.0, "rounds": t}[numbers.mean]
        plays = t * state.num_selected.value if numbers.n == "total-plays" else t
        factor = rewards.exploration(numbers.alpha, numbers.rho, t, state.num_rounds.value)
        bonus = factor * jnp.sqrt(2.0 * jnp.log(plays) / count)
        return jnp.where(state.count > 0, state.reward_sum / played + bonus, jnp.inf)

    def select(key, state: State, info, round, available) -> Selection:
        del info
        k, clients = state.num_selected.value, state.count.shape[0]
        reachable = jnp.ones((clients,), bool) if available is None else available
        ids = sampling.top_k(key, jnp.where(reachable, scores(state, round), -jnp.inf), k)
        mask = reachable[ids]
        if numbers.start == "warm-up-sweep":
            chunk = min(k, math.ceil(clients / numbers.warm_up_rounds))
            unseen = reachable & (state.count == 0)
            warm = (round < math.ceil(clients / chunk)) & unseen.any()
            mask &= ~warm | (unseen[ids] & (jnp.arange(k) < chunk))
        return Selection(ids, None, mask)

    def update(state: State, info, round, selection: Selection, outcome: Outcome) -> State:
        del info, round
        step, unravel = ravel_pytree(outcome.step)
        usable = selection.mask & outcome.finite
        moved = usable.any() & jnp.isfinite(step).all()
        step = jnp.where(moved, step, 0.0)
        along = step if own_direction else jnp.where(state.known, state.direction, step)
        fresh = rewards.project(outcome.updates, unravel(along), usable, numbers.projection == "per-tensor-mean")
        if numbers.scale == "gradient" and outcome.path_lengths is not None:
            fresh /= jnp.where(usable, outcome.path_lengths, 1.0)  # without a usable update, c stays -inf
        rows = jnp.where(selection.mask, selection.ids, state.count.shape[0])  # out of range, so mode="drop" skips it
        projections = state.projections.at[rows].set(fresh, mode="drop")
        everyone = numbers.softmax == "all-with-stale"
        share = rewards.shares(projections)[selection.ids] if everyone else rewards.shares(fresh)
        factor = rewards.outcome_factor(outcome.metrics.before, outcome.metrics.after, numbers.outcome)
        return state._replace(
            reward_sum=state.reward_sum.at[rows].add(factor * share, mode="drop"),
            count=state.count.at[rows].add(1, mode="drop"),
            projections=projections,
            direction=state.direction
            if own_direction
            else jnp.where(moved, gamma * state.direction + step, state.direction),
            known=state.known | moved,
        )

    evaluation = Request("server_metrics", SERVER, always(), (("on", numbers.accuracy_on),))
    of_all = numbers.start == "all-clients"
    return Strategy(
        name="gpfl",
        init=init,
        select=select,
        requests=(Request("update", ALL, at_start()), evaluation) if of_all else (evaluation,),
        prepare=prepare if of_all else keep_state,
        update=update,
    )
