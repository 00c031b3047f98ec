"""Bytes of arrays, of compiled programs, and of a device."""

import math
import os
from collections.abc import Callable
from typing import Any

import jax


def array_bytes(tree: Any) -> int:
    """Return the bytes of all arrays, or `jax.ShapeDtypeStruct`, in a pytree."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def program_bytes(compiled: Any) -> int:
    """Return the memory of a compiled program: arguments, results without donated buffers, and temporaries."""
    memory = compiled.memory_analysis()
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return memory.argument_size_in_bytes + results + memory.temp_size_in_bytes


def intermediate_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes of all intermediate results of a function, an upper bound of its compiled program's memory."""
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return sum(array_bytes([variable.aval for variable in equation.outvars]) for equation in equations)


def device_memory() -> int | None:
    """Return the memory of a device, in bytes; None if a device does not report it."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // jax.local_device_count()
    return None
