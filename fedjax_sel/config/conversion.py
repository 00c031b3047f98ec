"""From whatever a user wrote, on a command line, in a file or in Python, to a field's value."""

import numbers
import os
import types
import typing
from typing import Any, Literal

from fedjax_sel.config.settings import OPEN, PAIRS, VALUES, flat_types
from fedjax_sel.core import parsing
from fedjax_sel.core.names import one_of, shown
from fedjax_sel.errors import UserError


def convert(name: str, value: Any) -> Any:
    """Return a field's value from whatever a user gave: a command line's string, JSON, or Python.

    Args:
        name: flat name.
        value: a value, or a string to be read as one.

    Returns:
        A value of the field's type.

    Raises:
        UserError: it cannot be read so.
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
            raise UserError(f"{flag}: {shown(value)} is no folder; give its path as a text or a Path")
        if any("\ud800" <= letter <= "\udfff" for letter in str(value)):  # as Python reads bytes that are no UTF-8
            raise UserError(f"{flag}: {str(value)!a} is no UTF-8, and could not be written into a file; rename it")
    kind = flat_types()[name]
    if name in VALUES and not (value is None or isinstance(value, str | numbers.Real)):
        raise UserError(
            f"{flag}: a value of type {type(value).__name__} is no name; give values to fedjax_sel.Experiment.of("
            f"{name}=...)"
        )
    if isinstance(kind, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        kind = next(option for option in typing.get_args(kind) if option is not types.NoneType)
    if typing.get_origin(kind) is Literal:
        if name in OPEN and isinstance(value, str) and ":" in value:
            return value  # a plug-in, or a value's name
        if name == "skewness" and isinstance(value, int | float) and not isinstance(value, bool):
            value = f"{value:g}"
        return one_of(flag, value, typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        items = parsing.as_list(value)
        if items == ["none"]:
            return ()
        return tuple(parsing.scalar(flag, item, typing.get_args(kind)[0]) for item in items)
    return parsing.scalar(flag, value, kind)
