"""The state, schedule and selection shared by FedGP and FedCor. Symbols and sources: fedcor/__init__.py."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.numerics import gaussian_process, sampling
from fedjax_sel.strategies.base import ALL, Env, Information, Request, Selection, Static, Strategy, every, rounds
from fedjax_sel.strategies.fedcor import memory as memories
from fedjax_sel.strategies.fedcor.memory import Moments, Samples
from fedjax_sel.strategies.fedcor.presets import Numbers

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


def build(name: str, numbers: Numbers) -> Strategy:
    """Build a strategy.

    Args:
        name: name of the strategy.
        numbers: resolved preset, static.
    """
    begin, warmup, interval = numbers.begin, numbers.warmup, numbers.interval
    missing = ("nonfinite", "missing")
    restored = (("restored", True),) if numbers.restored_probes else ()
    requests = (
        Request("loss", ALL, rounds(begin, warmup), (missing,)),
        Request(
            "loss_change", ALL, every(interval, numbers.first_update), (("probes", numbers.probes), *restored, missing)
        ),
    )

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
            memory=memories.empty(key_memory, numbers, n),
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
            memory = lax.cond(
                round > begin,
                lambda memory: memories.collect(memory, numbers, changes, usable, round - 1),
                lambda memory: memory,
                state.memory,
            )
            return state._replace(memory=memory, previous=loss, previous_known=answered, previous_broken=broken)

        def probed(state: State) -> State:
            answered, broken = answers(info.loss_change.age)
            changes = jnp.where(answered, info.loss_change.value.T, 0.0)
            usable = answered.any() & ~broken
            memory = memories.collect(state.memory, numbers, changes, usable, round - numbers.shift)
            return state._replace(memory=memory, log_scale=jnp.zeros_like(state.log_scale))

        def fitted(state: State, in_warmup: bool) -> State:
            return state._replace(embeddings=memories.fit(state.embeddings, state.memory, numbers, in_warmup))

        # The conditions depend only on the round, which is never batched, so `cond` remains a branch under `vmap`. If
        # an update is due in round `warmup`, the warm-up's last fit comes first.
        fit_due = (round > begin) & (round <= warmup) if numbers.every_warmup_fit else round == warmup
        state = lax.cond(requests[0].when.due(round), measured, _same, state)
        state = lax.cond(fit_due, partial(fitted, in_warmup=True), _same, state)
        return lax.cond(requests[1].when.due(round), lambda state: fitted(probed(state), False), _same, state)

    def select(key, state: State, info, round, available) -> Selection:
        del info
        k, n = state.num_selected.value, state.importance.shape[0]

        def at_random(key):
            return sampling.uniform_without_replacement(key, n, k, available)

        def best(key):
            if numbers.select == "proxy":
                total = _total_covariance(state.embeddings, state.importance, numbers.noise)
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

    return Strategy(name=name, init=init, select=select, requests=requests, observe=observe, update=update)


def _same(state: State) -> State:
    return state


def _total_covariance(embeddings: jax.Array, importance: jax.Array, noise: float) -> jax.Array:
    """Return sum_i p_i Sigma_ik, [N]."""
    total = jnp.matmul(embeddings, importance, precision=lax.Precision.HIGHEST)
    return jnp.matmul(total, embeddings, precision=lax.Precision.HIGHEST) + noise**2 * importance
