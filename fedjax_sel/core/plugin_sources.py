"""Digests of a plug-in's source files, to detect edits.

The source files are the plug-in's module and, recursively, the modules it imports from the same package, or from the
same folder if the module belongs to no package. Other imports are not followed.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedjax_sel.core.plugins import is_plugin

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
