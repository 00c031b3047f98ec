"""Federated optimizers by name.

`names()` lists them, `make(name, **hyperparameters)` builds one, `parameters(name)` tells what it takes. A name of the
form `mypackage.module:factory` is an optimizer of anybody's own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedjax_sel import hyperparameters as hyper
from fedjax_sel import plugins
from fedjax_sel.names import one_of
from fedjax_sel.training.optimizers.base import FederatedOptimizer
from fedjax_sel.training.optimizers.fedavg import fedavg
from fedjax_sel.training.optimizers.fednova import fednova
from fedjax_sel.training.optimizers.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from fedjax_sel.training.optimizers.fedprox import fedprox
from fedjax_sel.training.optimizers.scaffold import scaffold


class Entry(NamedTuple):
    """An optimizer as listed."""

    factory: Callable[..., FederatedOptimizer]
    paper: str
    about: str


TABLE: dict[str, Entry] = {
    "fedavg": Entry(fedavg, "McMahan et al. 2017", "the mean of the updates"),
    "fedprox": Entry(fedprox, "Li et al. 2020", "clients are held near the received model"),
    "fednova": Entry(fednova, "Wang et al. 2020", "the mean direction, times the mean number of steps"),
    "scaffold": Entry(scaffold, "Karimireddy et al. 2020", "clients are corrected by control variates"),
    "fedavgm": Entry(fedavgm, "Hsu et al. 2019", "the server's SGD has momentum"),
    "fedadagrad": Entry(fedadagrad, "Reddi et al. 2021", "the server uses Adagrad"),
    "fedadam": Entry(fedadam, "Reddi et al. 2021", "the server uses Adam"),
    "fedyogi": Entry(fedyogi, "Reddi et al. 2021", "the server uses Yogi"),
}

_WANTED = plugins.Wanted("--optimizer", FederatedOptimizer)


def names() -> tuple[str, ...]:
    """The names that `make` and `--optimizer` take."""
    return tuple(TABLE)


def make(name: str, **hyperparameters: Any) -> FederatedOptimizer:
    """Builds an optimizer.

    Args:
        name: one of `names()`, or `mypackage.module:factory`.
        **hyperparameters: keyword arguments of its function; values may be strings, as from a command line.

    Returns:
        The optimizer.

    Raises:
        UserError: unknown name, unknown parameter, a value of the wrong type or out of range, or a plug-in that cannot
            be imported or does not return an optimizer.
    """
    factory = _factory(name)
    values = hyper.convert("--optimizer-args", name, factory, hyperparameters)
    return plugins.build(name, _WANTED, factory, values) if plugins.is_plugin(name) else factory(**values)


def parameters(name: str) -> dict[str, hyper.Parameter]:
    """The hyperparameters of an optimizer: name -> (type, default)."""
    return hyper.of(_factory(name))[0]


def _factory(name: str) -> Callable[..., FederatedOptimizer]:
    return plugins.load(name, _WANTED) if plugins.is_plugin(name) else TABLE[one_of("--optimizer", name, TABLE)].factory
