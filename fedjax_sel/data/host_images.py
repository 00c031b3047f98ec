"""Indexing of inputs on the device or in host memory, including memory-mapped files.

Images in host memory allow data sets larger than a device's memory. A callback inside the compiled rounds sends each
batch to the device. Results are the same, but each step waits for its batch (benchmarks/streaming.py times it).
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
    """An array of images in host memory, in place of a device array in a Federation. Static: it has no leaves."""

    array: np.ndarray  # uint8 [n, H, W, channels]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    def _rows(self, rows: Any) -> np.ndarray:
        return np.take(self.array, np.asarray(rows), axis=0)


Images = Any
"""HostImages, or a tree of arrays [n, ...] on the device, usually one uint8 array [n, H, W, channels]."""


def take(images: Images, rows: jax.Array) -> Any:
    """Return the inputs at given positions.

    Args:
        images: inputs [n, ...].
        rows: positions, int32 [...].

    Returns:
        Inputs such as uint8 [..., H, W, channels].
    """
    return jax.tree.map(lambda array: _take(array, rows), images, is_leaf=_is_array)


def block(images: Images, start: jax.Array, size: int) -> Any:
    """Return `size` consecutive inputs, such as uint8 [size, H, W, channels].

    Args:
        images: inputs [n, ...].
        start: first position, int32 scalar.
        size: number of inputs.
    """
    return jax.tree.map(lambda array: _block(array, start, size), images, is_leaf=_is_array)


def _is_array(node: Any) -> bool:
    return isinstance(node, HostImages)  # it has no leaves, so `jax.tree.map` would skip it


def _take(images: jax.Array | HostImages, rows: jax.Array) -> jax.Array:
    shape = images.shape[1:]
    if isinstance(images, HostImages):
        wanted = jax.ShapeDtypeStruct((*rows.shape, *shape), jnp.uint8)
        return jax.pure_callback(images._rows, wanted, rows, vmap_method="broadcast_all")
    # Gather rows of one long axis: XLA's CPU gather is three times slower on small trailing axes.
    return images.reshape(images.shape[0], -1)[rows].reshape(*rows.shape, *shape)


def _block(images: jax.Array | HostImages, start: jax.Array, size: int) -> jax.Array:
    if isinstance(images, HostImages):
        return _take(images, start + jnp.arange(size))
    return lax.dynamic_slice_in_dim(images, start, size)
