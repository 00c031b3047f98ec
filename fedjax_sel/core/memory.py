"""Bytes of arrays and of compiled programs."""

import math
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
