"""Nearest names, for messages about names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A phrase that offers the nearest known names, or all of them where none is near.

    Args:
        given: the name that does not exist.
        known: names that do.

    Returns:
        ``"did you mean 'a' or 'b'?"``, or ``"choose from a, b, c"``.
    """
    known = sorted(set(known))
    near = difflib.get_close_matches(given, known, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"choose from {', '.join(known)}" if known else "there is nothing to choose from"
