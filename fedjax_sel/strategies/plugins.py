"""Strategies of anybody's own: `--algo mypackage.module:factory`."""

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any, cast

from fedjax_sel.errors import UserError
from fedjax_sel.names import did_you_mean
from fedjax_sel.strategies.base import Strategy


def is_plugin(name: Any) -> bool:
    """Whether a name is of the form `module:factory`."""
    return isinstance(name, str) and ":" in name


def load(name: str) -> Callable[..., Strategy]:
    """The function that a name points at.

    A module may also lie in the working directory, whichever way Python was started.

    Args:
        name: `module:factory`, e.g. "mypackage.module:factory".

    Returns:
        The factory, not yet called.

    Raises:
        UserError: it is not of that form, the module cannot be imported, or holds no such function.
    """
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not attribute.isidentifier():
        raise UserError(f"--algo {name}: not of the form mypackage.module:factory")
    module = _import(name, module_name)
    if not hasattr(module, attribute):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(attribute, functions, n=1)
        raise UserError(
            f"--algo {name}: {module_name!r} has no {attribute!r}; "
            f"{did_you_mean(attribute, functions) if near else 'name a function of it that returns a Strategy'}"
        )
    factory = getattr(module, attribute)
    if not callable(factory):
        raise UserError(
            f"--algo {name}: {attribute!r} is {_a(factory)} and cannot be called; "
            "name a function that returns a Strategy"
        )
    return cast(Callable[..., Strategy], factory)  # whether it returns one shows when it is called


def build(name: str, factory: Callable[..., Strategy], values: dict[str, Any]) -> Strategy:
    """Calls somebody's factory.

    Args:
        name: as given, for messages.
        factory: from `load`.
        values: its keyword arguments, of the right types.

    Returns:
        The strategy.

    Raises:
        UserError: it raises, or returns something else.
    """
    try:
        strategy = factory(**values)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"--algo {name}: calling it raised {_told(error)}; mend that, or give other --algo-args"
        ) from error
    if not isinstance(strategy, Strategy):
        raise UserError(
            f"--algo {name}: it returned {_a(strategy)}; it must return a fedjax_sel.strategies.base.Strategy"
        )
    return strategy


def _import(name: str, module_name: str) -> Any:
    here = os.getcwd()
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            raise UserError(
                f"--algo {name}: there is no module {missing!r}; start from the folder that holds it, or install it"
            ) from error
        raise UserError(f"--algo {name}: importing {module_name!r} raised {_told(error)}; mend that first") from error
    except Exception as error:
        raise UserError(f"--algo {name}: importing {module_name!r} raised {_told(error)}; mend that first") from error


def _told(error: Exception) -> str:
    """An exception in half a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _a(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}" if value is not None else "None"
