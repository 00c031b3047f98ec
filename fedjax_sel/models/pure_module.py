"""The simulator's interface of a neural network, independent of its library.

A network has trained weights (`trained`), and state that training passes update without a gradient (`carried`), such as
the running averages of batch normalization. Both are pytrees of arrays, so that clients' copies can be stacked,
averaged and stored.
"""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Arrays = Any  # a pytree of arrays
Apply = Callable[[Arrays, Arrays, Any, jax.Array | None, bool], tuple[Any, Arrays]]
"""(trained, carried, inputs [B, ...], key or None, train) -> (output, carried). `train` is static.

In evaluation the key is None, and `carried` is returned unchanged.
"""


class PureModule(NamedTuple):
    """A module as pure functions.

    Attributes:
        init: key -> (trained, carried).
        apply: forward pass, see `Apply`.
        apply_with_layer: path of a layer, or None for the first fully-connected layer -> an `Apply` whose output is
            (output, layer output). Raises a UserError for a missing layer before anything is compiled.
    """

    init: Callable[[jax.Array], tuple[Arrays, Arrays]]
    apply: Apply
    apply_with_layer: Callable[[str | None], Apply]


def stream_key(key: jax.Array, name: str) -> jax.Array:
    """Return the key of a random stream, which depends on the stream's name but not on other streams."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def shapes_of(arrays: Any) -> Any:
    """Return the shapes and dtypes of a pytree."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), arrays)


def zeros_of(shapes: Any) -> Any:
    """Return a pytree of zeros with given shapes and dtypes."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def left_alone(change: Callable[[Arrays], Arrays], shapes: Arrays) -> Any:
    """Return, for each array of a pytree, whether a function returns it unchanged (a pytree of bool).

    The test inspects the jaxpr. Arrays that pass through a nested jaxpr count as changed.

    Args:
        change: function from a pytree to a pytree of the same structure.
        shapes: shapes and dtypes of its argument.
    """
    jaxpr = jax.make_jaxpr(change)(shapes).jaxpr
    alone = [after is before for after, before in zip(jaxpr.outvars, jaxpr.invars)]
    return jax.tree.unflatten(jax.tree.structure(shapes), alone)
