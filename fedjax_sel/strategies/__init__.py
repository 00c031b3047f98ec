"""Selection strategies by name, and what the author of a strategy imports.

`names()` lists them, `make(name, **hyperparameters)` builds one, and `parameters(name)` returns its hyperparameters. A
name of the form `mypackage.module:factory` loads a strategy from another package.
"""

from collections.abc import Callable
from typing import NamedTuple

from fedjax_sel.core.plugins import Registry, Within
from fedjax_sel.strategies.afl import afl
from fedjax_sel.strategies.clustered import clustered
from fedjax_sel.strategies.contract import Env, Now, Outcome, Selection, Strategy, independent_selection
from fedjax_sel.strategies.cyclic import cyclic
from fedjax_sel.strategies.delta import delta
from fedjax_sel.strategies.divfl import divfl
from fedjax_sel.strategies.e3cs import e3cs
from fedjax_sel.strategies.facts import (
    ALL,
    CANDIDATES,
    NEVER,
    SELECTED,
    SERVER,
    Request,
    always,
    at_start,
    every,
    rounds,
)
from fedjax_sel.strategies.fed_cbs import fed_cbs
from fedjax_sel.strategies.fedcor import fedcor
from fedjax_sel.strategies.fedcs import fedcs
from fedjax_sel.strategies.fedgp import fedgp
from fedjax_sel.strategies.fedlecc import fedlecc
from fedjax_sel.strategies.fedsae import fedsae
from fedjax_sel.strategies.fl_dp3s import fl_dp3s
from fedjax_sel.strategies.from_numpy import from_numpy
from fedjax_sel.strategies.full import full
from fedjax_sel.strategies.gpfl import gpfl
from fedjax_sel.strategies.greedyfed import greedyfed
from fedjax_sel.strategies.hics_fl import hics_fl
from fedjax_sel.strategies.kvib import kvib
from fedjax_sel.strategies.ocs import ocs
from fedjax_sel.strategies.oort import oort
from fedjax_sel.strategies.osmd import osmd
from fedjax_sel.strategies.pow_d import pow_d
from fedjax_sel.strategies.random import random
from fedjax_sel.strategies.tifl import tifl

__all__ = [
    "ALL", "CANDIDATES", "NEVER", "SELECTED", "SERVER", "Env", "Now", "Outcome", "Request", "Selection", "Strategy",
    "Within", "always", "at_start", "every", "from_numpy", "independent_selection", "make", "names", "parameters",
    "rounds",
]  # fmt: skip


class Entry(NamedTuple):
    """An entry of the strategy table."""

    factory: Callable[..., Strategy]
    paper: str


TABLE: dict[str, Entry] = {
    "random": Entry(random, "McMahan et al. 2017 (FedAvg)"),
    "fedgp": Entry(fedgp, "Tang et al. 2021, FedGP"),
    "fedcor": Entry(fedcor, "Tang et al. 2022, FedCor"),
    "gpfl": Entry(gpfl, "Na et al. 2024, GPFL"),
    "fl_dp3s": Entry(fl_dp3s, "Zhang et al. 2023, FL-DP3S"),
    "afl": Entry(afl, "Goetz et al. 2019"),
    "pow_d": Entry(pow_d, "Cho et al. 2020"),
    "fedsae": Entry(fedsae, "Li et al. 2021, as used in FL-DP3S"),
    "clustered": Entry(clustered, "Fraboni et al. 2021"),
    "divfl": Entry(divfl, "Balakrishnan et al. 2022"),
    "oort": Entry(oort, "Lai et al. 2021"),
    "tifl": Entry(tifl, "Chai et al. 2020"),
    "fedcs": Entry(fedcs, "Nishio, Yonetani 2019"),
    "ocs": Entry(ocs, "Chen et al. 2022, OCS"),
    "kvib": Entry(kvib, "Zeng et al. 2025, K-Vib"),
    "e3cs": Entry(e3cs, "Huang et al. 2022, E3CS"),
    "cyclic": Entry(cyclic, "Cho et al. 2023"),
    "hics_fl": Entry(hics_fl, "Chen, Vikalo 2024"),
    "fedlecc": Entry(fedlecc, "Jimenez-Gutierrez et al. 2026"),
    "fed_cbs": Entry(fed_cbs, "Zhang et al. 2023, Fed-CBS"),
    "greedyfed": Entry(greedyfed, "Singhal et al. 2024, GreedyFed"),
    "osmd": Entry(osmd, "Zhao et al. 2025, OSMD"),
    "delta": Entry(delta, "Wang et al. 2023, DELTA"),
    "full": Entry(full, "McMahan et al. 2017 (FedAvg, C = 1)"),
}

REGISTRY = Registry("--algo", Strategy, {name: entry.factory for name, entry in TABLE.items()})

names, make, parameters = REGISTRY.names, REGISTRY.make, REGISTRY.parameters
"""Functions that list the strategies, build one by name, and return its hyperparameters; see `Registry`."""
