"""Strategies and optimizers of anybody's own: `--algo mypackage.module:factory`."""

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
    """What a plug-in is for, for messages."""

    flag: str  # e.g. "--algo"
    kind: type  # what the factory must return


def is_plugin(name: Any) -> bool:
    """Return whether a name is of the form `module:factory`."""
    return isinstance(name, str) and ":" in name


def load(name: str, wanted: Wanted) -> Callable[..., Any]:
    """Return the function that a name points at.

    A module may also lie in the working directory, whichever way Python was started.

    Args:
        name: `module:factory`, e.g. "mypackage.module:factory".
        wanted: what for.

    Returns:
        The factory, not yet called.

    Raises:
        UserError: it is not of that form, the module cannot be imported, or holds no such function.
    """
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not attribute.isidentifier():
        raise UserError(f"{wanted.flag} {name}: not of the form mypackage.module:factory")
    module = _import(name, module_name, wanted)
    if not hasattr(module, attribute):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(attribute, functions, n=1)
        advice = did_you_mean(attribute, functions) if near else f"name a function of it that returns {_a_kind(wanted)}"
        raise UserError(f"{wanted.flag} {name}: {module_name!r} has no {attribute!r}; {advice}")
    factory = getattr(module, attribute)
    if not callable(factory):
        raise UserError(
            f"{wanted.flag} {name}: {attribute!r} is {_a(factory)} and cannot be called; "
            f"name a function that returns a {wanted.kind.__name__}"
        )
    return factory  # whether it returns one shows when it is called


def build(name: str, wanted: Wanted, factory: Callable[..., Any], values: dict[str, Any]) -> Any:
    """Call somebody's factory.

    Args:
        name: as given, for messages.
        wanted: what for.
        factory: from `load`.
        values: its keyword arguments, of the right types.

    Returns:
        What it makes, of the kind that is wanted.

    Raises:
        UserError: it raises, or returns something else.
    """
    try:
        made = factory(**values)
    except UserError:
        raise
    except RAISED_BY_PLUGINS as error:
        raise UserError(
            f"{wanted.flag} {name}: calling it raised {texts.reason(error)}; mend that, or give other "
            f"{wanted.flag}-args"
        ) from error
    if not isinstance(made, wanted.kind):
        raise UserError(
            f"{wanted.flag} {name}: it returned {_a(made)}; it must return a "
            f"{wanted.kind.__module__}.{wanted.kind.__name__}"
        )
    return made


@contextlib.contextmanager
def contained(names: Iterable[str]) -> Iterator[None]:
    """Turn `sys.exit()` in the code of plug-ins that is called from here on into an error.

    Args:
        names: of the plug-ins; names of another form are no plug-ins.

    Raises:
        UserError: one of them tried to end the process.
    """
    try:
        yield
    except SystemExit as error:
        whose = " or ".join(filter(is_plugin, names)) or "something"
        raise UserError(
            f"{whose} tried to end the process ({texts.reason(error)}); raise an exception there instead"
        ) from error


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
                "start from the folder that holds it, or install it"
            ) from error
        raise UserError(
            f"{wanted.flag} {name}: importing {module_name!r} raised {texts.reason(error)}; mend that first"
        ) from error
    except RAISED_BY_PLUGINS as error:
        raise UserError(
            f"{wanted.flag} {name}: importing {module_name!r} raised {texts.reason(error)}; mend that first"
        ) from error


def _a_kind(wanted: Wanted) -> str:
    return f"a {wanted.kind.__name__}"


def _a(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}" if value is not None else "None"
