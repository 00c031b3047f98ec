"""Digests of the parameters inside values: equal in each process, different for each parameter."""

import contextlib
import dataclasses
import datetime
import fractions
import functools
import pathlib
import subprocess
import sys
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import UserError, strategies
from fedjax_sel.core.plugins import parameter_digest
from fedjax_sel.training import optimizers

MADE_BY = {"strategies": strategies, "optimizers": optimizers}
NAMES = [(kind, name) for kind, made_by in MADE_BY.items() for name in made_by.names()]


def others(parameter):
    """Values beside a parameter's default, of which it may take some."""
    kinds = (parameter.kind, *typing.get_args(parameter.kind))
    yield from (value for kind in kinds if typing.get_origin(kind) is typing.Literal for value in typing.get_args(kind))
    default = parameter.default
    if isinstance(default, bool):
        yield not default
    else:
        yield from (default + 1, default * 0.5, 0.1) if isinstance(default, int | float) else (2, 0.5)


@pytest.mark.parametrize("kind,name", NAMES)
def test_every_parameter_changes_the_digest(kind, name):
    made_by, told = MADE_BY[kind], []
    usual = parameter_digest(made_by.make(name))
    assert parameter_digest(made_by.make(name)) == usual
    parameters = made_by.parameters(name)
    for parameter, about in parameters.items():
        digests = set()
        for value in others(about):
            with contextlib.suppress(UserError):  # of another kind, outside its range, or of no effect beside others
                digests.add(parameter_digest(made_by.make(name, **{parameter: value})))
        if digests:
            assert digests != {usual}, parameter
            told.append(parameter)
    assert len(told) >= 0.6 * len(parameters)


@dataclasses.dataclass(slots=True)
class Slots:
    number: int


@dataclasses.dataclass
class Scale:
    factor: int

    def times(self, x):
        return x * self.factor


def scaled(factor, then=None):
    def function(x):
        return x * factor if then is None else then(x * factor)

    return function


@pytest.mark.parametrize(
    "one,other",
    [
        (scaled(1), scaled(2)),
        (scaled(1, scaled(2)), scaled(1, scaled(3))),
        (lambda x, by=1: x + by, lambda x, by=2: x + by),
        (functools.partial(scaled, 1), functools.partial(scaled, 2)),
        (jax.jit(scaled(1)), jax.jit(scaled(2))),
        (scaled(np.arange(3)), scaled(np.arange(4))),
        (scaled(jnp.zeros(2)), scaled(jnp.ones(2))),
        (scaled(range(1)), scaled(range(3))),
        (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
        (pathlib.PurePath("a"), pathlib.PurePath("b")),
        (slice(1), slice(2)),
        (scaled(sum), scaled(max)),
        (str.upper, str.lower),
        (Slots(1), Slots(2)),
        (np.float32(1), np.float32(2)),
        (datetime.timedelta(1), datetime.timedelta(2)),
        (1, True),
        (Scale(1).times, Scale(2).times),
        ({"a"}, {"b"}),
        (jax.random.key(1), jax.random.key(2)),
    ],
)
def test_other_parameters_change_the_digest(one, other):
    assert parameter_digest(one) == parameter_digest(one) != parameter_digest(other)


def test_a_function_that_calls_itself():
    def again(x):
        return again(x - 1) if x else 0

    assert parameter_digest(again) == parameter_digest(again)


@pytest.mark.slow
def test_the_same_in_every_process():
    code = (
        "from fedjax_sel import strategies; from fedjax_sel.core.plugins import parameter_digest as digest; "
        "print(digest(strategies.make('oort')), digest({2: (object,)}), digest({*map(str, range(9))}))"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in ("1", "2")
    )
    assert len(first.stdout.split()) == 3 and first.stdout == second.stdout, first.stderr
