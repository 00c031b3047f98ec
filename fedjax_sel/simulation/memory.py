"""Bytes: of arrays, of programs, and of devices."""

import math
import os
from collections.abc import Callable
from typing import Any

import jax


def of_arrays(tree: Any) -> int:
    """Bytes of all arrays in a pytree, or of what has their shapes and dtypes.

    Args:
        tree: arrays or `jax.ShapeDtypeStruct`.
    """
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def of_program(compiled: Any) -> int:
    """Bytes that a compiled program needs at once: arguments, results that are not donated arguments, temporaries.

    Args:
        compiled: from `jitted.lower(...).compile()`.
    """
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )


def of_program_text(function: Callable[..., Any], *arguments: Any) -> int:
    """Bytes of everything that a function computes on its way: above what a compiled program holds at once.

    Args:
        function: traceable.
        *arguments: their shapes.
    """
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return sum(of_arrays([variable.aval for variable in equation.outvars]) for equation in equations)


def of_device() -> int | None:
    """Bytes that a device has for a program; None where it does not say.

    The cores of a CPU share its memory.
    """
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // jax.local_device_count()
    return None
