"""The package's public names, for the API reference."""

import inspect
from pathlib import Path

import fedjax_sel

_ELSEWHERE = {"Dataset": "values", "Selector": "selector"}  # name -> page; default: running
_FIRST = ("run", "Config", "Experiment", "Result")


def overview(root: Path) -> str:
    """Return a table of all public names with the first sentence of their docstrings."""
    lines = ["| name | description |", "|---|---|"]
    for name in _ordered():
        if name == "__version__":
            lines.append("| `__version__` | The version, a string. |")
            continue
        about = (inspect.getdoc(getattr(fedjax_sel, name)) or "").split("\n")[0]
        lines.append(f"| [`{name}`]({_ELSEWHERE.get(name, 'running')}.md#fedjax_sel.{name}) | {about} |")
    return "\n".join(lines)


def entries(root: Path) -> str:
    """Return the mkdocstrings directives of the `running` page."""
    return "\n".join(
        f"::: fedjax_sel.{name}" for name in _ordered() if name != "__version__" and name not in _ELSEWHERE
    )


def _ordered() -> list[str]:
    """Return the public names: the four that every script uses, other functions, classes, errors."""
    rest = sorted(
        (name for name in fedjax_sel.__all__ if name not in _FIRST),
        key=lambda name: (inspect.isclass(getattr(fedjax_sel, name)), name.endswith("Error"), name == "__version__"),
    )
    return [*_FIRST, *rest]
