"""Strategies by name, and schedules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import strategies
from fedjax_sel.errors import UserError
from fedjax_sel.strategies import base


def test_every_name_makes_a_strategy_of_that_name():
    for name in strategies.names():
        assert strategies.make(name).name == name


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("fl_dps", {}, "did you mean 'fl_dp3s'"),
        ("fl_dp3s", {"profil": "fc1"}, "did you mean 'profile'"),
        ("fl_dp3s", {"profile": "fc2"}, "did you mean 'fc1'"),
        ("random", {"variant": 3}, "unknown 3"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(name, arguments, message):
    with pytest.raises(UserError, match=message):
        strategies.make(name, **arguments)


def test_schedules():
    def due(schedule, last=12):
        return [t for t in range(last) if bool(schedule.due(jnp.int32(t)))]

    assert due(base.every(5, offset=2)) == [2, 7]
    assert due(base.rounds(3, 5) | base.every(6)) == [0, 3, 4, 5, 6]
    assert due(base.always(), 3) == [0, 1, 2]
    assert due(base.at_start()) == [] and base.at_start().before_first_round
    assert (base.at_start() | base.rounds(1, 1)).before_first_round


def test_information_is_a_pytree_that_keeps_its_names():
    fact = base.Fact(jnp.arange(3.0), jnp.zeros(3, jnp.int32))
    info = jax.jit(lambda i: i)(base.Information("mine", {"profile": fact}))
    assert info.kinds() == ("profile",)
    np.testing.assert_array_equal(info.profile.value, [0, 1, 2])
    with pytest.raises(base.UndeclaredFactError, match="'mine' reads the fact 'loss'"):
        _ = info.loss
