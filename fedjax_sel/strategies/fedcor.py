"""FedCor: cohorts chosen by correlations between the clients' loss changes (Tang et al., CVPR 2022).

The loss changes of all clients over a round with a random cohort are modeled as a draw of a Gaussian vector. Its
covariance is learned from a few such vectors through embeddings of the clients. A cohort is selected greedily: assume
that selecting client k lowers its own loss by alpha_k standard deviations, and predict the weighted sum of all losses.
Select the client with the best prediction, condition the Gaussian on it, and repeat.

    symbol    here                       shape     meaning
    X         State.embeddings           [d, N]    covariance Sigma = X^T X + noise^2 I                    (Eq. 14)
    dl^t      Samples.values             [H, S, N] losses of all clients after a random cohort - before    (Alg. 2, 7)
    alpha_k   exp(State.log_scale)       [N]       beta^(times k was selected since the last update)       (Eq. 9)
    beta      anneal                     scalar    annealing factor                                        (Eq. 9)
    p_i       `importance_of`            [N]       n_i / sum n
    mu        `mean`                     [N]       mean of the Gaussian; does not affect the selection     (Eq. 12)
    theta     discount                             weight of a sample, theta^age; gamma = theta^Dt (C.1)   (Eq. 17)
    M         reuse, warmup_reuse                  earlier collections that a fit reuses                   (Eq. 17)
    Dt, S     interval, probes                     rounds between updates, random cohorts per update

Rounds count from 0. The first `warmup` rounds have random cohorts. Each yields a sample, completed by the losses at the
opening of the next round, and Adam fits X to the samples so far, starting from the previous X (`code-2023`,
`gpfl-port`, `closed-form`: one fit in round `warmup`). From then on, every round t with t % interval = 0 is an update
(released codes: (t - 1) % interval = 0). It opens with a probe: S random cohorts train, their models are measured and
discarded. It then fits X again, resets alpha, and selects.

Information bought: the losses of all clients at the opening of rounds 0 to `warmup` (N models down, N floats up each).
Each update costs (1 + S) N models down, S K models up and (1 + S) N floats up. Queried clients already have the round's
model when they train. An update in round `warmup` buys the losses of w^t twice.

The presets are in fedcor_presets.py.

Differs from the paper:
* Sigma as printed, X^T X, is singular. noise^2 I is added in the likelihood and in the selection, as in the code.
* d = max(15, K), because picks beyond d depend on noise only.
* The code measures losses at the end of a round, and here the next round opens with the measurement. Cohorts and
  samples are the same; an update in the code's round t comes in round t + 1.
* A collection with a loss that is not finite is dropped. An unavailable client counts as having an unchanged loss, is
  not selected, and remains part of the Gaussian. Ties are broken at random.
* Warm-up and probes use the run's own aggregation, server optimizer, and lost reports. A warm-up round without a
  server step gives no sample.
* A client whose report is lost is not annealed, because the server does not know that it trained.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.core.plugins import Count, CountOrZero, Positive, PositiveShare
from fedjax_sel.numerics import gaussian_process, sampling
from fedjax_sel.strategies.contract import Env, Now, Outcome, Selection, Strategy, keep_state
from fedjax_sel.strategies.facts import ALL, Request, every, rounds
from fedjax_sel.strategies.fedcor_presets import Importance, Mean, Noise, Numbers, Preset, Task, look_up, resolve


def fedcor(
    *,
    preset: Preset = "paper",
    task: Task = "fmnist",
    warmup: Count | None = None,
    interval: Count | None = None,
    anneal: PositiveShare | None = None,
    discount: PositiveShare | None = None,
    dimension: Count | None = None,
    noise: Noise | None = None,
    probes: Count | None = None,
    warmup_steps: CountOrZero | None = None,
    steps: CountOrZero | None = None,
    learning_rate: Positive | None = None,
    warmup_reuse: CountOrZero | None = None,
    reuse: CountOrZero | None = None,
    mean: Mean | None = None,
    importance: Importance | None = None,
    restored_probes: bool | None = None,
) -> Strategy:
    """Make FedCor. A parameter that is None takes the preset's value.

    Args:
        preset: source of the default numbers: paper, code-2022, code-2023, closed-form, proxy or gpfl-port.
        task: task of the preset's numbers: fmnist or cifar10.
        warmup: number of rounds with random cohorts.
        interval: rounds between updates, Dt; above the number of rounds: no update after the warm-up.
        anneal: annealing factor beta, in (0, 1].
        discount: discount theta per round, in (0, 1].
        dimension: embedding dimension d. None: max(15, K). With d < K, the first d picks leave only noise, and the
            remaining picks are arbitrary among clients with equal alpha_k p_k.
        noise: standard deviation of the uncorrelated noise.
        probes: random cohorts per update, S.
        warmup_steps: Adam steps per fit in the warm-up.
        steps: Adam steps per fit after the warm-up.
        learning_rate: Adam's learning rate.
        warmup_reuse: earlier collections that a fit in the warm-up reuses, M.
        reuse: the same after the warm-up; in rounds for code-2023 and gpfl-port.
        mean: mean of the Gaussian in a fit: zero, or the samples' discounted mean.
        importance: client weights p_i: shares of the data, or uniform.
        restored_probes: whether the model is restored before a probe's losses are measured, so that every change is 0.
    """
    return build("fedcor", **locals())


_DIMENSION = 15  # the papers' embedding dimension


class Samples(NamedTuple):
    """The latest H collections, newest first. A sample without usable answers is stored as not valid.

    A sample is one random cohort's effect on all clients' losses. Its age counts from the round whose model the cohort
    trained (`collected`); its weight in a fit is discount^age.
    """

    values: jax.Array  # loss changes, float32 [H, S, N]
    valid: jax.Array  # bool [H, S]; False before the first collection
    collected: jax.Array  # round of the collection, int32 [H]


class Moments(NamedTuple):
    """Discounted sums over all samples, for the closed form: samples r with weights g."""

    second: jax.Array  # sum g r r^T, float32 [N, N]
    first: jax.Array  # sum g r, float32 [N]
    mass: jax.Array  # sum g, float32 scalar
    collected: jax.Array  # round to which the sums are discounted, int32 scalar
    order: jax.Array  # random order of clients in the decomposition, so that its rounding is unbiased, int32 [N]


class State(NamedTuple):
    """Embeddings, annealing factors and loss changes of the clients."""

    embeddings: jax.Array  # X, float32 [d, N]
    log_scale: jax.Array  # log alpha, float32 [N]; alpha itself may underflow in a run without updates
    previous: jax.Array  # losses at the opening of the previous warm-up round, float32 [N]
    previous_known: jax.Array  # clients that answered in that round, bool [N]
    previous_broken: jax.Array  # whether a queried client returned no finite loss in that round, bool scalar
    memory: Samples | Moments  # loss changes collected so far


def build(name: str, *, preset: str, task: str, **overrides: Any) -> Strategy:
    """Build a strategy of this name from the arguments of `fedcor`."""
    numbers = resolve(name, look_up(name, preset, task), **overrides)
    begin, warmup, interval = numbers.begin, numbers.warmup, numbers.interval
    missing = ("nonfinite", "missing")
    restored = (("restored", True),) if numbers.restored_probes else ()
    options = (("probes", numbers.probes), *restored, missing)
    probe = Request("loss_change", ALL, every(interval, numbers.first_update), options)
    losses = Request("loss", ALL, rounds(begin, warmup), (missing,))

    def init(key: jax.Array, now: Now) -> State:
        n = now.env.num_clients
        dimension = numbers.dimension or max(_DIMENSION, now.env.num_selected)
        key_embeddings, key_memory = jax.random.split(key)
        return State(
            embeddings=jax.random.normal(key_embeddings, (dimension, n), jnp.float32) / dimension**0.5,
            log_scale=jnp.zeros((n,), jnp.float32),
            previous=jnp.zeros((n,), jnp.float32),
            previous_known=jnp.zeros((n,), bool),
            previous_broken=jnp.zeros((), bool),
            memory=empty(key_memory, numbers, n),
        )

    def observe(state: State, now: Now) -> State:
        info, round, available = now.info, now.round, now.available

        def is_broken(kind: str, answered: jax.Array) -> jax.Array:  # whether a queried client gave no finite answer
            if kind in now.env.noise:  # private answers are finite, and a client without budget is not queried
                return jnp.zeros((), bool)
            return (~answered if available is None else available & ~answered).any()

        def measured(state: State) -> State:
            loss, answered = info.loss.value, info.loss.age == 0
            broken, known = is_broken("loss", answered), answered & state.previous_known
            changes = jnp.where(known, loss - state.previous, 0.0)[None]
            usable = (changes != 0).any() & ~broken & ~state.previous_broken  # no change: the server made no step
            added = partial(collect, numbers=numbers, changes=changes, known=usable, round=round - 1)
            memory = lax.cond(round > begin, added, lambda memory: memory, state.memory)
            return state._replace(memory=memory, previous=loss, previous_known=answered, previous_broken=broken)

        def probed(state: State) -> State:
            answered = info.loss_change.age == 0
            changes = jnp.where(answered, info.loss_change.value.T, 0.0)
            usable = answered.any() & ~is_broken("loss_change", answered)
            memory = collect(state.memory, numbers, changes, usable, round - numbers.update_offset)
            return state._replace(memory=memory, log_scale=jnp.zeros_like(state.log_scale))

        def fitted(state: State, in_warmup: bool) -> State:
            return state._replace(embeddings=fit(state.embeddings, state.memory, numbers, in_warmup))

        # The conditions depend only on the round, which is never batched, so `cond` remains a branch under `vmap`. If
        # an update is due in round `warmup`, the warm-up's last fit comes first.
        fit_due = (round > begin) & (round <= warmup) if numbers.every_warmup_fit else round == warmup
        state = lax.cond(losses.when.due(round), measured, keep_state, state)
        state = lax.cond(fit_due, partial(fitted, in_warmup=True), keep_state, state)
        return lax.cond(probe.when.due(round), lambda state: fitted(probed(state), False), keep_state, state)

    def select(key, state: State, now: Now) -> Selection:
        n, k, available = now.env.num_clients, now.env.num_selected, now.available

        def at_random(key):
            return sampling.uniform_without_replacement(key, n, k, available)

        def best(key):
            importance = importance_of(now.env, numbers.importance)
            if numbers.select == "proxy":
                total = _matmul(_matmul(state.embeddings, importance), state.embeddings)
                total += numbers.noise**2 * importance  # sum_i p_i Sigma_ik, [N]
                return sampling.top_k(key, total if available is None else jnp.where(available, total, -jnp.inf), k)
            reachable = state.log_scale if available is None else jnp.where(available, state.log_scale, -jnp.inf)
            # The maximum is over reachable clients, because a never-reachable client keeps alpha = 1 and would make the
            # other scales underflow.
            largest = jnp.maximum(reachable.max(), jnp.finfo(jnp.float32).min)  # finite without reachable clients
            scale = jnp.exp(jnp.minimum(state.log_scale - largest, 0.0))
            model = state.embeddings, importance, scale
            return gaussian_process.select_greedily(*model, k, numbers.noise, key, available)

        ids = lax.cond(now.round < warmup, at_random, best, key)
        return Selection.of(ids, available)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        annealed = outcome.reported & (now.round >= warmup)
        rows = jnp.where(annealed, selection.ids, state.log_scale.shape[0])
        return state._replace(log_scale=state.log_scale.at[rows].add(jnp.log(numbers.anneal), mode="drop"))

    return Strategy(name, select, (losses, probe), init=init, observe=observe, update=update)


def importance_of(env: Env, rule: Importance) -> jax.Array:
    """Return p, float32 [N]."""
    if rule == "uniform":
        return jnp.full((env.num_clients,), 1.0 / env.num_clients, jnp.float32)
    sizes = env.all_sizes.astype(jnp.float32)  # their sum may overflow int32
    return sizes / sizes.sum()


def empty(key: jax.Array, numbers: Numbers, num_clients: int) -> Samples | Moments:
    """Return an empty memory."""
    if numbers.fit == "closed-form":
        order = jax.random.permutation(key, num_clients)
        first = jnp.zeros((num_clients,))
        return Moments(jnp.zeros((num_clients, num_clients)), first, jnp.zeros(()), jnp.zeros((), jnp.int32), order)
    shape = (numbers.slots, numbers.probes)
    return Samples(jnp.zeros((*shape, num_clients)), jnp.zeros(shape, bool), jnp.zeros(shape[:1], jnp.int32))


def collect(
    memory: Samples | Moments, numbers: Numbers, changes: jax.Array, known: jax.Array, round: jax.Array
) -> Samples | Moments:
    """Return a memory with one more collection of loss changes, [s, N] with s at most S; dropped unless `known`."""
    changes = jnp.where(known, changes, 0.0)
    if isinstance(memory, Moments):
        factor = _discount(numbers, round - memory.collected)
        second = factor * memory.second + _matmul(changes.T, changes)
        first = factor * memory.first + changes.sum(axis=0)
        return Moments(second, first, factor * memory.mass + changes.shape[0] * known, round, memory.order)
    spare = numbers.probes - changes.shape[0]
    newest = Samples(
        jnp.pad(changes, ((0, spare), (0, 0))), jnp.pad(jnp.broadcast_to(known, changes.shape[:1]), (0, spare)), round
    )
    return jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), newest, memory)


def fit(embeddings: jax.Array, memory: Samples | Moments, numbers: Numbers, in_warmup: bool) -> jax.Array:
    """Return the embeddings X, [d, N], after the fit that follows a collection; unchanged without a valid sample.

    Adam starts from `embeddings`. `in_warmup` is True for a warm-up sample and False for an update's probe.
    """
    if isinstance(memory, Moments):
        mass = jnp.maximum(memory.mass, jnp.finfo(jnp.float32).tiny)
        mean = memory.first / mass if numbers.mean == "discounted" else jnp.zeros_like(memory.first)
        centered = memory.second / mass - mean[:, None] * mean
        shuffled = centered[memory.order][:, memory.order]
        best = gaussian_process.optimal_embeddings(shuffled, embeddings.shape[0], numbers.noise)
        best = jnp.zeros_like(best).at[:, memory.order].set(best)
        return jnp.where((memory.mass > 0) & jnp.isfinite(best).all(), best, embeddings)
    residuals, weights = _training_set(memory, numbers, in_warmup)
    steps = numbers.warmup_steps if in_warmup else numbers.steps
    return gaussian_process.fit_embeddings(embeddings, residuals, weights, numbers.noise, steps, numbers.learning_rate)


def _training_set(memory: Samples, numbers: Numbers, in_warmup: bool) -> tuple[jax.Array, jax.Array]:
    """Return residuals [H S, N] and their weights [H S]; unused samples have weight zero."""
    distance = 1 if in_warmup or numbers.ages == "rounds" else numbers.interval  # in age, of two samples in a row
    reused_samples = numbers.warmup_reuse if in_warmup else numbers.reuse
    if numbers.ages == "positions":
        age = jnp.arange(memory.collected.shape[0]) * distance
    else:
        age = memory.collected[0] - memory.collected
    used = (age % distance == 0) & (age <= reused_samples * distance)
    weights = jnp.where(used[:, None] & memory.valid, _discount(numbers, age)[:, None], 0.0).reshape(-1)
    values = memory.values.reshape(weights.shape[0], -1)
    if numbers.mean == "discounted":
        values = values - _matmul(weights, values) / jnp.maximum(weights.sum(), jnp.finfo(jnp.float32).tiny)
    return values, weights


_matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def _discount(numbers: Numbers, age: jax.Array) -> jax.Array:
    return jnp.exp(jnp.log(numbers.discount) * age.astype(jnp.float32))
