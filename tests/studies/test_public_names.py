"""Studies use only names that the reference documents."""

import ast
import re
from pathlib import Path

import pytest

import fedjax_sel

REPOSITORY = Path(fedjax_sel.__file__).parents[1]
PAGES = "".join(page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs" / "api").glob("*.md"))
DOCUMENTED = set(re.findall(r"^::: (\S+)$", PAGES, flags=re.MULTILINE))
ROOMS = {f"fedjax_sel.{name}" for name in ("metrics", "models", "papers", "statistics", "strategies", "devices")}


def imported(path):
    """Full names of everything that a file imports from the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedjax_sel":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_public(name):
    parts = name.split(".")
    prefixes = {".".join(parts[:length]) for length in range(2, len(parts) + 1)}
    private = any(part.startswith("_") for part in parts)
    return not private and (parts[1] in fedjax_sel.__all__ or bool(prefixes & (DOCUMENTED | ROOMS)))


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "studies").rglob("*.py")), ids=lambda path: str(path.relative_to(REPOSITORY))
)
def test_imports_are_documented(path):
    assert not [name for name in imported(path) if not is_public(name)]


def test_private_names_are_found():
    assert not is_public("fedjax_sel.core.plugins.sources") and not is_public("fedjax_sel.metrics._mean")
