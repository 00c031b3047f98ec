"""Federated optimizers by name.

`names()` lists them, `make(name, **hyperparameters)` builds one, `parameters(name)` returns its hyperparameters. A name
of the form `mypackage.module:factory` refers to a user's own optimizer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedjax_sel.core.hyperparameters import Parameter, Registry
from fedjax_sel.training.optimizers.base import FederatedOptimizer
from fedjax_sel.training.optimizers.methods import (
    fedadagrad,
    fedadam,
    fedavg,
    fedavgm,
    fednova,
    fedprox,
    fedyogi,
    scaffold,
)


class Entry(NamedTuple):
    """An optimizer in the list of `--list`."""

    factory: Callable[..., FederatedOptimizer]
    paper: str
    about: str


TABLE: dict[str, Entry] = {
    "fedavg": Entry(fedavg, "McMahan et al. 2017", "the mean of the updates"),
    "fedprox": Entry(fedprox, "Li et al. 2020", "a proximal term keeps clients near the received model"),
    "fednova": Entry(fednova, "Wang et al. 2020", "the mean direction, times the mean number of steps"),
    "scaffold": Entry(scaffold, "Karimireddy et al. 2020", "clients are corrected by control variates"),
    "fedavgm": Entry(fedavgm, "Hsu et al. 2019", "the server's SGD has momentum"),
    "fedadagrad": Entry(fedadagrad, "Reddi et al. 2021", "the server uses Adagrad"),
    "fedadam": Entry(fedadam, "Reddi et al. 2021", "the server uses Adam"),
    "fedyogi": Entry(fedyogi, "Reddi et al. 2021", "the server uses Yogi"),
}

REGISTRY = Registry("--optimizer", FederatedOptimizer, {name: entry.factory for name, entry in TABLE.items()})


def names() -> tuple[str, ...]:
    """Return the names that `make` and `--optimizer` take."""
    return REGISTRY.names()


def make(name: str, **hyperparameters: Any) -> FederatedOptimizer:
    """Build an optimizer; see `Registry.make`.

    Args:
        name: one of `names()`, or `mypackage.module:factory`.
        **hyperparameters: keyword arguments of the optimizer's factory; values may be strings, as on a command line.

    Raises:
        UserError: the name or a parameter is invalid; the message says how to fix it.
    """
    return REGISTRY.make(name, **hyperparameters)


def parameters(name: str) -> dict[str, Parameter]:
    """Return the hyperparameters of an optimizer: name -> (type, default)."""
    return REGISTRY.parameters(name)
