"""Values are converted as a factory says, whatever kind of callable it is."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from typing import Annotated

import pytest

from fedjax_sel import UserError, strategies
from fedjax_sel.core import plugins
from fedjax_sel.core.plugins import Within
from fedjax_sel.experiment import checking
from fedjax_sel.training import optimizers

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


class Called:
    def __call__(self, *, flag: bool, k: int | None = None, what: str | None = None):
        pass


@pytest.mark.parametrize("factory", [
    function, functools.partial(function, k=3), Plain, functools.partial(Plain), Data, of_types_that_are_not_there,
    Called(),
])  # fmt: skip
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


OUT_OF_RANGE = {
    "afl": "alpha1=1.2 alpha2=-1 alpha2=nan alpha3=-0.1",
    "cyclic": "num_groups=0",
    "divfl": "mixing=-0.1 mixing=1.5 mixing=nan",
    "e3cs": "quota=1.5 quota_start=-0.1 learning_rate=0 learning_rate=inf",
    "fed_cbs": "exploration=-1 exploration=inf",
    "fedcor": "anneal=1.5 anneal=0 discount=-1 noise=0 noise=nan warmup=0 interval=0 probes=0 steps=-1 warmup_steps=-1 "
    "reuse=-1 warmup_reuse=-1 dimension=0 learning_rate=0",
    "fedcs": "round_seconds=0 fraction=0 fraction=1.5",
    "fedgp": "anneal=1.5",
    "fedlecc": "num_clusters=0 clusters_per_round=0",
    "fedsae": "temperature=-0.1 active_rounds=0",
    "fl_dp3s": "pool=0",
    "gpfl": "rho=-1 smoothing=1 warm_up_rounds=0",
    "greedyfed": "memory=1 evaluations=1 truncation=-0.1",
    "hics_fl": "temperature=0 entropy_weight=-1 gamma=inf num_clusters=0",
    "kvib": "theta=0 theta=1.5 bound=0",
    "ocs": "num_candidates=0 rescalings=-1",
    "oort": "exploration=1.5 exploration_decay=-1 exploration_min=2 cut=-0.1 cap=nan explore_pool=0.5 alpha=-1 "
    "max_participations=-1 round_threshold=101 pacer_delta=-1 pacer_step=0 staleness_discount=-1",
    "osmd": "alpha=0 alpha=1",
    "pow_d": "num_candidates=0 batch_size=0",
    "tifl": "num_tiers=0 interval=0 credits=0",
    "fedprox": "mu=-1",
    "fednova": "mu=nan",
    "fedavgm": "momentum=1 learning_rate=0",
    "fedadagrad": "beta1=1 tau=0",
    "fedadam": "beta1=-0.1 beta2=1",
    "fedyogi": "beta2=1 tau=0",
    "lognormal": "sigma=-1 bandwidth_sigma=-1 jitter=inf correlation=1.1",
    "tiers": "spread=-1 jitter=-1 correlation=-0.1",
    "file": "jitter=-1",
    "markov": "share=0 share=1.5 rounds_off=0.5",
    "daily": "share=0 amplitude=-1 period=0.5",
    "label": "rare=2 rare_share=-1 share=0",
    "size": "low=-1 high=2",
    "speed": "low=-1 high=2",
}
REGISTRIES = (strategies.REGISTRY, optimizers.REGISTRY, checking.LAWS, checking.MODES)


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_values_outside_their_range_are_rejected(name):
    (registry,) = (one for one in REGISTRIES if name in one.names())
    for text in OUT_OF_RANGE[name].split():
        key, value = text.split("=")
        words = rf"^{registry.flag}-args {text} of {name}: must be [^;]*; leave it out for the default( [0-9.e-]+)?$"
        with pytest.raises(UserError, match=words):
            registry.make(name, **{key: value})


def test_every_range_is_in_the_table_and_includes_the_default():
    for registry in REGISTRIES:
        for name in set(registry.names()) - {"fedgp", "correlated"}:
            ranged = {key for key, one in registry.parameters(name).items() if "Within" in str(one.kind)}
            assert ranged - {"learning_rate", "tau", "beta1"} <= {
                text.partition("=")[0] for text in OUT_OF_RANGE.get(name, "").split()
            }, name


def ranged(*, share: Annotated[float | None, Within(0, below=1)] = None, count: Annotated[int, Within(2, 4)]) -> tuple:
    return share, count


def test_a_plug_ins_ranges_are_checked(monkeypatch):
    module = types.ModuleType("of_ranges")
    module.ranged = ranged
    monkeypatch.setitem(sys.modules, "of_ranges", module)
    make = functools.partial(plugins.Registry("--model", tuple).make, "of_ranges:ranged")
    assert (
        make(count="4") == (None, 4) and make(share="none", count=2) == (None, 2) and make(share=0, count=3) == (0, 3)
    )
    with pytest.raises(UserError, match=r"^--model-args count=5 of of_ranges:ranged: must be from 2 to 4$"):
        make(count=5)
    with pytest.raises(UserError, match=r"share=1 of .*: must be from 0 to 1 \(excluded\); leave it out"):
        make(share=1, count=2)
