"""Plays rounds of the contract without training: the simulator's protocol, with answers from a synthetic world."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.strategies import protocol, subset_loss
from fedjax_sel.strategies.base import (
    NEVER,
    Env,
    Information,
    Outcome,
    Request,
    Strategy,
    Unrequested,
    keep_state,
)
from fedjax_sel.strategies.contract import COUNTS, MODEL, OUTPUT_LAYER
from fedjax_sel.strategies.protocol import Keys, Known
from fedjax_sel.testing.synthetic_clients import LARGEST_LOSS, World


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
    """Return what `init` is told."""
    sizes = jnp.asarray(world.sizes)
    return Env(
        num_clients=sizes.shape[0],
        num_selected=game.num_selected,
        num_rounds=game.num_rounds,
        num_classes=COUNTS.num_classes,
        num_params=COUNTS.num_params,
        sizes=sizes,
        importance=sizes / sizes.sum(),
        params=MODEL,
        output_layer=OUTPUT_LAYER,
    )


def begin(strategy: Strategy, game: Game, key: jax.Array, world: World) -> Carry:
    """Return the state and the tables after the facts due at the start are in, before `prepare`."""
    info = protocol.nothing_known(strategy, COUNTS, world.sizes.shape[0])
    everyone = jnp.ones(world.sizes.shape, bool)
    for _, request in protocol.requests_at_start(strategy):
        info = _answered(info, request, world, jnp.int32(0), everyone)
    return Carry(strategy.init(key, environment(game, world)), info)


def prepare(strategy: Strategy, carry: Carry) -> Carry:
    """Run `prepare` of a batch of games as the simulator does: on the CPU, with 64-bit types, cast back after."""
    if strategy.prepare is keep_state:
        return carry
    state = protocol.prepare(protocol.over_replicates(strategy), carry.state, carry.info)
    return carry._replace(state=jax.tree.map(jnp.asarray, state))


def one_round(strategy: Strategy, carry: Carry, round: jax.Array, key: jax.Array, world: World) -> tuple[Carry, Record]:
    """Play one round of a game.

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

    def serve(info: Information, bill: None, who: str, ids=None, mask=None, arrives=None) -> tuple[Information, None]:
        nobody = jnp.zeros((num_clients,), bool)
        if ids is None:
            asked = reachable
        elif mask is None:
            asked = nobody.at[ids].set(True, mode="drop") & reachable
        else:
            asked = nobody.at[ids].max(mask, mode="drop")
        for _, request in protocol.requests_to(strategy, who):
            info = _answered(info, request, world, round, asked & request.when.due(round))
        return info, bill

    known = Known(carry.state, carry.info)
    keys = Keys(key_candidates, key_select)
    known, (selection, candidates) = protocol.select(strategy, serve, known, keys, round, available)
    known = protocol.ask_cohort(serve, known, selection)
    outcome = outcome_of(strategy, world, round, selection)
    state, info, _ = protocol.learn(strategy, known, round, selection, outcome)

    nan = jnp.zeros((), bool)
    for leaf in jax.tree.leaves(state):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            nan |= jnp.isnan(leaf).any()
    return Carry(state, info), Record(*selection, candidates, nan)


def outcome_of(strategy: Strategy, world: World, round: jax.Array, selection: Any) -> Outcome:
    """Return what the cohort sends back; the step is the mean of what is finite."""
    ids = selection.ids
    updates = jax.tree.map(lambda table: jnp.asarray(table)[round, ids], world.updates)
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
    before, lengths = jnp.minimum(after * 1.25, LARGEST_LOSS), jnp.asarray(world.sizes, jnp.float32)[ids] / 100.0
    subsets = subset_loss.stand_in(strategy, jnp.where(kept, after, 0.0))
    return Outcome(updates, before, after, jax.tree.map(mean, updates), finite, metrics, lengths, subsets)


def play(strategy: Strategy, num_rounds: int, carry: Carry, key: jax.Array, world: World) -> tuple[Carry, Record]:
    """Play a game of several rounds as one scan; records have the leading axis [T]."""

    def step(carry: Carry, round: jax.Array) -> tuple[Carry, Record]:
        return one_round(strategy, carry, round, key, world)

    return lax.scan(step, carry, jnp.arange(num_rounds, dtype=jnp.int32))


def _answered(info: Information, request: Request, world: World, round: jax.Array, heard: jax.Array) -> Information:
    """Enter what a world's clients answer; `heard` [N] are those who do."""
    age: Any = 0
    if request.option("nonfinite") == "missing":
        age = jnp.where(jnp.asarray(world.missing)[round], NEVER, 0)  # beside a value that stands in
    return protocol.entered(info, request.kind, jnp.asarray(world.facts[request.kind])[round], heard, age)
