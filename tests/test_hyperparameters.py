"""Values are converted as a factory says, whatever kind of callable it is."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing

import pytest

from fedjax_sel import Config, UserError
from fedjax_sel.core import plugins
from fedjax_sel.experiment import checking, experiment_of

if typing.TYPE_CHECKING:
    from nowhere import Strategy


def function(*, flag: bool, k: int | None = None, what: str | None = None) -> dict:
    return {"flag": flag, "k": k, "what": what}


def of_types_that_are_not_there(*, flag: bool, k: int | None = None, what: str | None = None) -> Strategy:
    return function(flag=flag, k=k, what=what)


class Plain:
    def __init__(self, *, flag: bool, k: int | None = None, what: str | None = None):
        pass


@dataclasses.dataclass(kw_only=True)
class Data:
    flag: bool
    k: int | None = None
    what: str | None = None


@pytest.mark.parametrize(
    "factory",
    [function, functools.partial(function, k=3), Plain, functools.partial(Plain), Data, of_types_that_are_not_there],
)
def test_annotations_count_of_every_kind_of_factory(factory):
    values = plugins.convert_parameters("--args", "it", factory, {"flag": "false", "what": "007"})
    assert values == {"flag": False, "what": "007"}
    with pytest.raises(UserError, match=r"k.*whole number"):
        plugins.convert_parameters("--args", "it", factory, {"flag": "true", "k": "3.5"})


def named(*, name: str, self: int = 0) -> tuple[str, int]:
    return name, self


def test_a_parameter_may_have_any_name(monkeypatch):
    module = types.ModuleType("of_names")
    module.named = named
    monkeypatch.setitem(sys.modules, "of_names", module)
    made = plugins.Registry("--model", tuple).make("of_names:named", name="resnet", self="3")
    assert made == ("resnet", 3)


def test_timing_names_its_file_once():
    config = Config().replace(timing="speeds.csv", timing_args={"path": "others.csv"})
    with pytest.raises(UserError, match=r"--timing-args path=others\.csv: --timing names the file"):
        checking.check(experiment_of(config))
