"""Selection strategies by name.

`names()` lists them, `make(name, **hyperparameters)` builds one, `parameters(name)` tells what it takes.
"""

import inspect
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from fedjax_sel.errors import UserError
from fedjax_sel.names import one_of
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.fl_dp3s import fl_dp3s
from fedjax_sel.strategies.random import random


class Entry(NamedTuple):
    """A strategy as listed."""

    factory: Callable[..., Strategy]
    paper: str
    cost: str  # what it sends beyond K models down and K up a round


TABLE: dict[str, Entry] = {
    "random": Entry(random, "McMahan et al. 2017 (FedAvg)", "nothing"),
    "fl_dp3s": Entry(fl_dp3s, "Zhang et al., FL-DP3S", "once: N models down, one profile up from each client"),
}


def names() -> tuple[str, ...]:
    """The names that `make` and `--algo` take."""
    return tuple(TABLE)


def make(name: str, **hyperparameters: Any) -> Strategy:
    """Builds a strategy.

    Args:
        name: one of `names()`.
        **hyperparameters: keyword arguments of the strategy's own function; values may be strings, as from a command
            line.

    Returns:
        The strategy.

    Raises:
        UserError: unknown name, unknown parameter, or a value of the wrong type.
    """
    entry = TABLE[one_of("--algo", name, names())]
    kinds = parameters(name)
    values = {}
    for key, value in hyperparameters.items():
        one_of(f"--algo-args of {name}", key, kinds)
        values[key] = _convert(name, key, value, kinds[key][0])
    return entry.factory(**values)


def parameters(name: str) -> dict[str, tuple[Any, Any]]:
    """The hyperparameters of a strategy: name -> (type, default)."""
    factory = TABLE[name].factory
    hints = typing.get_type_hints(factory)
    return {key: (hints[key], item.default) for key, item in inspect.signature(factory).parameters.items()}


def _convert(algo: str, key: str, value: Any, kind: Any) -> Any:
    """A value of the type that the strategy's signature names, from one as a command line gives it."""
    if typing.get_origin(kind) is typing.Literal:
        return one_of(f"--algo-args {key} of {algo}", value, typing.get_args(kind))
    if kind is bool and isinstance(value, str):
        return one_of(f"--algo-args {key} of {algo}", value.lower(), ("true", "false")) == "true"
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        wanted = getattr(kind, "__name__", str(kind))
        raise UserError(f"--algo-args {key}={value} of {algo}: {value!r} is not of type {wanted}") from error
