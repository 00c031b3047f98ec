"""Training images that stay in host memory, also as a memory-mapped file: each batch is sent when a step needs it.

For federations that a device's memory does not hold. The program asks for rows by number from within the compiled
rounds; what it computes is the same, and each step waits for its batch (benchmarks/streaming.py measures how long).
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
        """As of an array."""
        return self.array.shape

    def _rows(self, rows: Any) -> np.ndarray:
        return np.take(self.array, np.asarray(rows), axis=0)


Images = jax.Array | HostImages


def take(images: Images, rows: jax.Array) -> jax.Array:
    """Images by number.

    Args:
        images: uint8 [n, H, W, channels].
        rows: int32 [...].

    Returns:
        uint8 [..., H, W, channels].
    """
    shape = images.shape[1:]
    if isinstance(images, HostImages):
        wanted = jax.ShapeDtypeStruct((*rows.shape, *shape), jnp.uint8)
        return jax.pure_callback(images._rows, wanted, rows, vmap_method="broadcast_all")
    # Rows of one long axis: XLA's CPU gather is three times slower on small trailing axes.
    return images.reshape(images.shape[0], -1)[rows].reshape(*rows.shape, *shape)


def block(images: Images, start: jax.Array, size: int) -> jax.Array:
    """`size` images in a row, uint8 [size, H, W, channels].

    Args:
        images: uint8 [n, H, W, channels].
        start: the first, int32 scalar.
        size: how many.
    """
    if isinstance(images, HostImages):
        return take(images, start + jnp.arange(size))
    return lax.dynamic_slice_in_dim(images, start, size)
