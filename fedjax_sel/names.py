"""Looking a name up, with the nearest one offered when it is wrong."""

import difflib
from collections.abc import Iterable
from typing import Any

from fedjax_sel.errors import UserError


def one_of(what: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Returns the value if it is allowed.

    Args:
        what: the field, for the message.
        value: what the user gave.
        allowed: what it may be.

    Raises:
        UserError: one sentence with the field, the value, the nearest allowed one and all of them.
    """
    allowed = tuple(allowed)
    if value in allowed:
        return value
    nearest = difflib.get_close_matches(str(value), [str(name) for name in allowed], n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    choices = ", ".join(str(name) for name in allowed) or "none"
    raise UserError(f"{what}: unknown {value!r}; {hint}It is one of: {choices}")
