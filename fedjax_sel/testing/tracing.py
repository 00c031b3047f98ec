"""Traced programs of functions, as text."""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def program(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, list[bytes]]:
    """Trace a function without JAX's cache.

    Args:
        function: a traceable function.
        arguments: arrays or their shapes.

    Returns:
        The program's text without addresses, and its constants.
    """
    closed = jax.make_jaxpr(lambda *args: function(*args))(*arguments)
    return re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)), [np.asarray(constant).tobytes() for constant in closed.consts]
