"""Conversion of user input from a command line, a file or Python to a field's type."""

import numbers
import os
import types
import typing
from typing import Any, Literal

from fedjax_sel.config.settings import OPEN, PAIRS, VALUES, flat_types
from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import one_of, shown
from fedjax_sel.errors import UserError


def convert(name: str, value: Any) -> Any:
    """Convert user input to a field's type.

    Args:
        name: the field's flat name.
        value: a Python or JSON value, or a string from a command line.

    Returns:
        The value in the field's type.

    Raises:
        UserError: If the value cannot be converted.
    """
    if name == "seeds":
        return parsing.seeds(value)
    if name in PAIRS:
        return parsing.pairs("--" + name.replace("_", "-"), value)
    if name == "local_epochs":
        return parsing.epochs(value)
    if name == "available" and (value is None or isinstance(value, str | numbers.Real)):
        return parsing.availability(value)
    flag = "--" + name.replace("_", "-")
    if name in ("out", "data_dir"):
        if not (value is None or isinstance(value, str | os.PathLike)):
            raise UserError(f"{flag}: {shown(value)} is not a path; give a str or a pathlib.Path")
        if any("\ud800" <= letter <= "\udfff" for letter in str(value)):  # Python's code points for non-UTF-8 bytes
            raise UserError(f"{flag}: {str(value)!a} is not UTF-8, so it cannot be written to a file; rename it")
    kind = flat_types()[name]
    if name in VALUES and not (value is None or isinstance(value, str | numbers.Real)):
        raise UserError(
            f"{flag}: a value of type {type(value).__name__} is not a name; pass it to fedjax_sel.Experiment.of("
            f"{name}=...)"
        )
    if isinstance(kind, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        kind = next(option for option in typing.get_args(kind) if option is not types.NoneType)
    if typing.get_origin(kind) is Literal:
        if name in OPEN and isinstance(value, str) and ":" in value:
            return value  # a plug-in, or the placeholder of a Python value
        if name == "skewness" and isinstance(value, int | float) and not isinstance(value, bool):
            value = f"{value:g}"
        return one_of(flag, value, typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        items = parsing.as_list(value)
        if items == ["none"]:
            return ()
        return tuple(parsing.scalar(flag, item, typing.get_args(kind)[0]) for item in items)
    return parsing.scalar(flag, value, kind)
