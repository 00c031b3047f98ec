"""Bytes: of arrays, and of compiled programs."""

import math
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
