"""Bytes: of arrays, of programs, and of devices."""

import math
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def of_arrays(tree: Any) -> int:
    """Return the bytes of all arrays in a pytree, or of what has their shapes and dtypes.

    Args:
        tree: arrays or `jax.ShapeDtypeStruct`.
    """
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def of_program(compiled: Any) -> int:
    """Return the bytes that a compiled program needs at once: arguments, results not donated, temporaries.

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
    """Return the bytes of all that a function computes on its way: above what its compiled program holds at once.

    Args:
        function: traceable.
        *arguments: their shapes.
    """
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return sum(of_arrays([variable.aval for variable in equation.outvars]) for equation in equations)


def of_device() -> int | None:
    """Return the bytes that the smallest device of all machines has for a program; None if one is silent.

    Every machine must come to the same answer, since it decides how the work is laid out. The cores of a CPU share its
    memory.
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
