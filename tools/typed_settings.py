#!/usr/bin/env python3
"""Write `fedjax_sel/config/typed.py`: the fields of a configuration for type checkers, from `config/settings.py`."""

import ast
from pathlib import Path

from fedjax_sel.config import settings

FILE = Path(__file__).parents[1] / "fedjax_sel/config/typed.py"
HEAD = '''"""A configuration's fields for type checkers. Written by `tools/typed_settings.py` from `settings.py`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


'''
SET = {  # what may be given for a field, where that is more than what is read
    "seeds": "int | str | Sequence[int]",
    "learning_rate_milestones": "Sequence[int]",
    "available": "float | str",
    "skewness": "float | str",
    **dict.fromkeys(settings.PAIRS, "Mapping[str, Any] | Sequence[Any]"),
    **dict.fromkeys(settings.OPEN, "str"),
}


def text() -> str:
    """Return the file."""
    tree = ast.parse(Path(settings.__file__).read_text())
    kinds = {kind.__name__ for kind in settings.CONCERNS.values()}
    read = {
        line.target.id: ast.unparse(line.annotation).replace("'", '"')
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in kinds
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    parts = [
        ("Settings(TypedDict, total=False)", "Fields to be set, but for those in whose place there may be a value.",
         [name for name in read if name not in settings.VALUES], {**read, **SET}),
        ("NamedSettings(Settings, total=False)", "All fields to be set.", settings.VALUES, {**read, **SET}),
        ("Flat", "Fields as they are read: all but `model` and `partition`, which are concerns.",
         [name for name in read if name not in settings.CONCERNS], read),
    ]  # fmt: skip
    classes = []
    for name, about, fields, types in parts:
        lines = "\n".join(f"    {field}: {types[field]}" for field in fields)
        classes.append(f'class {name}:\n    """{about}"""\n\n{lines}\n')
    return HEAD + "\n\n".join(classes)


if __name__ == "__main__":
    FILE.write_text(text())
