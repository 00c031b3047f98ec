"""A jitted function, timed: compilation, steady state and memory apart."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

FEWEST = 3  # calls, however long they take


def spread(values: Any, digits: int = 3) -> dict[str, float]:
    """Return median, 10th and 90th percentile, and how many there were."""
    numbers = {"median": np.median(values), "p10": np.percentile(values, 10), "p90": np.percentile(values, 90)}
    return {name: round(float(number), digits) for name, number in numbers.items()} | {"samples": len(values)}


def steady(
    function: Callable[..., Any],
    *arguments: Any,
    seconds: float = 1.0,
    most: int = 100,
    look: Callable[[Any], None] = lambda compiled: None,
) -> dict[str, Any]:
    """Compile a function and call it again and again.

    Args:
        function: not yet jitted.
        *arguments: arrays.
        seconds: after which no call is begun; FEWEST are, besides a first one, or one where that took long.
        most: calls.
        look: is shown the compiled function.

    Returns:
        `compile_seconds`, `milliseconds` of a call (see `spread`), and `program_megabytes` as XLA says.
    """
    import jax

    from fedjax_sel.devices import memory

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
        "program_megabytes": round(memory.of_program(compiled) / 1e6, 1),
    }
