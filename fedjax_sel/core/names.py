"""Name lookup with suggestions for unknown names."""

import difflib
from collections.abc import Hashable, Iterable
from typing import Any

from fedjax_sel.errors import UserError

LONGEST = 80  # maximum length of a value in a message, characters


def shown(value: Any) -> str:
    """Format a value for a message: its repr, truncated."""
    try:
        text = repr(value)
    except Exception:  # an integer above Python's digit limit, or a type whose repr raises
        return (
            "a number of thousands of digits" if isinstance(value, int) else f"a value of type {type(value).__name__}"
        )
    text = " ".join(text.split()) if "\n" in text else text  # an array's repr has several lines
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}... ({len(text)} characters)"


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """Return a phrase that suggests similar names, or lists all names if none is similar.

    Args:
        unknown: the unknown name.
        known: the known names.

    Returns:
        "did you mean 'a' or 'b'?", or "choose from a, b, c".
    """
    known = sorted(set(known))
    near = difflib.get_close_matches(unknown, known, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"choose from {', '.join(known)}" if known else "no names are defined"


def one_of(what: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return a value if it is allowed.

    Args:
        what: the name of the flag or field, for the message.
        value: the user's value.
        allowed: the allowed values.

    Raises:
        UserError: If the value is not allowed; the message suggests similar values or lists all.
    """
    allowed = tuple(allowed)
    if isinstance(value, Hashable) and value in allowed:
        return value
    raise UserError(f"{what}: unknown {shown(value)}; {did_you_mean(str(value), (str(name) for name in allowed))}")
