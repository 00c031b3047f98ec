"""Memory of arrays, compiled programs and devices, in bytes."""

import math
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def of_arrays(tree: Any) -> int:
    """Return the bytes of all arrays in a pytree.

    Args:
        tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
    """
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def of_program(compiled: Any) -> int:
    """Return the memory of a compiled program: arguments, results without donated buffers, and temporaries.

    Args:
        compiled: result of `jitted.lower(...).compile()`.
    """
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )


def of_program_text(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes of all intermediate results of a function, an upper bound of its compiled program's memory.

    Args:
        function: traceable function.
        *arguments: arguments of the function, as arrays or shapes.
    """
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return sum(of_arrays([variable.aval for variable in equation.outvars]) for equation in equations)


def of_device() -> int | None:
    """Return the smallest memory of a device on any machine, in bytes; None if a device does not report it.

    The result is equal on all machines, since it decides the layout of the work. The cores of a CPU share its memory.
    """
    own = _of_own_device()
    if jax.process_count() == 1:
        return own
    megabytes = np.asarray(multihost_utils.process_allgather(np.int32((own or 0) // 2**20)))
    return int(megabytes.min()) * 2**20 or None


def _of_own_device() -> int | None:
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // jax.local_device_count()
    return None
