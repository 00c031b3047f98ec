"""Reading values as users give them: texts of a command line, JSON, or Python; one sentence where they are wrong."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError

MOST_SEEDS = 10_000
_COUNT = re.compile(r"0*[1-9][0-9]{0,8}")  # so many devices there are nowhere


def as_list(value: Any) -> list[Any]:
    """Make a list of a text, a single value, or anything that can be gone through."""
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        return [value]
    return [_number(value)] if getattr(value, "ndim", 1) == 0 else list(value)


def scalar(flag: str, value: Any, kind: type) -> Any:
    """Read one number, truth value or text.

    Args:
        flag: for messages.
        value: what the user gave.
        kind: int, float, bool or str.

    Raises:
        UserError: it is not one.
    """
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
    try:
        return as_kind(value, kind)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UserError(f"{flag}: {shown(value)} is not {wanted}") from error


def as_kind(value: Any, kind: type) -> Any:
    """Convert a value to a type, or raise one of TypeError, ValueError, KeyError and OverflowError."""
    if kind is bool:
        return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
    if kind is str:
        if value is None:
            raise ValueError
        return str(value)
    if isinstance(value, bool) or value is None:
        raise ValueError
    if isinstance(value, str) and ("_" in value or not value.isascii()):  # Python's own writing, and others' digits
        raise ValueError
    converted = kind(value) + 0  # of -0.0 remains 0.0
    if kind is int and not isinstance(value, str) and converted != value:
        raise ValueError
    return converted


SMALLEST, LARGEST = 2.0**-126, 2.0**128 - 2.0**104  # of the normal numbers in float32


def misfit(value: Any) -> str | None:
    """Return why a number cannot be computed with on a device, where all have 32 bits; None where it can."""
    if isinstance(value, float) and 0 < abs(value) < SMALLEST:
        return "is 0 in the 32-bit numbers that a run computes with; give more"
    if isinstance(value, float) and LARGEST < abs(value) < float("inf"):
        return "is infinite in the 32-bit numbers that a run computes with; give less"
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        return "is above 2147483647" if value > 0 else "is below -2147483648"
    return None


def availability(value: Any) -> str:
    """Return a share in its shortest form, or the name of a file."""
    text = scalar("--available", value, str)
    try:
        return repr(as_kind(text, float)).removesuffix(".0")
    except ValueError:
        return text


_EXAMPLES = {
    "--algo-args": "profile=fc1-relu",
    "--optimizer-args": "mu=0.01",
    "--client-optimizer-args": "b1=0.8",
    "--server-optimizer-args": "momentum=0.9",
    "--model-args": "width=64",
    "--dataset-args": "hospital=3",
    "--partition-args": "spread=0.5",
    "--task-args": "temperature=2",
}


def epochs(value: Any) -> int | str | None:
    """Read a count, or a range as lowest:highest."""
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return None
    if not isinstance(value, str) or ":" not in value:
        return _passes(value)
    low, high = map(_passes, value.split(":", 1))
    if low > high:
        raise UserError(f"--local-epochs: {shown(value)} ends below its beginning; give {high}:{low}")
    return low if low == high else f"{low}:{high}"


def _passes(value: Any) -> int:
    count = scalar("--local-epochs", value, int)
    if (reason := misfit(count)) is not None:
        raise UserError(f"--local-epochs: {shown(value)} {reason}")
    return count


def seeds(value: Any) -> tuple[int, ...]:
    """Read a count of seeds, or the seeds themselves: one number is a count, and "7," is the one seed 7."""
    items = as_list(value)
    if not isinstance(value, Iterable) or (isinstance(value, str) and len(items) == 1 and "," not in value):
        count = scalar("--seeds", items[0], int)
        if count < 1:
            raise UserError(f"--seeds: {count} is below 1; give a count such as 5, or several seeds such as 3 4 7")
        return tuple(range(min(count, MOST_SEEDS + 1)))
    found = tuple(scalar("--seeds", item, int) for item in items)
    if len(set(found)) < len(found):
        raise UserError(f"--seeds: {shown(found)} names a seed twice; give each once")
    return found


def pairs(flag: str, value: Any) -> tuple[tuple[str, Any], ...]:
    """Return sorted (key, value) pairs of a mapping, of pairs, or of texts of the form key=value."""
    if isinstance(value, Mapping):
        value = tuple(value.items())
    found: dict[str, Any] = {}
    for item in value.split() if isinstance(value, str) else as_list(value):
        key, equals, text = item.partition("=") if isinstance(item, str) else _pair(item)
        if not equals or not key or not isinstance(key, str):
            raise UserError(f"{flag}: {shown(item)} is not of the form key=value, e.g. {_EXAMPLES[flag]}")
        if key in found:
            raise UserError(f"{flag}: {shown(key)} is given twice; give it once")
        found[key] = _number(text)
    return tuple(sorted(found.items()))


def _number(value: Any) -> Any:
    """Return what NumPy holds as a scalar as Python's own number, which files can hold; anything else as it is."""
    is_numpy = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_numpy else value


def _pair(item: Any) -> tuple[Any, bool, Any]:
    return (item[0], True, item[1]) if isinstance(item, tuple | list) and len(item) == 2 else (None, False, None)


def mesh_shape(text: str) -> tuple[int, int]:
    """Return devices along seeds and along clients, from `seeds=2,clients=4`; what is left out is 1.

    Raises:
        UserError: it is not of that form.
    """
    shape = {"seeds": 1, "clients": 1}
    parts = [part.strip().partition("=") for part in text.split(",")]
    names = [name for name, _, _ in parts]
    if len(set(names)) < len(names) or any(
        name not in shape or not _COUNT.fullmatch(value) for name, _, value in parts
    ):
        raise UserError(f"--mesh: {shown(text)} is not of the form seeds=2,clients=4, with whole numbers from 1")
    shape.update({name: int(value) for name, _, value in parts})
    return shape["seeds"], shape["clients"]


def name_and_parameters(flag: str, text: str, example: str) -> tuple[str, dict[str, str]]:
    """Read `name` or `name[key=value,key=value]`.

    Args:
        flag: whose it is, for messages.
        text: what was given.
        example: of what could be, for messages.

    Returns:
        The name and the parameters in alphabetical order.

    Raises:
        UserError: it is not of that form.
    """
    match = re.fullmatch(r"([^\[\]=,\s]+)(?:\[(.*)\])?", text.strip())
    if match is None:
        raise UserError(f"{flag}: {text!r} is not of the form name or name[key=value,key=value], {example}")
    values: dict[str, str] = {}
    for pair in filter(None, (match[2] or "").split(",")):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise UserError(f"{flag}: {pair!r} in {text!r} is not of the form key=value, {example}")
        if key in values:
            raise UserError(f"{flag}: {text!r} gives {key!r} twice; give it once")
        values[key] = value
    return match[1], dict(sorted(values.items()))
