"""Plays rounds of the contract without training: hooks in the simulator's order, answers from a synthetic world.

measure ALL -> observe -> candidates -> measure CANDIDATES -> select -> measure SELECTED -> update -> age
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel.jax_versions import enable_x64
from fedjax_sel.simulation.contract import COUNTS
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import (
    ALL,
    CANDIDATES,
    NEVER,
    SELECTED,
    Env,
    Fact,
    Information,
    Outcome,
    Strategy,
    Unrequested,
    keep_state,
)
from fedjax_sel.testing.worlds import LARGEST_LOSS, World


class Game(NamedTuple):
    """What is fixed before tracing. Static."""

    num_selected: int
    num_rounds: int  # that the strategy is told of


class Carry(NamedTuple):
    """What a round hands to the next."""

    state: Any
    info: Information


class Record(NamedTuple):
    """A round; leading axes are added by scan and vmap."""

    ids: jax.Array  # [K]
    weights: jax.Array | None  # [K]
    mask: jax.Array  # [K]
    candidates: jax.Array | None  # [d]
    nan: jax.Array  # whether the state holds NaN after `update`


def environment(game: Game, world: World) -> Env:
    """What `init` is told."""
    sizes = jnp.asarray(world.sizes)
    return Env(
        num_clients=sizes.shape[0],
        num_selected=game.num_selected,
        num_rounds=game.num_rounds,
        num_classes=COUNTS.num_classes,
        num_params=COUNTS.num_params,
        sizes=sizes,
        importance=sizes / sizes.sum(),
    )


def begin(strategy: Strategy, game: Game, key: jax.Array, world: World) -> Carry:
    """The state and the tables after the facts due at the start are in, before `prepare`."""
    info = protocol.nothing_known(strategy, COUNTS, world.sizes.shape[0])
    everyone = jnp.ones(world.sizes.shape, bool)
    for request in strategy.requests:
        if request.when.before_first_round:
            info = info.replace(request.kind, _answer(info, request, world, jnp.int32(0), everyone))
    return Carry(strategy.init(key, environment(game, world)), info)


def prepare(strategy: Strategy, carry: Carry) -> Carry:
    """`prepare` of a batch of games, as the simulator runs it: on the CPU, with 64-bit types, cast back after."""
    if strategy.prepare is keep_state:
        return carry
    given = jax.tree.map(_on_host, carry)
    with enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        state = jax.jit(jax.vmap(strategy.prepare))(given.state, given.info)
        state = jax.tree.map(_on_host, state)
    return carry._replace(state=jax.tree.map(_cast, carry.state, state))


def one_round(strategy: Strategy, carry: Carry, round: jax.Array, key: jax.Array, world: World) -> tuple[Carry, Record]:
    """One round.

    Args:
        strategy: under test.
        carry: the state and the tables.
        round: counted from 0, int32 scalar.
        key: of the whole game.
        world: what clients answer.

    Returns:
        The next carry, and what happened.
    """
    num_clients = world.sizes.shape[0]
    key_candidates, key_select = jax.random.split(jax.random.fold_in(key, round))
    available = None if world.available is None else jnp.asarray(world.available)[round]
    reachable = jnp.ones((num_clients,), bool) if available is None else available

    info = _measure(strategy, carry.info, ALL, world, round, reachable)
    state = strategy.observe(carry.state, info, round, available)
    candidates = None
    if strategy.candidates is not None:
        candidates = strategy.candidates(key_candidates, state, info, round, available)
        asked = jnp.zeros((num_clients,), bool).at[candidates].set(True, mode="drop") & reachable
        info = _measure(strategy, info, CANDIDATES, world, round, asked)
    selection = strategy.select(key_select, state, info, round, available)
    trained = jnp.zeros((num_clients,), bool).at[selection.ids].max(selection.mask, mode="drop")
    info = _measure(strategy, info, SELECTED, world, round, trained)
    state = strategy.update(state, info, round, selection, outcome_of(strategy, world, round, selection))

    nan = jnp.zeros((), bool)
    for leaf in jax.tree.leaves(state):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            nan |= jnp.isnan(leaf).any()
    return Carry(state, _older(info)), Record(*selection, candidates, nan)


def outcome_of(strategy: Strategy, world: World, round: jax.Array, selection: Any) -> Outcome:
    """What the cohort sends back; the step is the mean of what is finite."""
    ids = selection.ids
    updates = {name: jnp.asarray(table)[round, ids] for name, table in world.updates.items()}
    finite = jnp.asarray(world.finite)[round, ids]
    kept = selection.mask & finite

    def mean(leaf: jax.Array) -> jax.Array:
        rows = jnp.where(kept.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0.0)
        return rows.sum(axis=0) / jnp.maximum(kept.sum(), 1)

    metrics = (
        jax.tree.map(lambda leaf: jnp.asarray(leaf)[round], world.metrics)
        if any(request.kind == "server_metrics" for request in strategy.requests)
        else Unrequested(strategy.name, "server_metrics")
    )
    after = jnp.asarray(world.losses_after)[round, ids]
    return Outcome(
        updates, jnp.minimum(after * 1.25, LARGEST_LOSS), after, jax.tree.map(mean, updates), finite, metrics
    )


def play(strategy: Strategy, num_rounds: int, carry: Carry, key: jax.Array, world: World) -> tuple[Carry, Record]:
    """A game of several rounds as one scan; records have the leading axis [T]."""

    def step(carry: Carry, round: jax.Array) -> tuple[Carry, Record]:
        return one_round(strategy, carry, round, key, world)

    return lax.scan(step, carry, jnp.arange(num_rounds, dtype=jnp.int32))


def _measure(strategy: Strategy, info: Information, who: str, world: World, round: jax.Array, asked: jax.Array):
    """Serves the requests to `who` that are due; `asked` [N] are those who answer."""
    for request in strategy.requests:
        if request.who == who and request.kind in world.facts and request.when.rules:
            info = info.replace(request.kind, _answer(info, request, world, round, asked & request.when.due(round)))
    return info


def _answer(info: Information, request: Any, world: World, round: jax.Array, asked: jax.Array) -> Fact:
    old: Fact = getattr(info, request.kind)
    value, age = jnp.asarray(world.facts[request.kind])[round], jnp.zeros_like(old.age)
    shape = (-1,) + (1,) * (value.ndim - 1)
    if request.option("nonfinite") == "missing":
        age = jnp.where(jnp.asarray(world.missing)[round], NEVER, age)  # beside a value that stands in
    return Fact(jnp.where(asked.reshape(shape), value, old.value), jnp.where(asked, age, old.age))


def _older(info: Information) -> Information:
    for kind in info.kinds():
        fact = getattr(info, kind)
        info = info.replace(kind, Fact(fact.value, jnp.minimum(fact.age + 1, NEVER)))
    return info


def _on_host(leaf: Any) -> Any:
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def _cast(old: Any, new: Any) -> Any:
    return new if jnp.issubdtype(old.dtype, jax.dtypes.prng_key) else jnp.asarray(np.asarray(new).astype(old.dtype))
