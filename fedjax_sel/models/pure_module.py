"""What the simulator asks of a neural network, whichever library it was written in.

A network holds weights that are trained (`trained`) and state that its training passes update without a gradient
(`carried`: running averages of batch normalisation, and whatever else a module keeps). Both are pytrees of arrays, so
that clients' copies can be stacked, averaged and stored.
"""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Arrays = Any  # a pytree of arrays
Apply = Callable[[Arrays, Arrays, Any, jax.Array | None, bool], tuple[Any, Arrays]]
"""(trained, carried, inputs [B, ...], key or None, train) -> (output, carried). `train` is static.

In evaluation the key is None, and what comes back as carried is what went in.
"""


class PureModule(NamedTuple):
    """A module as pure functions, which `jit`, `grad`, `vmap` and `scan` take.

    Attributes:
        init: key -> (trained, carried).
        apply: see `Apply`.
        apply_with_layer: name of a layer, or None for the first fully-connected one -> an `Apply` whose output is
            (output, that layer's output). Raises a UserError if there is no such layer, before anything is compiled.
    """

    init: Callable[[jax.Array], tuple[Arrays, Arrays]]
    apply: Apply
    apply_with_layer: Callable[[str | None], Apply]


def stream_key(key: jax.Array, name: str) -> jax.Array:
    """Return the key of a stream of random numbers, which depends on the stream's name alone, not on the other ones."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def shapes_of(arrays: Any) -> Any:
    """Return the shapes and dtypes of a pytree, which two pytrees have in common where one may replace the other."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), arrays)


def zeros_of(shapes: Any) -> Any:
    """Return a pytree of zeros of given shapes and dtypes."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def left_alone(change: Callable[[Arrays], Arrays], shapes: Arrays) -> Any:
    """Return of each array of a pytree whether a function hands it back as it is, a pytree of bool.

    Nothing is computed. What comes back through a transform with a program of its own counts as changed.

    Args:
        change: a pytree -> one of the same structure.
        shapes: of what it is given.
    """
    jaxpr = jax.make_jaxpr(change)(shapes).jaxpr
    alone = [after is before for after, before in zip(jaxpr.outvars, jaxpr.invars)]
    return jax.tree.unflatten(jax.tree.structure(shapes), alone)
