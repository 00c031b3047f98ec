"""FedCor's presets, its memory of observed losses, and the Gaussian process fitted to it."""

from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import gaussian_process, sampling
from fedjax_sel.strategies.base import ALL, Env, Information, Request, Selection, Static, Strategy, every, rounds

Preset = Literal["paper", "code-2022", "code-2023", "closed-form", "proxy", "gpfl-port"]
Task = Literal["fmnist", "cifar10"]
Mean = Literal["zero", "discounted"]
Importance = Literal["shares", "uniform"]


class Numbers(NamedTuple):
    """A resolved preset. Static.

    A fit uses samples at equal distances in age, up to `reuse` distances old, with weight discount^age.
    """

    warmup: int  # rounds with random cohorts
    begin: int  # the first round whose loss change is a sample
    interval: int  # rounds between updates of the model of loss changes, Delta t
    update_offset: int  # updates are in rounds t with (t - offset) % interval = 0; a probe is dated to round t - offset
    every_warmup_fit: bool  # False: one fit at the end of the warm-up
    warmup_steps: int  # Adam steps per fit in the warm-up
    steps: int  # Adam steps per later fit
    warmup_reuse: int  # M in the warm-up, at distance 1
    reuse: int  # M after the warm-up, at distance `interval`; with ages="rounds" a number of rounds
    # Age of a sample. spaced: in rounds; positions: number of later collections, times the distance; rounds: in rounds,
    # at distance 1, so that a fit uses all samples of the last `reuse` rounds.
    ages: Literal["spaced", "positions", "rounds"]
    discount: float  # theta, per round
    anneal: float  # beta
    mean: Mean  # mu of the Gaussian in a fit
    fit: Literal["adam", "closed-form"]
    select: Literal["greedy", "proxy"]
    importance: Importance
    dimension: int | None  # d; None: max(15, K)
    restored_probes: bool = False  # restores the model before a probe's losses are measured, so every change is zero
    noise: float = 0.01  # sigma
    probes: int = 1  # S
    learning_rate: float = 0.01

    @property
    def first_update(self) -> int:
        """The first update: the smallest t >= warmup + update_offset with (t - update_offset) % interval = 0."""
        return self.update_offset + self.interval * -(-self.warmup // self.interval)

    @property
    def slots(self) -> int:
        """The number of collections H that later fits can use."""
        updates = self.reuse // self.interval if self.ages == "rounds" else self.reuse
        return self.warmup - self.begin + updates + 1


_PAPER = Numbers(
    warmup=15, begin=0, interval=10, update_offset=0, every_warmup_fit=True, warmup_steps=150, steps=100,
    warmup_reuse=10, reuse=1, ages="spaced", discount=0.9, anneal=0.95, mean="zero", fit="adam",
    select="greedy", importance="shares", dimension=None,
)  # fmt: skip
_PAPER_CIFAR10 = _PAPER._replace(warmup=20, interval=50, discount=0.99, anneal=0.9)
_CODE_2022 = _PAPER._replace(warmup=16, begin=10, update_offset=1, ages="positions", discount=0.8)
_CODE_2022_CIFAR10 = _CODE_2022._replace(warmup=21, interval=50, discount=0.97, anneal=0.9)
_CODE_2023 = _PAPER._replace(
    warmup=16, update_offset=1, every_warmup_fit=False, warmup_steps=1000, ages="rounds", warmup_reuse=100, reuse=100,
    discount=0.95, mean="discounted",
)  # fmt: skip
_CODE_2023_CIFAR10 = _CODE_2023._replace(warmup=21, interval=50, warmup_reuse=500, reuse=500, discount=0.99, anneal=0.9)
# script/test.sh and script/test_fedcor.sh of joapolarbear/PBFL use the same numbers for every data set.
_GPFL_PORT = _CODE_2023_CIFAR10._replace(importance="uniform", restored_probes=True)

_TABLE: dict[tuple[str, str], Numbers] = {
    ("paper", "fmnist"): _PAPER,
    ("paper", "cifar10"): _PAPER_CIFAR10,
    ("code-2022", "fmnist"): _CODE_2022,
    ("code-2022", "cifar10"): _CODE_2022_CIFAR10,
    ("code-2023", "fmnist"): _CODE_2023,
    ("code-2023", "cifar10"): _CODE_2023_CIFAR10,
    ("closed-form", "fmnist"): _PAPER._replace(fit="closed-form", every_warmup_fit=False),
    ("closed-form", "cifar10"): _PAPER_CIFAR10._replace(fit="closed-form", every_warmup_fit=False),
    ("proxy", "fmnist"): _PAPER._replace(select="proxy"),
    ("proxy", "cifar10"): _PAPER_CIFAR10._replace(select="proxy"),
    ("gpfl-port", "fmnist"): _GPFL_PORT,
    ("gpfl-port", "cifar10"): _GPFL_PORT,
    ("fedgp", "fmnist"): _PAPER._replace(warmup_reuse=1),
    ("fedgp", "cifar10"): _PAPER_CIFAR10._replace(warmup_reuse=1, warmup=15, anneal=0.97),
}

_AT_LEAST = {
    "warmup": (1, "the papers use 15"),
    "interval": (1, "the papers use 10"),
    "warmup_steps": (0, "the public code uses 150"),
    "steps": (0, "the public code uses 100"),
    "warmup_reuse": (0, "the papers use 10"),
    "reuse": (0, "the papers use 1"),
    "dimension": (1, "the papers use 15"),
    "probes": (1, "the papers use 1"),
}
_ABOVE_ZERO = {"noise": "the public code uses 0.01", "learning_rate": "the papers use 0.01"}
_LEAST_NOISE = 1e-10
_UP_TO_ONE = {"anneal": "the papers use 0.95", "discount": "the papers use 0.9"}
_WITHOUT_EFFECT = {  # rule of the fit or of the selection, named like its preset -> parameters that it ignores
    "closed-form": ("warmup_steps", "steps", "learning_rate", "warmup_reuse", "reuse"),
    "proxy": ("anneal",),
}
_CHOICES = {"mean": get_args(Mean), "importance": get_args(Importance), "restored_probes": (False, True)}


def resolve(strategy: str, preset: Numbers, **overrides: int | float | str | None) -> Numbers:
    """Return a preset with a user's overrides of its fields; None keeps the preset's value."""
    chosen = {name: value for name, value in overrides.items() if value is not None}
    for name, value in chosen.items():
        problem = _problem(name, value)
        if problem:
            raise UserError(f"{strategy}: {name}={value} {problem}")
        for rule in (preset.fit, preset.select):
            if name in _WITHOUT_EFFECT.get(rule, ()):
                raise UserError(f"{strategy}: {name}={value} has no effect with preset={rule}; leave it out")
    numbers = preset._replace(**chosen)
    return numbers._replace(begin=min(numbers.begin, numbers.warmup - 1))


def look_up(strategy: str, preset: str, task: str) -> Numbers:
    """Return the numbers of a preset for a task; `paper` is the strategy's own paper."""
    if task not in get_args(Task):
        raise UserError(f"{strategy}: task={task!r} is unknown; choose from {', '.join(get_args(Task))}")
    if preset not in get_args(Preset):
        raise UserError(f"{strategy}: preset={preset!r} is unknown; choose from {', '.join(get_args(Preset))}")
    return _TABLE["fedgp" if strategy == "fedgp" and preset == "paper" else preset, task]


def _problem(name: str, value: int | float | str) -> str | None:
    if name in _CHOICES:
        return None if value in _CHOICES[name] else f"is unknown; choose from {', '.join(map(str, _CHOICES[name]))}"
    assert not isinstance(value, str)
    if name in _AT_LEAST:
        smallest, usual = _AT_LEAST[name]
        return None if value >= smallest else f"is below {smallest}; {usual}"
    if name == "noise" and 0 < value < _LEAST_NOISE:
        return f"is below {_LEAST_NOISE:g}, where float32 divisions overflow; {_ABOVE_ZERO[name]}"
    if name in _ABOVE_ZERO:
        return None if 0 < value < float("inf") else f"is not a positive number; {_ABOVE_ZERO[name]}"
    return None if 0 < value <= 1 else f"is outside (0, 1]; {_UP_TO_ONE[name]}"


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
        product = jnp.matmul(changes.T, changes, precision=lax.Precision.HIGHEST)
        second, first = factor * memory.second + product, factor * memory.first + changes.sum(axis=0)
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
        total = jnp.matmul(weights, values, precision=lax.Precision.HIGHEST)
        values = values - total / jnp.maximum(weights.sum(), jnp.finfo(jnp.float32).tiny)
    return values, weights


def _discount(numbers: Numbers, age: jax.Array) -> jax.Array:
    return jnp.exp(jnp.log(numbers.discount) * age.astype(jnp.float32))


_DIMENSION = 15  # the papers' embedding dimension


class State(NamedTuple):
    """Embeddings, annealing factors and loss changes of the clients."""

    num_selected: Static  # K
    importance: jax.Array  # p, float32 [N]
    embeddings: jax.Array  # X, float32 [d, N]
    log_scale: jax.Array  # log alpha, float32 [N]; alpha itself may underflow in a run without updates
    previous: jax.Array  # losses at the opening of the previous warm-up round, float32 [N]
    previous_known: jax.Array  # clients that answered in that round, bool [N]
    previous_broken: jax.Array  # whether a queried client returned no finite loss in that round, bool scalar
    memory: Samples | Moments  # loss changes collected so far


def build_with(name: str, *, preset: str, task: str, **overrides: int | float | str | None) -> Strategy:
    """Build a strategy from the arguments of `fedcor` or `fedgp`."""
    return build(name, resolve(name, look_up(name, preset, task), **overrides))


def build(name: str, numbers: Numbers) -> Strategy:
    """Build a strategy from a resolved preset."""
    begin, warmup, interval = numbers.begin, numbers.warmup, numbers.interval
    missing = ("nonfinite", "missing")
    restored = (("restored", True),) if numbers.restored_probes else ()
    options = (("probes", numbers.probes), *restored, missing)
    probe = Request("loss_change", ALL, every(interval, numbers.first_update), options)
    losses = Request("loss", ALL, rounds(begin, warmup), (missing,))

    def init(key: jax.Array, env: Env) -> State:
        n = env.num_clients
        dimension = numbers.dimension or max(_DIMENSION, env.num_selected)
        uniform = jnp.full((n,), 1.0 / n, jnp.float32)
        sizes = env.all_sizes.astype(jnp.float32)  # their sum may overflow int32
        key_embeddings, key_memory = jax.random.split(key)
        return State(
            num_selected=Static(env.num_selected),
            importance=uniform if numbers.importance == "uniform" else sizes / sizes.sum(),
            embeddings=jax.random.normal(key_embeddings, (dimension, n), jnp.float32) / dimension**0.5,
            log_scale=jnp.zeros((n,), jnp.float32),
            previous=jnp.zeros((n,), jnp.float32),
            previous_known=jnp.zeros((n,), bool),
            previous_broken=jnp.zeros((), bool),
            memory=empty(key_memory, numbers, n),
        )

    def observe(state: State, info: Information, round: jax.Array, available: jax.Array | None) -> State:
        def answers(age: jax.Array) -> tuple[jax.Array, jax.Array]:
            """Return the clients that answered, and whether a queried client gave no finite answer."""
            answered = age == 0
            return answered, (~answered if available is None else available & ~answered).any()

        def measured(state: State) -> State:
            loss = info.loss.value
            answered, broken = answers(info.loss.age)
            known = answered & state.previous_known
            changes = jnp.where(known, loss - state.previous, 0.0)[None]
            usable = known.any() & ~broken & ~state.previous_broken

            def added(memory: Samples | Moments) -> Samples | Moments:
                return collect(memory, numbers, changes, usable, round - 1)

            memory = lax.cond(round > begin, added, _same, state.memory)
            return state._replace(memory=memory, previous=loss, previous_known=answered, previous_broken=broken)

        def probed(state: State) -> State:
            answered, broken = answers(info.loss_change.age)
            changes = jnp.where(answered, info.loss_change.value.T, 0.0)
            usable = answered.any() & ~broken
            memory = collect(state.memory, numbers, changes, usable, round - numbers.update_offset)
            return state._replace(memory=memory, log_scale=jnp.zeros_like(state.log_scale))

        def fitted(state: State, in_warmup: bool) -> State:
            return state._replace(embeddings=fit(state.embeddings, state.memory, numbers, in_warmup))

        # The conditions depend only on the round, which is never batched, so `cond` remains a branch under `vmap`. If
        # an update is due in round `warmup`, the warm-up's last fit comes first.
        fit_due = (round > begin) & (round <= warmup) if numbers.every_warmup_fit else round == warmup
        state = lax.cond(losses.when.due(round), measured, _same, state)
        state = lax.cond(fit_due, partial(fitted, in_warmup=True), _same, state)
        return lax.cond(probe.when.due(round), lambda state: fitted(probed(state), False), _same, state)

    def select(key, state: State, info, round, available) -> Selection:
        del info
        k, n = state.num_selected.value, state.importance.shape[0]

        def at_random(key):
            return sampling.uniform_without_replacement(key, n, k, available)

        def best(key):
            if numbers.select == "proxy":
                total = jnp.matmul(state.embeddings, state.importance, precision=lax.Precision.HIGHEST)
                total = jnp.matmul(total, state.embeddings, precision=lax.Precision.HIGHEST)
                total += numbers.noise**2 * state.importance  # sum_i p_i Sigma_ik, [N]
                return sampling.top_k(key, total if available is None else jnp.where(available, total, -jnp.inf), k)
            reachable = state.log_scale if available is None else jnp.where(available, state.log_scale, -jnp.inf)
            # The maximum is over reachable clients, because a never-reachable client keeps alpha = 1 and would make the
            # other scales underflow.
            largest = jnp.maximum(reachable.max(), jnp.finfo(jnp.float32).min)  # finite without reachable clients
            scale = jnp.exp(jnp.minimum(state.log_scale - largest, 0.0))
            return gaussian_process.select_greedily(
                state.embeddings, state.importance, scale, k, numbers.noise, key, available
            )

        ids = lax.cond(round < warmup, at_random, best, key)
        return Selection(ids, None, jnp.ones((k,), bool) if available is None else available[ids])

    def update(state: State, info, round, selection: Selection, outcome) -> State:
        del info, outcome
        annealed = selection.mask & (round >= warmup)
        rows = jnp.where(annealed, selection.ids, state.log_scale.shape[0])
        return state._replace(log_scale=state.log_scale.at[rows].add(jnp.log(numbers.anneal), mode="drop"))

    return Strategy(name=name, init=init, select=select, requests=(losses, probe), observe=observe, update=update)


def _same(value: Any) -> Any:
    return value
