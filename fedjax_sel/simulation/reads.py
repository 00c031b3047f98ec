"""What a strategy's function reads, from its jaxpr: a fact that no output depends on was not bought."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal


def read(function: Callable[..., Any], *arguments: Any) -> Any:
    """Which inputs the outputs of a function depend on.

    A called function (a branch, a loop body, a jitted helper) counts as reading all that is handed to it.

    Args:
        function: pure and traceable.
        *arguments: pytrees of arrays, tracers or `jax.ShapeDtypeStruct`.

    Returns:
        The tuple of arguments with a Boolean for every leaf.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    jaxpr = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(structure, flat)))(*shapes).jaxpr
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    for equation in reversed(jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            needed.update(var for var in equation.invars if not isinstance(var, Literal))
    return jax.tree.unflatten(structure, [var in needed for var in jaxpr.invars])
