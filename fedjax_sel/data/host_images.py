"""Inputs by number, from the device or from host memory; and images that stay in host memory, also as a mapped file.

The latter is for federations that a device's memory does not hold: each batch is sent when a step needs it. The program
asks for rows by number from within the compiled rounds; what it computes is the same, and each step waits for its batch
(benchmarks/streaming.py measures how long).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class HostImages:
    """Stands in a Federation where an array of images would stand. Static: it has no leaves."""

    array: np.ndarray  # uint8 [n, H, W, channels]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the inputs, as of an array."""
        return self.array.shape

    def _rows(self, rows: Any) -> np.ndarray:
        return np.take(self.array, np.asarray(rows), axis=0)


Images = Any
"""HostImages, or a tree of arrays [n, ...] on the device: mostly one, uint8 [n, H, W, channels]."""


def take(images: Images, rows: jax.Array) -> Any:
    """Return images, or other inputs, by number.

    Args:
        images: such as uint8 [n, H, W, channels].
        rows: int32 [...].

    Returns:
        Such as uint8 [..., H, W, channels].
    """
    return jax.tree.map(lambda array: _take(array, rows), images, is_leaf=_is_array)


def block(images: Images, start: jax.Array, size: int) -> Any:
    """Return `size` images, or other inputs, in a row, such as uint8 [size, H, W, channels].

    Args:
        images: such as uint8 [n, H, W, channels].
        start: the first, int32 scalar.
        size: how many.
    """
    return jax.tree.map(lambda array: _block(array, start, size), images, is_leaf=_is_array)


def _is_array(node: Any) -> bool:
    return isinstance(node, HostImages)  # which has no leaves, and would be passed over


def _take(images: jax.Array | HostImages, rows: jax.Array) -> jax.Array:
    shape = images.shape[1:]
    if isinstance(images, HostImages):
        wanted = jax.ShapeDtypeStruct((*rows.shape, *shape), jnp.uint8)
        return jax.pure_callback(images._rows, wanted, rows, vmap_method="broadcast_all")
    # Rows of one long axis: XLA's CPU gather is three times slower on small trailing axes.
    return images.reshape(images.shape[0], -1)[rows].reshape(*rows.shape, *shape)


def _block(images: jax.Array | HostImages, start: jax.Array, size: int) -> jax.Array:
    if isinstance(images, HostImages):
        return _take(images, start + jnp.arange(size))
    return lax.dynamic_slice_in_dim(images, start, size)
