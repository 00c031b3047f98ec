"""GPFL: a bandit that selects clients whose updates align with the global direction (Na, Liang, Yiu, 2024).

A selected client's reward is its softmax share of the cohort's projections on the global direction, times a factor for
the round's change in accuracy. The next cohort has the largest scores: mean reward plus a bonus for rare selection.

    symbol    here                 shape    meaning
    Delta_i   outcome.updates      [K, P]   update of client i
    D         outcome.step         [P]      step of the global model; g is the step of the previous round
    c_i       project              [K]      <Delta_i, g> / ||g||                                              (Eq. 3)
    c~_i      shares               [K]      softmax of c over the cohort                                      (Eq. 5)
    f_t       outcome_factor       scalar   2 exp(A' - A), or by the loss F where the accuracy A is unchanged (Eq. 8)
    mu~_i     reward_sum / count   [N]      mean reward, the sum of f c~_i / n_i                              (Eq. 6)
    n_i       State.count          [N]      rounds in which i was selected
    alpha_t   exploration          scalar   rho t / T                                                         (Eq. 7)
    u_i       scores               [N]      mu~_i + alpha_t sqrt(2 ln t / n_i), infinite for n_i = 0          (Eq. 6)

Information bought: the server's own evaluation of every global model. start="all-clients" adds one local update of
every client at the start (N models down, N P floats up). The server reads single updates (no secure aggregation).

Differs from the paper, which cannot be implemented as printed:
* The server has no gradients. An update divided by learning rate times steps is minus the mean gradient along the
  client's local path (scale="gradient"). The global step stands for -g; its norm cancels. scale="update" omits the
  division, so c is smaller, the softmax is nearly uniform, and clients are selected in turns. A Selector without
  `path_lengths`, and the first projections of start="all-clients", always use undivided updates.
* In the first round g is that round's D. A round without a usable update, or without a server step, keeps g.
* Unseen clients come first, in random order: a sweep of N / K rounds replaces the paper's first round of all clients.
* The softmax is over the cohort, the only clients with fresh projections. softmax="all-with-stale" adds the last
  projections of the other clients.
* Means are over the rounds in which a client was selected; S_{t+1} is selected by the scores after round t.
* Eq. 8 as printed rewards a rising loss; outcome="corrected" reverses the sign. Ties are broken at random.
* An update that is lost or not finite has no share (c = -inf); its client counts as selected, without a reward.
* start="all-clients": the initial rewards are the shares among all clients with f = 1. c is over the whole model, D is
  the unweighted mean of the updates, and the model remains w^0.
* preset="gpfl-ref" follows the released code: D of the same round, projections per tensor, f by sign, a mean that
  includes an initial reward of 0, a tent-shaped alpha, t starting at 0, and a warm-up in chunks. Here a chunk has at
  most K clients, and the first round is compared with w^0 instead of an accuracy of 0.
* The momentum of Eq. 1-2 belongs to the clients' training and is not a parameter of the selection.
"""

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from fedjax_sel.core.plugins import Count, Decay, NonNegative
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Evaluation, Now, Outcome, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, NEVER, SERVER, Request, always, at_start

Preset = Literal["gpfl-c", "gpfl-ref"]
Direction = Literal["previous", "current", "smoothed"]
Scale = Literal["gradient", "update"]
Projection = Literal["flat", "per-tensor-mean"]
Softmax = Literal["cohort", "all-with-stale"]
Mean = Literal["selections", "rounds", "selections-and-zero"]
Exploration = Literal["linear", "const", "decay", "tent"]
OutcomeRule = Literal["corrected", "printed", "sign"]
Start = Literal["sweep", "all-clients", "warm-up-sweep"]
EvaluatedOn = Literal["validation", "test"]
Counted = Literal["rounds", "total-plays"]


class Numbers(NamedTuple):
    """A resolved preset. Static."""

    direction: Direction  # g
    scale: Scale  # projected vectors: mean gradients or updates
    projection: Projection
    softmax: Softmax
    mean: Mean  # divisor of the sums of rewards
    alpha: Exploration
    outcome: OutcomeRule
    start: Start
    accuracy_on: EvaluatedOn  # the server's own data, or the test set
    n: Counted  # argument of the logarithm
    first_round: int  # t of the first selection: 0 counts completed rounds, 1 includes the current round
    rho: float = 1.0
    smoothing: float = 0.1  # used with direction="smoothed"; the value is that of the paper's momentum gamma
    warm_up_rounds: int = 20  # used with start="warm-up-sweep"


_TABLE: dict[str, Numbers] = {
    "gpfl-c": Numbers(
        direction="previous", scale="gradient", projection="flat", softmax="cohort", mean="selections", alpha="linear",
        outcome="corrected", start="sweep", accuracy_on="validation", n="rounds", first_round=1,
    ),
    "gpfl-ref": Numbers(
        direction="current", scale="update", projection="per-tensor-mean", softmax="cohort",
        mean="selections-and-zero", alpha="tent", outcome="sign", start="warm-up-sweep", accuracy_on="test",
        n="rounds", first_round=0,
    ),
}  # fmt: skip

_ONLY_WITH = {"smoothing": ("direction", "smoothed"), "warm_up_rounds": ("start", "warm-up-sweep")}


def resolve(preset: str, **overrides: Any) -> Numbers:
    """Return a preset with a user's overrides of its fields; None keeps the preset's value."""
    chosen = {name: value for name, value in overrides.items() if value is not None}
    numbers = _TABLE[preset]._replace(**chosen)
    for name, (option, value) in _ONLY_WITH.items():
        if name in chosen and getattr(numbers, option) != value:
            raise UserError(f"gpfl: {name}={chosen[name]} has no effect without {option}={value}; set {option}={value}")
    return numbers


_LARGEST_EXPONENT = 50.0  # bound of the exponents in f; keeps rewards finite and exceeds any regular change


def unit(direction: jax.Array) -> jax.Array:
    """Return a direction of any shape divided by its norm; zeros if the norm is zero."""
    largest = jnp.abs(direction).max()
    scaled = direction / jnp.where(largest > 0, largest, 1.0)  # prevents overflow and underflow of squares
    norm = jnp.sqrt(jnp.sum(scaled**2))
    return scaled / jnp.where(norm > 0, norm, 1.0)


def project(updates: Any, direction: Any, usable: jax.Array, per_tensor: bool) -> jax.Array:
    """Return c_i = <Delta_i, g> / ||g|| over the whole model, or its mean over the tensors (Na et al., Eq. 3).

    A tensor of zeros contributes 0 to the mean.

    Args:
        updates: updates Delta_i, a pytree with leading axis [K, ...].
        direction: direction g, a pytree without that axis.
        usable: usable updates, bool [K]; the others, and those that overflow, have the projection -inf.
        per_tensor: whether to project each tensor separately and average.
    """
    flat, unravel = ravel_pytree(direction)
    units = jax.tree.map(unit, direction) if per_tensor else unravel(unit(flat))

    def inner(update: jax.Array, along: jax.Array) -> jax.Array:
        # A nonfinite entry affects only its own client's projection, which is masked below.
        return jnp.matmul(update.reshape(update.shape[0], -1), along.reshape(-1), precision=lax.Precision.HIGHEST)

    parts = jnp.stack(jax.tree.leaves(jax.tree.map(inner, updates, units)))  # [tensors, K]
    projections = parts.mean(axis=0) if per_tensor else parts.sum(axis=0)
    return jnp.where(usable & jnp.isfinite(projections), projections, -jnp.inf)


def shares(projections: jax.Array) -> jax.Array:
    """Return the softmax [M] of projections [M] below +inf; zeros if all of them are -inf (Na et al., Eq. 5)."""
    usable = projections > -jnp.inf
    largest = jnp.max(projections, initial=-jnp.inf, where=usable)
    weights = jnp.where(usable, jnp.exp(jnp.where(usable, projections - largest, 0.0)), 0.0)
    return weights / jnp.where(usable.any(), weights.sum(), 1.0)


def outcome_factor(before: Evaluation, after: Evaluation, rule: str) -> jax.Array:
    """Return f, the factor of a round's rewards (Na et al., Eq. 8), from accuracy A and loss F before and after.

    Rules: `printed`: 2 exp(A' - A), or exp(F' - F) if A is unchanged. `corrected`: the same with F - F', which does not
    reward a rising loss. `sign`: 1 or -1 if A rose or fell; else 0.5 or -0.5 if F fell or rose; else 0.

    Integer counts of correct examples decide whether A rose, fell or stayed equal, because floats round. If a lower
    measure is better, A' - A is its decrease. The paper's A is a fraction; with a measure in other units the
    exponentials depend on the unit, and the rule `sign` does not.
    """
    correct = _or_zero(after.correct - before.correct)
    fall = _or_zero(before.loss - after.loss)
    if rule == "sign":
        return jnp.where(correct != 0, jnp.sign(correct).astype(jnp.float32), 0.5 * jnp.sign(fall))
    gain = jnp.sign(correct).astype(jnp.float32) * jnp.abs(_or_zero(after.accuracy - before.accuracy))
    exponents = jnp.stack([gain, fall if rule == "corrected" else -fall])
    gained, fell = jnp.exp(jnp.clip(exponents, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
    return jnp.where(correct != 0, 2.0 * gained, fell)


def _or_zero(change: jax.Array) -> jax.Array:
    """Return a change, with 0 for NaN: a mean of huge errors can overflow before and after."""
    return jnp.where(jnp.isnan(change), 0, change)


def exploration(rule: str, rho: float, t: jax.Array, num_rounds: int) -> jax.Array:
    """Return alpha_t, the factor of the exploration bonus in round t of T, float32 scalar (Na et al., Eq. 7).

    Rules: `linear`: rho t / T. `const`: rho. `decay`: rho (1 - t / T). `tent`, from the released code: rho t / 100 up
    to t = 100, then rho 200 / (t + 100).
    """
    if rule == "const":
        return rho * jnp.ones_like(t)
    if rule == "tent":
        return rho * jnp.where(t < 100, t / 100.0, 200.0 / (t + 100.0))
    share = t / num_rounds
    return rho * (share if rule == "linear" else jnp.maximum(1.0 - share, 0.0))


class State(NamedTuple):
    """Rewards and projections of the clients, and the global direction."""

    reward_sum: jax.Array  # float32 [N]
    count: jax.Array  # n_i, int32 [N]
    projections: jax.Array  # c_i of the last participation, -inf before, float32 [N]
    direction: jax.Array  # g, float32 [P]; shape [0] with direction="current"
    known: jax.Array  # whether g has been set, bool scalar


def gpfl(
    *,
    preset: Preset = "gpfl-c",
    direction: Direction | None = None,
    smoothing: Decay | None = None,
    scale: Scale | None = None,
    projection: Projection | None = None,
    softmax: Softmax | None = None,
    mean: Mean | None = None,
    alpha: Exploration | None = None,
    rho: NonNegative | None = None,
    outcome: OutcomeRule | None = None,
    start: Start | None = None,
    warm_up_rounds: Count | None = None,
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
    """
    numbers = resolve(**locals())
    smoothing = numbers.smoothing if numbers.direction == "smoothed" else 0.0
    own_direction = numbers.direction == "current"

    def init(key: jax.Array, now: Now) -> State:
        n, params = now.env.num_clients, 0 if own_direction else now.env.num_params
        return State(
            reward_sum=jnp.zeros((n,), jnp.float32),
            count=jnp.zeros((n,), jnp.int32),
            projections=jnp.full((n,), -jnp.inf, jnp.float32),
            direction=jnp.zeros((params,), jnp.float32),
            known=jnp.zeros((), bool),
        )

    def init_from_all(key: jax.Array, now: Now) -> State:
        updates, age = now.info.update
        answered = age < NEVER
        usable = answered & jnp.isfinite(updates).all(axis=1)
        total = jnp.sum(jnp.where(usable[:, None], updates, 0.0), axis=0, dtype=jnp.float64)
        step = total / jnp.maximum(usable.sum(), 1)
        along = unit(step)
        projections = lax.map(lambda update: jnp.sum(update * along), updates)
        # A projection that overflows float32 belongs to a client that diverged.
        usable &= jnp.abs(projections) < jnp.finfo(jnp.float32).max
        projections = jnp.where(usable, projections, -jnp.inf)
        return State(
            reward_sum=shares(projections),
            count=answered.astype(jnp.int32),
            projections=projections,
            direction=step[:0] if own_direction else step,
            known=usable.any(),
        )

    def scores(state: State, now: Now) -> jax.Array:
        t = jnp.maximum(jnp.asarray(now.round, jnp.float32) + numbers.first_round, 1.0)
        count = jnp.maximum(state.count, 1).astype(jnp.float32)
        played = {"selections": count, "selections-and-zero": state.count + 1.0, "rounds": t}[numbers.mean]
        plays = t * now.env.num_selected if numbers.n == "total-plays" else t
        factor = exploration(numbers.alpha, numbers.rho, t, now.env.num_rounds)
        bonus = factor * jnp.sqrt(2.0 * jnp.log(plays) / count)
        return jnp.where(state.count > 0, state.reward_sum / played + bonus, jnp.inf)

    def select(key, state: State, now: Now) -> Selection:
        k, clients = now.env.num_selected, now.env.num_clients
        reachable = jnp.ones((clients,), bool) if now.available is None else now.available
        ids = sampling.top_k(key, jnp.where(reachable, scores(state, now), -jnp.inf), k)
        mask = reachable[ids]
        if numbers.start == "warm-up-sweep":
            chunk = min(k, math.ceil(clients / numbers.warm_up_rounds))
            unseen = reachable & (state.count == 0)
            warm = (now.round < math.ceil(clients / chunk)) & unseen.any()
            mask &= ~warm | (unseen[ids] & (jnp.arange(k) < chunk))
        return Selection(ids, None, mask)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        step, unravel = ravel_pytree(outcome.step)
        usable = outcome.reported & outcome.finite
        moved = usable.any() & jnp.isfinite(step).all() & step.any()
        step = jnp.where(moved, step, 0.0)
        along = step if own_direction else jnp.where(state.known, state.direction, step)
        fresh = project(outcome.updates, unravel(along), usable, numbers.projection == "per-tensor-mean")
        if numbers.scale == "gradient":
            fresh /= jnp.where(usable, outcome.path_lengths, 1.0)  # without a usable update, c stays -inf
            fresh = jnp.where(jnp.isfinite(fresh), fresh, -jnp.inf)  # a short path can overflow
        selected, rows = (  # out of range, so that mode="drop" skips it
            jnp.where(mask, selection.ids, state.count.shape[0]) for mask in (selection.mask, outcome.reported)
        )
        projections = state.projections.at[rows].set(fresh, mode="drop")
        everyone = numbers.softmax == "all-with-stale"
        share = shares(projections)[selection.ids] if everyone else shares(fresh)
        factor = outcome_factor(outcome.metrics.before, outcome.metrics.after, numbers.outcome)
        return state._replace(
            reward_sum=state.reward_sum.at[rows].add(factor * share, mode="drop"),
            count=state.count.at[selected].add(1, mode="drop"),
            projections=projections,
            direction=state.direction
            if own_direction
            else jnp.where(moved, smoothing * state.direction + step, state.direction),
            known=state.known | moved,
        )

    evaluation = Request("server_metrics", SERVER, always(), (("on", numbers.accuracy_on),))
    if numbers.start == "all-clients":
        requests = (Request("update", ALL, at_start()), evaluation)
        return Strategy("gpfl", select, requests, init=init_from_all, update=update)
    return Strategy("gpfl", select, (evaluation,), init=init, update=update)
