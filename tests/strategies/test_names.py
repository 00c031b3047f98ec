"""Strategies by name, and schedules."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, strategies
from fedjax_sel.errors import UserError
from fedjax_sel.strategies import contract, facts


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


MODULE = """
import functools
from typing import Literal

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.random import random

SEEN = {}


def typed(*, steps: int = 3, rate: float = 0.5, law: Literal["a", "b"] = "a", most: int | None = None, on: bool = False,
          either: "int | float" = 1):
    SEEN.update(steps=steps, rate=rate, law=law, most=most, on=on, either=either)
    return random()


def untyped(steps=3, rate=0.5, law="a", most=None, needed=7, **others):
    SEEN.update(steps=steps, rate=rate, law=law, most=most, **others)
    return random()


def unresolved(*, steps: "NoSuchType" = 3):
    SEEN.update(steps=steps)
    return random()


def needing(depth):
    return random()


def refusing(*, beta: float = 1.5):
    raise UserError(f"refusing: beta={beta} is outside (0, 1]")


def failing():
    return {}["weights"]


def nothing():
    pass


bound = functools.partial(random, variant="md")
number = 3
strategy = random()
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module and a package of somebody's own, in the working directory."""
    (tmp_path / "somebodys.py").write_text(MODULE)
    (tmp_path / "package_of_theirs").mkdir()
    (tmp_path / "package_of_theirs" / "__init__.py").write_text("")
    (tmp_path / "package_of_theirs" / "inner.py").write_text(MODULE)
    (tmp_path / "broken_of_theirs.py").write_text("import no_such_module_of_theirs")
    (tmp_path / "wrong_of_theirs.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if "somebodys" in name or "of_theirs" in name]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "name", ["somebodys:typed", "package_of_theirs.inner:typed", "somebodys:bound", "somebodys:strategy"]
)
def test_a_plug_in_is_imported_from_the_working_directory(module, name):
    assert isinstance(strategies.make(name), contract.Strategy)
    assert name not in strategies.names()


def test_a_plug_ins_parameters_are_converted_by_its_annotations(module):
    texts = {"steps": "5", "rate": "1e-3", "law": "b", "most": "4", "on": "true", "either": "2.5"}
    strategies.make("somebodys:typed", **texts)
    seen = sys.modules["somebodys"].SEEN
    assert seen == {"steps": 5, "rate": 0.001, "law": "b", "most": 4, "on": True, "either": 2.5}
    assert type(seen["rate"]) is float and type(seen["steps"]) is int
    strategies.make("somebodys:typed", most="none", rate=1, on=False)
    assert seen["most"] is None and type(seen["rate"]) is float and seen["on"] is False
    assert strategies.parameters("somebodys:typed")["steps"] == (int, 3)


def test_and_without_annotations_by_its_defaults_or_as_numbers(module):
    texts = {"steps": "5", "rate": "2", "law": "7", "most": "4", "own": "1e-3", "word": "fc1"}
    strategies.make("somebodys:untyped", **texts)
    seen = sys.modules["somebodys"].SEEN
    assert seen == {"steps": 5, "rate": 2.0, "law": "7", "most": 4, "own": 0.001, "word": "fc1"}
    assert type(seen["rate"]) is float and type(seen["most"]) is int
    strategies.make("somebodys:unresolved", steps="8")
    assert seen["steps"] == 8
    array = np.arange(3)
    strategies.make("somebodys:untyped", own=array)
    assert seen["own"] is array


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("nobodys:typed", {}, "--algo nobodys:typed: there is no module 'nobodys'; start from the folder"),
        ("package_of_theirs.outer:typed", {}, "there is no module 'package_of_theirs.outer'"),
        (
            "broken_of_theirs:f",
            {},
            "importing 'broken_of_theirs' raised ModuleNotFoundError: .*no_such_module_of_theirs",
        ),
        ("wrong_of_theirs:f", {}, "importing 'wrong_of_theirs' raised SyntaxError"),
        ("somebodys:tiped", {}, "'somebodys' has no function 'tiped'; did you mean 'typed'"),
        ("somebodys:zzz", {}, "'somebodys' has no function 'zzz'; name a function in it that returns a Strategy"),
        ("somebodys:number", {}, "'somebodys' has no function 'number'; name a function"),
        ("somebodys:strategy", {"variant": "md"}, "unknown 'variant'"),
        ("somebodys:nothing", {}, "it returned None; it must return a fedjax_sel.strategies.contract.Strategy"),
        ("somebodys:failing", {}, "calling it raised KeyError: 'weights'"),
        ("somebodys:refusing", {}, r"^refusing: beta=1.5 is outside \(0, 1\]$"),
        ("somebodys:needing", {}, "--algo-args of somebodys:needing: 'depth' is missing and has no default"),
        ("somebodys:typed", {"stepz": 1}, "--algo-args of somebodys:typed: unknown 'stepz'; did you mean 'steps'"),
        ("somebodys:typed", {"steps": "many"}, "steps=many of somebodys:typed: 'many' is not a whole number"),
        ("somebodys:typed", {"steps": 2.5}, "2.5 is not a whole number"),
        ("somebodys:typed", {"on": "perhaps"}, "'perhaps' is not true or false"),
        ("somebodys:typed", {"law": "c"}, "--algo-args law=c of somebodys:typed: unknown 'c'; choose from a, b"),
        ("somebodys:typed", {"most": "all"}, "'all' is not a whole number"),
        ("somebodys:typed", {"either": "x"}, r"'x' is not of type int \| float"),
        ("somebodys:", {}, "--algo somebodys:: not of the form mypackage.module:factory"),
        (":typed", {}, "not of the form mypackage.module:factory"),
        ("some/where.py:typed", {}, "not of the form mypackage.module:factory"),
        ("somebodys.py:typed", {}, "leave out .py; give somebodys:typed"),
        ("pow_d[num_candidates=20]", {}, "give --algo pow_d --algo-args num_candidates=20"),
        ("somebodys:typed[steps=2]", {}, "give --algo somebodys:typed --algo-args steps=2"),
    ],
)
def test_a_plug_in_that_does_not_work_is_answered_in_one_sentence(module, name, arguments, message):
    with pytest.raises(UserError, match=message) as error:
        strategies.make(name, **arguments)
    assert len(str(error.value).splitlines()) == 1


def test_a_plug_in_runs(module):
    config = Config().replace(
        dataset="synthetic:train_size=120,test_size=20,num_classes=4,image_size=4", num_clients=6, num_selected=2,
        local_steps=1, batch_size=4, rounds=2, algo="somebodys:bound",
    )  # fmt: skip
    assert fedjax_sel.run(config).cohorts.shape == (1, 2, 2)


def test_schedules():
    def due(schedule, last=12):
        return [t for t in range(last) if bool(schedule.due(jnp.int32(t)))]

    assert due(facts.every(5, offset=2)) == [2, 7]
    assert due(facts.rounds(3, 5) | facts.every(6)) == [0, 3, 4, 5, 6]
    assert due(facts.always(), 3) == [0, 1, 2]
    assert due(facts.at_start()) == [] and facts.at_start().before_first_round
    assert (facts.at_start() | facts.rounds(1, 1)).before_first_round


def test_information_is_a_pytree_that_keeps_its_names():
    fact = contract.Fact(jnp.arange(3.0), jnp.zeros(3, jnp.int32))
    info = jax.jit(lambda i: i)(contract.Information("mine", {"profile": fact}))
    assert info.kinds() == ("profile",)
    np.testing.assert_array_equal(info.profile.value, [0, 1, 2])
    with pytest.raises(contract.UndeclaredFactError, match="'mine' reads the fact 'loss'"):
        _ = info.loss
