"""The digests that tell values of one name apart: equal in every process, and different with every parameter."""

import contextlib
import dataclasses
import datetime
import fractions
import functools
import pathlib
import subprocess
import sys
import types
import typing

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel import UserError, strategies
from fedjax_sel.core.value_digests import digest
from fedjax_sel.training import optimizers

MADE_BY = {"strategies": strategies, "optimizers": optimizers}
NAMES = [(kind, name) for kind, made_by in MADE_BY.items() for name in made_by.names()]


KEPT = {
    "random": "0dbc1e",
    "fedgp": "249cc1",
    "fedcor": "af3e8e",
    "gpfl": "b8151b",
    "fl_dp3s": "705fb8",
    "afl": "a881db",
    "pow_d": "e1b20d",
    "fedsae": "fa0784",
    "clustered": "8f6a77",
    "divfl": "7efe50",
    "oort": "7b46d3",
    "fedavg": "709052",
    "fedprox": "27124c",
    "fednova": "46d3a3",
    "scaffold": "9a6ee6",
    "fedavgm": "d1b609",
    "fedadagrad": "42d0ff",
    "fedadam": "917ad5",
    "fedyogi": "4d56a0",
}


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
def test_every_parameter_tells(kind, name):
    made_by, told = MADE_BY[kind], []
    usual = digest(made_by.make(name))
    assert digest(made_by.make(name)) == usual
    parameters = made_by.parameters(name)
    for parameter, about in parameters.items():
        digests = set()
        for value in others(about):
            with contextlib.suppress(UserError):  # of another kind, outside its range, or of no effect beside others
                digests.add(digest(made_by.make(name, **{parameter: value})))
        if digests:
            assert digests != {usual}, parameter
            told.append(parameter)
    assert len(told) >= 0.6 * len(parameters)


def test_constants_and_helpers_of_a_notebook_tell():
    def of(first, by="1"):
        notebook = {"jnp": jnp, "optax": optax, "jax": jax}
        exec(
            f"FIRST = {first}\nUNUSED = object()\ndef helper(x):\n    return x * {by}\n"
            "def select(x):\n    return [helper(one) + FIRST for one in jnp.stack([x])]\n",
            notebook,
        )
        return digest((notebook["select"],))

    assert of(0) == of(0) and len({of(0), of(10), of(0, "2"), of("jnp.exp"), of("jnp.log")}) == 5
    schedules = [f"optax.linear_schedule({first}, 0.1, 50)" for first in (1.0, 0.2)]
    made = [*schedules, *(f"jax.jit({one})" for one in schedules), "jax.nn.initializers.normal(0.02)", "jax.nn.relu"]
    assert [of(one) for one in made] == [of(one) for one in made] and len(set(map(of, made))) == len(made)


OF_A_CLASS = """
class Base:
    FACTOR = {factor}

    def helper(self, x):
        return x * {by}

class Strategy(Base):
    SCALE, TOOL, _cache = {scale}, object(), None

    @staticmethod
    def shifted(x):
        return x + {shift}

    @property
    def rate(self):
        return {rate}

    @jax.jit
    def score(self, x):
        return self.shifted(x) * self.rate

    @classmethod
    def made(cls, x):
        return x * cls.FACTOR

    def select(self, x):
        return self.helper(self.score(x)) * self.SCALE + self.FACTOR
"""


@pytest.mark.parametrize("function", ["Strategy().select", "Strategy.made", "(Strategy(),)"])
def test_what_a_method_reads_of_its_class_tells(function):
    usual = {"factor": 1, "by": 2, "scale": 3, "shift": 4, "rate": 5}

    def of(**changes):
        there = {"jax": jax, "__name__": "mine"}
        exec(OF_A_CLASS.format(**usual | changes), there)
        return digest(eval(function, there))

    assert of() == of() and len({of(), *(of(**{name: 9}) for name in usual)}) == 1 + len(usual)


@pytest.mark.parametrize(
    "made",
    [
        "types.SimpleNamespace(rate={})",
        "types.SimpleNamespace(of=[types.SimpleNamespace(rate={})])",
        "dataclasses.make_dataclass('Numbers', ['rate'], frozen=True)({})",
        "dataclasses.make_dataclass('Numbers', ['rate'], slots=True)({})",
        "type('Numbers', (types.SimpleNamespace,), dict(rate=property(lambda self: {}), __module__='mine'))()",
        "typing.NamedTuple('Numbers', [('rate', int)])({})",
    ],
)
def test_records_that_a_function_reads_tell(made):
    def of(rate):
        there = {"types": types, "dataclasses": dataclasses, "typing": typing, "__name__": "mine"}
        exec(f"NUMBERS = {made.format(rate)}\ndef select(x):\n    return x * NUMBERS.rate\n", there)
        return digest(there["select"])

    assert of(1) == of(1) != of(2)


def test_records_that_hold_tools_or_themselves():
    there = {"types": types, "nn": nn}
    exec("TOOLS = types.SimpleNamespace(of=object())\nNET = nn.Dense(3)\ndef select(x):\n    return NET, TOOLS", there)
    usual = digest(there["select"])
    there["NET"] = nn.Dense(3)  # Flax keeps a number beside the fields, which counts those that were made
    assert digest(there["select"]) == usual
    there["TOOLS"] = types.SimpleNamespace(rate=1)
    there["TOOLS"].own = there["TOOLS"]
    assert digest(there["select"]) == digest(there["select"]) != usual


def test_libraries_of_others_are_not_looked_into():
    """What a class that is installed holds is its own; that of an instance is not."""
    installed = types.ModuleType("installed")
    installed.__file__ = "/somewhere/site-packages/installed/__init__.py"
    sys.modules["installed"] = installed
    try:
        exec(
            OF_A_CLASS.format(factor=1, by=2, scale=3, shift=4, rate=5), there := {"jax": jax, "__name__": "installed"}
        )
        made = there["Strategy"]()
        usual = digest((made,))
        there["Strategy"].SCALE = 9
        assert digest((made,)) == usual
        made.own = 3
        assert digest((made,)) != usual
    finally:
        del sys.modules["installed"]


def test_the_packages_own_digests_stay():
    """Folders of users hold them."""
    assert {name: digest(MADE_BY[kind].make(name)) for kind, name in NAMES} == KEPT


@dataclasses.dataclass(slots=True)
class Slots:
    number: int


def scaled(factor, then=None):
    def function(x):
        return x * factor if then is None else then(x * factor)

    return function


@pytest.mark.parametrize(
    "one,other",
    [
        (scaled(1), scaled(2)),
        (scaled(1, scaled(2)), scaled(1, scaled(3))),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: [y + 1 for y in x], lambda x: [y + 2 for y in x]),
        (lambda x, by=1: x + by, lambda x, by=2: x + by),
        (functools.partial(scaled, 1), functools.partial(scaled, 2)),
        (jax.jit(scaled(1)), jax.jit(scaled(2))),
        (scaled(np.arange(3)), scaled(np.arange(4))),
        (scaled(jnp.zeros(2)), scaled(jnp.ones(2))),
        (scaled(jax.random.key(0)), scaled(jax.random.key(1))),
        ({"a": {1}}, {"a": {2}}),
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
    ],
)
def test_what_functions_close_over_and_do(one, other):
    assert digest(one) == digest(one) != digest(other)


def test_a_function_that_calls_itself():
    def again(x):
        return again(x - 1) if x else 0

    assert digest(again) == digest(again)


def test_what_is_shared_or_nested_a_thousand_times():
    function = scaled(1)
    for _ in range(3000):
        function = scaled(2, function)
    assert digest(function) == digest(function)
    shared = (1,)
    for _ in range(100):
        shared = (shared, shared)
    assert digest(shared) != digest((shared, (1,)))


def test_the_same_in_every_process():
    code = (
        "from fedjax_sel import strategies; from fedjax_sel.core.value_digests import digest; "
        "print(digest(strategies.make('oort')), digest(lambda x: {x: {'b', 'a', 'c'}, 2: (object,)}), end=' ')\n"
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class Own:\n"
        "    rate: dict[str, set] = dataclasses.field(default_factory=dict)\n"
        "    kinds = frozenset({'b', 'a', 'c'})\n"
        "    def select(self, x):\n        return x in self.kinds\n"
        "print(digest(Own().select))"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in ("1", "2")
    )
    assert len(first.stdout.split()) == 3 and first.stdout == second.stdout, first.stderr
