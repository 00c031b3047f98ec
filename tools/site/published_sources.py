"""Sources of the strategies' numbers: the tables of tests/studies/papers/test_published_numbers.py."""

import ast
import functools
import importlib
from pathlib import Path
from typing import Any

_TABLES = {"fedcor": "FEDCOR", "fedgp": "FEDCOR", "oort": "OORT", "gpfl": "GPFL"}


def source(root: Path, strategy: str, name: str) -> str:
    """Return the source of a parameter's default, or of a preset's number.

    Args:
        root: of the repository.
        strategy: its name.
        name: of the parameter.
    """
    tables = _tables(root)
    by_name = {} if strategy not in _TABLES else tables[_TABLES[strategy]]
    return by_name.get(name) or tables["DEFAULTS"][f"{strategy}.{name}"]


def preset_numbers(strategy: str) -> dict[str, dict[str, Any]]:
    """Return the numbers of each preset of a strategy: preset -> name -> value; empty without presets."""
    if strategy in ("fedcor", "fedgp"):
        presets = importlib.import_module("fedjax_sel.strategies.fedcor_presets").PRESETS
        own = "fedgp" if strategy == "fedgp" else "paper"
        found = {}
        for name in (own, *(name for name in presets if name not in ("paper", "fedgp"))):
            shown = "paper" if name == own else name
            fmnist, cifar10 = presets[name]
            found |= {shown: fmnist._asdict(), f"{shown}, cifar10": cifar10._asdict()}
        return found
    if strategy in ("gpfl", "oort"):
        module = importlib.import_module(f"fedjax_sel.strategies.{strategy}")
        return {name: numbers._asdict() for name, numbers in module._TABLE.items()}
    return {}


@functools.cache
def _tables(root: Path) -> dict[str, dict[str, str]]:
    """Return the last column of each table by its first."""
    path = root / "tests" / "studies" / "papers" / "test_published_numbers.py"
    wanted = {*_TABLES.values(), "DEFAULTS"}
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in wanted:
            assert isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            rows = [[cell.strip() for cell in line.split("|")] for line in node.value.value.strip().splitlines()[1:]]
            found[node.targets[0].id] = {row[0]: row[-1] for row in rows}
    return found
