"""Cohorts of every strategy in one small synthetic federation, as they were: a change of these is a change of results.

    python tests/strategies/test_golden.py        writes golden.json anew, after a change that is meant

Sums round differently on other processors, and a cohort may then differ where two clients are nearly equal; the
federation is so small and so unequal that none is.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import strategies
from fedjax_sel.testing import bench
from fedjax_sel.testing.bench import World

FILE = Path(__file__).parent / "golden.json"
CLIENTS, SELECTED, ROUNDS = 12, 3, 8
SHORT = {"warmup": 3, "interval": 2}
HYPERPARAMETERS = {
    "fedcor": {"preset": "closed-form", **SHORT},
    # Adam's first steps take the sign of each number, also where it is nothing but rounding: small ones, and few.
    "fedgp": {"warmup_steps": 2, "steps": 2, "learning_rate": 1e-3, **SHORT},
}


def cohorts(name: str) -> list[list[int]]:
    """Who trains in each round."""
    strategy = strategies.make(name, **HYPERPARAMETERS.get(name, {}))
    world = World.ordinary(strategy, CLIENTS, ROUNDS, seed=0)
    tables = jax.tree.map(jnp.asarray, world)
    game = bench.Options(CLIENTS, SELECTED, ROUNDS)
    start = jax.jit(jax.vmap(lambda key: bench.start_of(strategy, game, key, tables)))(jax.random.key(0)[None])
    carry = jax.tree.map(lambda leaf: leaf[0], bench.initial_carry(strategy, *start))
    play = jax.jit(lambda carry, key, world: bench.play_rounds(strategy, game, ROUNDS, carry, key, world)[1])
    records = play(carry, jax.random.key(1), tables)
    if strategy.max_selected is not None:
        return [np.asarray(ids)[mask].tolist() for ids, mask in zip(records.ids, np.asarray(records.mask))]
    return np.asarray(records.ids).tolist()


@pytest.mark.parametrize("name", strategies.names())
def test_cohorts_are_as_they_were(name):
    assert cohorts(name) == json.loads(FILE.read_text())[name]


def test_every_strategy_is_in_the_file_and_none_is_like_another():
    golden = json.loads(FILE.read_text())
    assert tuple(golden) == strategies.names()
    assert len({str(ids) for ids in golden.values()}) == len(golden)


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(cohorts(name))}" for name in strategies.names()]
    sys.exit(FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n") == 0)
