"""Simulated rounds without training: the strategy protocol with answers from a synthetic world."""

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
    """The static configuration of a game."""

    num_selected: int
    num_rounds: int  # T in the strategy's `Env`


class Carry(NamedTuple):
    """The scan carry between rounds."""

    state: Any
    info: Information


class Record(NamedTuple):
    """The record of one round; scan and vmap add leading axes."""

    ids: jax.Array  # [K]
    weights: jax.Array | None  # [K]
    mask: jax.Array  # [K]
    candidates: jax.Array | None  # [d]
    nan: jax.Array  # whether the state holds NaN after `update`


def environment(game: Game, world: World) -> Env:
    """Return the `Env` passed to `init`."""
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


def initialize(strategy: Strategy, game: Game, key: jax.Array, world: World) -> Carry:
    """Return the state and the tables of facts after the start facts have been measured, before `prepare`."""
    info = protocol.nothing_known(strategy, COUNTS, world.sizes.shape[0])
    everyone = jnp.ones(world.sizes.shape, bool)
    for _, request in protocol.requests_at_start(strategy):
        info = _answered(info, request, world, jnp.int32(0), everyone)
    return Carry(strategy.init(key, environment(game, world)), info)


def prepare(strategy: Strategy, carry: Carry) -> Carry:
    """Run `prepare` for a batch of games as the simulator does: on the CPU, with 64-bit types, then cast back."""
    if strategy.prepare is keep_state:
        return carry
    state = protocol.prepare(protocol.over_replicates(strategy), carry.state, carry.info)
    return carry._replace(state=jax.tree.map(jnp.asarray, state))


def one_round(strategy: Strategy, carry: Carry, round: jax.Array, key: jax.Array, world: World) -> tuple[Carry, Record]:
    """Play one round of a game.

    Args:
        strategy: strategy under test.
        carry: the state and the tables of facts.
        round: round number from 0, int32 scalar.
        key: random key of the game.
        world: the synthetic answers of the clients.

    Returns:
        The next carry, and the record of the round.
    """
    num_clients = world.sizes.shape[0]
    key_candidates, key_select = jax.random.split(jax.random.fold_in(key, round))
    available = None if world.available is None else jnp.asarray(world.available)[round]
    reachable = jnp.ones((num_clients,), bool) if available is None else available

    def serve(info: Information, bill: None, who: str, ids=None, mask=None, arrives=None) -> tuple[Information, None]:
        no_client = jnp.zeros((num_clients,), bool)
        if ids is None:
            queried = reachable
        elif mask is None:
            queried = no_client.at[ids].set(True, mode="drop") & reachable
        else:
            queried = no_client.at[ids].max(mask, mode="drop")
        for _, request in protocol.requests_to(strategy, who):
            info = _answered(info, request, world, round, queried & request.when.due(round))
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
    """Return the outcome of a round; the step is the mean of the finite updates."""
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
    """Play a game as one scan over rounds; records have a leading axis [T]."""

    def step(carry: Carry, round: jax.Array) -> tuple[Carry, Record]:
        return one_round(strategy, carry, round, key, world)

    return lax.scan(step, carry, jnp.arange(num_rounds, dtype=jnp.int32))


def _answered(info: Information, request: Request, world: World, round: jax.Array, answers: jax.Array) -> Information:
    """Return the tables with the world's answers of the clients in `answers`, bool [N]."""
    age: Any = 0
    if request.option("nonfinite") == "missing":
        age = jnp.where(jnp.asarray(world.missing)[round], NEVER, 0)  # NEVER marks an imputed value
    return protocol.entered(info, request.kind, jnp.asarray(world.facts[request.kind])[round], answers, age)
