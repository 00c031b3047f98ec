"""Which strategies plan for the number of rounds."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import strategies
from fedjax_sel.runs.resume import depends_on_num_rounds
from fedjax_sel.strategies.contract import Strategy

PLANNERS = ("gpfl", "tifl", "kvib", "hics_fl", "osmd")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in (*PLANNERS, "random") else pytest.mark.slow) for name in strategies.TABLE],
)
def test_these_alone_plan_ahead(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        depends = depends_on_num_rounds(strategies.make(name), (20, 4), 30, 50, True)
    assert depends == (name in PLANNERS)


@pytest.mark.parametrize("plans", [True, False])
def test_a_table_of_the_same_shape_counts(plans):
    """Its numbers are in no text of a program."""
    plain = strategies.make("random")

    def init(key, now):
        rounds = now.env.num_rounds if plans else 7
        return jnp.asarray(np.linspace(1 / rounds, 1, 5, dtype=np.float32))

    strategy = Strategy("planned", plain.select, init=init)
    assert depends_on_num_rounds(strategy, (20, 4), 30, 50, True) == plans


def test_functions_that_may_read_the_number_of_rounds_do():
    def select(rng, state, now):
        return [0, 1] if now.round < now.env.num_rounds / 2 else [2, 3]

    assert depends_on_num_rounds(strategies.from_numpy("mine", select), (20, 4), 30, 50, True)


@pytest.mark.parametrize(
    "numbers,expected", [({"alpha": "const"}, False), ({"alpha": "tent"}, False), ({"alpha": "decay"}, True)]
)
def test_a_rule_without_the_number_of_rounds_does_not(numbers, expected):
    strategy = strategies.make("gpfl", **numbers)
    assert depends_on_num_rounds(strategy, (20, 4), 30, 50, True) == expected
