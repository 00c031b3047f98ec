#!/usr/bin/env python3
"""Write `fedjax_sel/config/typed.py`, the fields for type checkers, from `config/__init__.py`."""

import argparse
import ast
import inspect
import typing
from pathlib import Path

from fedjax_sel import config

FILE = Path(__file__).parents[1] / "fedjax_sel/config/typed.py"
HEAD = '''"""The fields for type checkers. Generated from `config/__init__.py` by `tools/typed_settings.py`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


'''
SET = {  # accepted types of fields, where wider than the stored type
    "seeds": "int | str | Sequence[int]",
    "learning_rate_milestones": "Sequence[int]",
    "available": "float | str",
    "skewness": "float | str",
    **dict.fromkeys(config.PAIRS, "Mapping[str, Any] | Sequence[Any]"),
    **dict.fromkeys(config.OPEN, "str"),
}


def text() -> str:
    """Return the file's content."""
    tree = ast.parse(Path(config.__file__).read_text())
    kinds = {kind.__name__ for kind in config.CONCERNS.values()}
    read = {
        line.target.id: _without_range(ast.unparse(line.annotation).replace("'", '"'))
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in kinds
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    parts = [
        ("Settings(TypedDict, total=False)", "Keyword arguments of fields that only take plain settings.",
         [name for name in read if name not in config.VALUES]),
        ("NamedSettings(Settings, total=False)", "Keyword arguments of all fields.", config.VALUES),
    ]  # fmt: skip
    types = {**read, **SET}
    classes = []
    for name, about, fields in parts:
        lines = "\n".join(f"    {field}: {types[field]}" for field in fields)
        classes.append(f'class {name}:\n    """{about}"""\n\n{lines}\n')
    return HEAD + "\n\n".join(classes)


def _without_range(annotation: str) -> str:
    if " | " in annotation:
        return " | ".join(map(_without_range, annotation.split(" | ")))
    kind = getattr(config, annotation, None)
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return annotation if kind is None else inspect.formatannotation(kind).replace("typing.", "")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes none
    FILE.write_text(text())
