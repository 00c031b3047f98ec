"""The public names of the package, for the pages of the reference."""

import inspect
from pathlib import Path

import fedjax_sel

_ELSEWHERE = {"Dataset": "values", "Experiment": "values", "Selector": "selector"}  # name -> page; the others: running


def overview(root: Path) -> str:
    """Return a table of all public names: what each is, in its first sentence."""
    lines = ["| name | what it is |", "|---|---|"]
    for name in fedjax_sel.__all__:
        if name == "__version__":
            lines.append("| `__version__` | the version, a text |")
            continue
        about = (inspect.getdoc(getattr(fedjax_sel, name)) or "").split("\n")[0]
        lines.append(f"| [`{name}`]({_ELSEWHERE.get(name, 'running')}.md#fedjax_sel.{name}) | {about} |")
    return "\n".join(lines)


def entries(root: Path) -> str:
    """Return what mkdocstrings makes the reference of: functions first, then classes, without those on other pages."""
    names = [name for name in fedjax_sel.__all__ if name != "__version__" and name not in _ELSEWHERE]
    names.sort(key=lambda name: (inspect.isclass(getattr(fedjax_sel, name)), name.endswith("Error")))
    return "\n".join(f"::: fedjax_sel.{name}" for name in names)
