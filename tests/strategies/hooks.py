"""Arguments of a strategy's hooks, for tests."""

import jax
import jax.numpy as jnp

from fedjax_sel.strategies.contract import Env, Fact, Information, Now, Outcome
from fedjax_sel.strategies.protocol import initial_state


def env_of(sizes, num_selected, num_rounds=10, num_classes=4, num_params=100, **more):
    """The environment of clients with these numbers of examples."""
    sizes = jnp.asarray(sizes, jnp.int32)
    counts = (len(sizes), num_selected, num_rounds, num_classes, num_params)
    return Env(*counts, sizes, (sizes / sizes.sum()).astype(jnp.float32), **more)


def now_of(env, info=None, round=0, available=None):
    """What the server knows; without `info`, no fact is bought."""
    return Now(env, Information("strategy", {}) if info is None else info, jnp.int32(round), available)


def info_of(name="strategy", **facts):
    """The tables of facts, from values or from pairs of values and ages."""
    tables = {}
    for kind, given in facts.items():
        value, age = given if isinstance(given, tuple) else (given, 0)
        value = jnp.asarray(value, jnp.float32)
        tables[kind] = Fact(value, jnp.broadcast_to(jnp.asarray(age, jnp.int32), value.shape[:1]))
    return Information(name, tables)


def outcome_of(reported, updates=None, finite=None, **more):
    """The outcome of a round; without `finite`, every update that arrives is finite."""
    reported = jnp.asarray(reported, bool)
    return Outcome(updates, None, None, None, reported, reported if finite is None else jnp.asarray(finite), **more)


def started(strategy, now, seed=0):
    """The state before the first round, as in the simulator."""
    return jax.tree.map(jnp.asarray, initial_state(strategy, jax.random.key(seed), now))
