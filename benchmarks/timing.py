"""Timing of a jitted function: compilation, steady state and memory."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_sel.core import memory

FEWEST = 3  # minimum number of timed calls


def spread(values: Any, digits: int = 3) -> dict[str, float]:
    """Return the median, 10th and 90th percentile, and number of values."""
    numbers = {"median": np.median(values), "p10": np.percentile(values, 10), "p90": np.percentile(values, 90)}
    return {name: round(float(number), digits) for name, number in numbers.items()} | {"samples": len(values)}


def steady(
    function: Callable[..., Any],
    *arguments: Any,
    seconds: float = 1.0,
    most: int = 100,
    look: Callable[[Any], None] = lambda compiled: None,
) -> dict[str, Any]:
    """Compile a function and time repeated calls.

    Args:
        function: the function, not yet jitted.
        *arguments: its array arguments.
        seconds: time after which no call starts; at least FEWEST calls are timed, or one if the first call is slow.
        most: maximum number of calls.
        look: callback that receives the compiled function.

    Returns:
        `compile_seconds`, `milliseconds` per call (see `spread`), and XLA's `program_megabytes`.
    """
    import jax

    started = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    compile_seconds = time.perf_counter() - started
    look(compiled)
    started = time.perf_counter()
    jax.block_until_ready(compiled(*arguments))
    fewest = FEWEST if time.perf_counter() - started < 10 * seconds else 1
    times: list[float] = []
    while len(times) < most and (len(times) < fewest or sum(times) < seconds):
        started = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.perf_counter() - started)
    return {
        "compile_seconds": round(compile_seconds, 2),
        "milliseconds": spread(1e3 * np.array(times), 4),
        "program_megabytes": round(memory.program_bytes(compiled) / 1e6, 1),
    }
