"""GPFL: clients whose updates point where the global model goes, chosen as a bandit chooses (Na, Liang, Yiu).

Each client of a cohort earns its share of the cohort's projections on the global direction, times what the round did to
the accuracy. The next cohort is of the largest mean rewards plus a bonus for clients that were seldom selected.

    symbol    here                 shape    meaning
    Delta_i   outcome.updates      [K, P]   update of client i
    D         outcome.step         [P]      step of the global model; g is that of the round before
    c_i       project              [K]      <Delta_i, g> / ||g||                                              (Eq. 3)
    c~_i      shares               [K]      softmax of c over the cohort                                      (Eq. 5)
    f_t       outcome_factor       scalar   2 exp(A' - A), or by the loss F where the accuracy A is unchanged (Eq. 8)
    rbar_i    reward_sum / count   [N]      sum of f c~_i / n_i                                               (Eq. 6)
    n_i       State.count          [N]      rounds in which i was selected
    alpha_t   exploration          scalar   rho t / T                                                         (Eq. 7)
    u_i       scores               [N]      rbar_i + alpha_t sqrt(2 ln t / n_i), infinite for n_i = 0         (Eq. 6)

Information bought: the server's own evaluation of every global model; with start="all-clients" also one local update of
every client at the start (N models down, P floats up from each).

Differs from the paper, which cannot be run as printed:
* The server has no gradients. An update over learning rate times steps is minus the mean gradient along the client's
  local path (scale="gradient"); the global step stands for -g, whose norm cancels. scale="update" leaves out the
  division: c then shrinks by learning rate times steps, the softmax is nearly uniform, and clients take turns. So does
  a Selector without `path_lengths`; the first projections of start="all-clients" are of updates under either.
* In the first round g is that round's D. A round without a usable update leaves g as it was.
* Clients not yet seen come first, at random: a sweep of N / K rounds instead of a first round of all.
* The softmax is over the cohort, whose projections alone are fresh; all-with-stale takes the last ones of the others.
* Means are over the rounds in which a client was selected; S_{t+1} is chosen by the scores after round t.
* Eq. 8 as printed rewards a loss that rises; `corrected` has the other sign. Ties are broken at random.
* An update that is not finite has no share (c = -inf); its client counts as selected.
* start="all-clients": rewards are the shares among all with f = 1, c is of the whole model, D is their unweighted mean,
  and the model itself stays w^0.
* preset="gpfl-ref" is the released code: D of the round itself, projections tensor by tensor, f by sign, a mean that
  counts a first reward of 0, alpha as a tent, t the rounds before this one, and a warm-up in chunks. Chunks are here at
  most K, and the first round is judged against w^0, not against an accuracy of 0.
* The momentum of Eq. 1-2 is a setting of the clients' training, not of the selection; it is no parameter here.
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
    """What clients earned."""

    num_selected: Static  # K
    num_rounds: Static  # T
    reward_sum: jax.Array  # float32 [N]
    count: jax.Array  # n_i, int32 [N]
    projections: jax.Array  # c_i of the last participation, -inf before, float32 [N]
    direction: jax.Array  # g, float32 [P]; [0] where it is the round's own
    known: jax.Array  # whether there is a direction yet, bool scalar


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
        preset: where what is None here comes from: a coherent reading of the paper (`gpfl-c`) or the released code.
        direction: g: the step of the round before, of this round, or g <- smoothing g + step.
        smoothing: factor of `smoothed`, in [0, 1). None: 0.1.
        scale: of c: mean gradients along the clients' local paths (updates over learning rate times steps), or updates.
        projection: on the whole model, or the mean over its tensors.
        softmax: over the cohort, or over all clients with their last projections.
        mean: the sum of rewards over n_i, over t, or over n_i + 1.
        alpha: exploration over the rounds: rho t / T, rho, rho (1 - t / T), or rising to round 100 and falling after.
        rho: factor of the exploration, at least 0.
        outcome: factor of a round's rewards: the paper's with the loss's sign corrected, as printed, or a sign.
        start: unseen clients first, K a round; or all clients' updates before the first round; or a warm-up in chunks
            of N / warm_up_rounds, rounded up and at most K.
        warm_up_rounds: of `warm-up-sweep`, at least 1. None: 20.
        accuracy_on: whether the server evaluates on data that it holds back, or on the test set.
        n: what the logarithm counts: rounds t, or selections t K.

    Returns:
        The strategy.

    Raises:
        UserError: a number outside its range, or one that has no effect.
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
        # What float32 cannot hold is a client that diverged.
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
            fresh /= jnp.where(usable, outcome.path_lengths, 1.0)  # a client without a usable update keeps its -inf
        rows = jnp.where(selection.mask, selection.ids, state.count.shape[0])  # empty places are dropped
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
