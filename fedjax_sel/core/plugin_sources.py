"""Which files the code of a plug-in stands in, and whether it was edited since.

They are the file of its module and, followed from import to import, those that lie beside it: in the package that it
belongs to, or, for a module of no package, in its folder. What it imports from elsewhere is not followed.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedjax_sel.core.plugins import is_plugin

Sources = dict[str, str]  # name of a module -> SHA-256 of its file

_INSTALLED = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platlib", "purelib")}


def sources(name: str) -> Sources:
    """Return the digests that tell whether a plug-in's code is the same; empty where there is none.

    Args:
        name: `module:factory`, loaded; any other name is no plug-in.
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
        except OSError:  # gone since
            continue
        found[other] = hashlib.sha256(content).hexdigest()
        waiting += _imports(other, content)
    return found


def edited(before: Mapping[str, Sources], now: Mapping[str, Sources]) -> list[str]:
    """Name the plug-ins whose code is not what it was, half a sentence each.

    Args:
        before: their names -> `sources` at an earlier time.
        now: the same, now; nothing for what is not there any more.
    """
    phrases = []
    for name, files in now.items():
        then = before.get(name, files)
        changed = sorted(module for module in files.keys() | then.keys() if files.get(module) != then.get(module))
        if files and changed:
            phrases.append(f"{name} was edited since ({', '.join(changed)})")
    return phrases


def _file(module_name: str) -> Path | None:
    """Return the file of a loaded module, where it has one."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    return Path(file) if isinstance(file, str) else None


def _beside(folder: Path, module_name: str, file: Path) -> bool:
    """Return whether a module lies in the folder, or below, was not installed there, and is not of this package."""
    if module_name.partition(".")[0] == __name__.partition(".")[0]:
        return False
    nearest = next((parent for parent in file.parents if parent == folder or parent in _INSTALLED), None)
    return nearest == folder and folder not in _INSTALLED


def _imports(module_name: str, content: bytes) -> Iterator[str]:
    """Yield the names that a module's import statements may load, with the packages that these lie in."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):  # not written in Python
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
