"""User-defined strategies, optimizers and other plug-ins: `--algo mypackage.module:factory`."""

import contextlib
import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from fedjax_sel.core import texts
from fedjax_sel.core.names import did_you_mean
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError


class Wanted(NamedTuple):
    """The flag and return type of a plug-in."""

    flag: str  # e.g. "--algo"
    kind: type  # required type of the factory's return value


def is_plugin(name: Any) -> bool:
    """Return whether a name has the form `module:factory`."""
    return isinstance(name, str) and ":" in name


def load(name: str, wanted: Wanted) -> Callable[..., Any]:
    """Import a plug-in's factory.

    The module may also be in the working directory, even if Python's import path lacks it.

    Args:
        name: the plug-in's name, e.g. "mypackage.module:factory".
        wanted: the plug-in's flag and return type.

    Returns:
        The factory, not yet called.

    Raises:
        UserError: If the name is malformed, the import fails, or the module has no such function.
    """
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not attribute.isidentifier():
        raise UserError(f"{wanted.flag} {name}: not of the form mypackage.module:factory")
    module = _import(name, module_name, wanted)
    if not hasattr(module, attribute):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(attribute, functions, n=1)
        advice = did_you_mean(attribute, functions) if near else f"name a function in it that returns {_a_kind(wanted)}"
        raise UserError(f"{wanted.flag} {name}: {module_name!r} has no {attribute!r}; {advice}")
    factory = getattr(module, attribute)
    if not callable(factory):
        raise UserError(
            f"{wanted.flag} {name}: {attribute!r} is {_a(factory)}, which is not callable; "
            f"name a function that returns a {wanted.kind.__name__}"
        )
    return factory  # `build` checks the return type


def build(name: str, wanted: Wanted, factory: Callable[..., Any], values: dict[str, Any]) -> Any:
    """Call a plug-in's factory and check the type it returns.

    Args:
        name: the plug-in's name, for messages.
        wanted: the plug-in's flag and return type.
        factory: the factory, from `load`.
        values: the factory's keyword arguments, converted to the right types.

    Returns:
        The factory's return value, of type `wanted.kind`.

    Raises:
        UserError: If the factory raises or returns another type.
    """
    try:
        made = factory(**values)
    except UserError:
        raise
    except RAISED_BY_PLUGINS as error:
        raise UserError(
            f"{wanted.flag} {name}: calling it raised {texts.reason(error)}; fix it, or change {wanted.flag}-args"
        ) from error
    if not isinstance(made, wanted.kind):
        raise UserError(
            f"{wanted.flag} {name}: it returned {_a(made)}; it must return a "
            f"{wanted.kind.__module__}.{wanted.kind.__name__}"
        )
    return made


@contextlib.contextmanager
def contained(names: Iterable[str]) -> Iterator[None]:
    """Convert `sys.exit()` in plug-in code called inside this context to an error.

    Args:
        names: the plug-ins' names; other names are ignored.

    Raises:
        UserError: If a plug-in calls `sys.exit()`.
    """
    try:
        yield
    except SystemExit as error:
        whose = " or ".join(filter(is_plugin, names)) or "something"
        raise UserError(f"{whose} called sys.exit ({texts.reason(error)}); raise an exception there instead") from error


def _import(name: str, module_name: str, wanted: Wanted) -> Any:
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
                f"{wanted.flag} {name}: there is no module {missing!r}; "
                "start from the folder that contains it, or install it"
            ) from error
        raise UserError(
            f"{wanted.flag} {name}: importing {module_name!r} raised {texts.reason(error)}; fix that first"
        ) from error
    except RAISED_BY_PLUGINS as error:
        raise UserError(
            f"{wanted.flag} {name}: importing {module_name!r} raised {texts.reason(error)}; fix that first"
        ) from error


def _a_kind(wanted: Wanted) -> str:
    return f"a {wanted.kind.__name__}"


def _a(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}" if value is not None else "None"
