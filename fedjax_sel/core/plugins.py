"""Plug-ins by `module:name`, and the digests of their source files."""

import ast
import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import did_you_mean
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
            f"{wanted.flag} {name}: calling it raised {parsing.reason(error)}; fix it, or change {wanted.flag}-args"
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
        raise UserError(
            f"{whose} called sys.exit ({parsing.reason(error)}); raise an exception there instead"
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
                "start from the folder that contains it, or install it"
            ) from error
        raise UserError(
            f"{wanted.flag} {name}: importing {module_name!r} raised {parsing.reason(error)}; fix that first"
        ) from error
    except RAISED_BY_PLUGINS as error:
        raise UserError(
            f"{wanted.flag} {name}: importing {module_name!r} raised {parsing.reason(error)}; fix that first"
        ) from error


def _a_kind(wanted: Wanted) -> str:
    return f"a {wanted.kind.__name__}"


def _a(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}" if value is not None else "None"


# Digests of a plug-in's source files, to detect edits.
#
# The source files are the plug-in's module and, recursively, the modules it imports from the same package, or from the
# same folder if the module belongs to no package. Other imports are not followed.


Sources = dict[str, str]  # module name -> SHA-256 of its file

_INSTALLED = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platlib", "purelib")}


def sources(name: str) -> Sources:
    """Return the digests of a plug-in's source files; empty if the name is no plug-in or has no source file.

    Args:
        name: `module:factory`, whose module is loaded.
    """
    module_name = name.partition(":")[0]
    first = _file(module_name.partition(".")[0]) or _file(module_name)  # a package may have no file of its own
    if not is_plugin(name) or first is None:
        return {}
    found: Sources = {}
    waiting = [module_name]
    while waiting:
        other = waiting.pop()
        file = _file(other)
        if other in found or file is None or (other != module_name and not _beside(first.parent, other, file)):
            continue
        try:
            content = file.read_bytes()
        except OSError:  # removed since the import
            continue
        found[other] = hashlib.sha256(content).hexdigest()
        waiting += _imports(other, content)
    return found


def edited(before: Mapping[str, Sources], now: Mapping[str, Sources]) -> list[str]:
    """Return a phrase for each plug-in whose source files changed.

    Args:
        before: plug-in name -> earlier `sources`.
        now: plug-in name -> current `sources`; empty if they no longer exist.
    """
    phrases = []
    for name, files in now.items():
        then = before.get(name, files)
        changed = sorted(module for module in files.keys() | then.keys() if files.get(module) != then.get(module))
        if files and changed:
            phrases.append(f"{name} was edited since ({', '.join(changed)})")
    return phrases


def _file(module_name: str) -> Path | None:
    """Return the file of a loaded module; None if it has none."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    return Path(file) if isinstance(file, str) else None


def _beside(folder: Path, module_name: str, file: Path) -> bool:
    """Return whether a module's file is inside a folder, not installed by pip, and not part of fedjax_sel."""
    if module_name.partition(".")[0] == __name__.partition(".")[0]:
        return False
    nearest = next((parent for parent in file.parents if parent == folder or parent in _INSTALLED), None)
    return nearest == folder and folder not in _INSTALLED


def _imports(module_name: str, content: bytes) -> Iterator[str]:
    """Yield the names of modules that a module's import statements may load, including parent packages."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):  # not Python source, e.g. an extension module
        return
    package = getattr(sys.modules[module_name], "__package__", None) or ""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
