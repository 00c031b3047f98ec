"""Looking a name up, with the nearest one offered when it is wrong."""

import difflib
from collections.abc import Hashable, Iterable
from typing import Any

from fedjax_sel.errors import UserError

LONGEST = 80  # characters of a value in a message


def shown(value: Any) -> str:
    """Return a value as a message shows it: its repr, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # an integer that Python does not write out, or whatever a foreign type raises
        return (
            "a number of thousands of digits" if isinstance(value, int) else f"a value of type {type(value).__name__}"
        )
    text = " ".join(text.split()) if "\n" in text else text  # of an array
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}... ({len(text)} characters)"


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """Return a phrase that offers the nearest known names, or all of them where none is near.

    Args:
        unknown: the name that does not exist.
        known: names that do.

    Returns:
        "did you mean 'a' or 'b'?", or "choose from a, b, c".
    """
    known = sorted(set(known))
    near = difflib.get_close_matches(unknown, known, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"choose from {', '.join(known)}" if known else "there is nothing to choose from"


def one_of(what: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return a value if it is allowed.

    Args:
        what: the field, for the message.
        value: what the user gave.
        allowed: what it may be.

    Raises:
        UserError: one sentence with the field, the value, and the nearest allowed ones or all of them.
    """
    allowed = tuple(allowed)
    if isinstance(value, Hashable) and value in allowed:
        return value
    raise UserError(f"{what}: unknown {shown(value)}; {did_you_mean(str(value), (str(name) for name in allowed))}")
