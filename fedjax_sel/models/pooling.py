"""2 x 2 max-pooling without overlap, of images and of tiles.

Of images it is a reshape and a maximum, whose gradient is deterministic. XLA is slow on a CPU at maxima over strides,
and slower at their gradient, so a convolution gives its outputs with the pixels of a window far apart where it can.
"""

import jax
import jax.numpy as jnp
from jax import lax


def max_pool(x: jax.Array) -> jax.Array:
    """Max-pool 2 x 2 without overlap; an odd last row or column is dropped, as in PyTorch.

    Args:
        x: [B, H, W, channels].

    Returns:
        [B, H // 2, W // 2, channels].
    """
    *batch, height, width, channels = x.shape
    even = x[..., : height // 2 * 2, : width // 2 * 2, :]
    return even.reshape(*batch, height // 2, 2, width // 2, 2, channels).max(axis=(-4, -2))


@jax.custom_vjp
def pool_tiles(tiles: jax.Array) -> jax.Array:
    """Max-pool 2 x 2 within tiles, whose pixels come first; numbers that are equal share the gradient.

    Args:
        tiles: [m, m, ...] with an even m.

    Returns:
        [m / 2, m / 2, ...].
    """
    (a, b), (c, d) = _corners(tiles)
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


def _pool_forward(tiles: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    largest = pool_tiles(tiles)
    return largest, (tiles, largest)


def _pool_backward(kept: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    tiles, largest = kept
    hits = [[corner == largest for corner in row] for row in _corners(tiles)]
    share = gradient / sum((hit.astype(gradient.dtype) for row in hits for hit in row), start=jnp.zeros(()))
    rows = [jnp.stack([jnp.where(hit, share, 0.0) for hit in row], axis=2) for row in hits]
    return (lax.optimization_barrier(jnp.stack(rows, axis=1).reshape(tiles.shape)),)


pool_tiles.defvjp(_pool_forward, _pool_backward)


def _corners(tiles: jax.Array) -> list[list[jax.Array]]:
    """Return the pixels at each of the four places of all windows of 2 x 2, [m / 2, m / 2, ...]."""
    return [[tiles[i::2, j::2] for j in range(2)] for i in range(2)]
