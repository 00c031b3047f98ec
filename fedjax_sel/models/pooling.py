"""2 x 2 max-pooling without overlap, of images and of tiles.

For images, pooling is a reshape and a maximum with a deterministic gradient. On a CPU, XLA is slow at strided maxima
and slower at their gradient. Where possible, convolutions therefore return the pixels of a window in separate slices.
"""

import jax
import jax.numpy as jnp
from jax import lax


def max_pool(x: jax.Array) -> jax.Array:
    """Max-pool 2 x 2 without overlap; an odd last row or column is dropped, as in PyTorch.

    Args:
        x: images [B, H, W, channels].

    Returns:
        Maxima [B, H // 2, W // 2, channels].
    """
    *batch, height, width, channels = x.shape
    even = x[..., : height // 2 * 2, : width // 2 * 2, :]
    return even.reshape(*batch, height // 2, 2, width // 2, 2, channels).max(axis=(-4, -2))


@jax.custom_vjp
def pool_tiles(tiles: jax.Array) -> jax.Array:
    """Max-pool 2 x 2 within tiles; tied maxima share the gradient.

    Args:
        tiles: tiles [m, m, ...] with even m; pixels are the leading axes.

    Returns:
        Maxima [m / 2, m / 2, ...].
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
    """Return the pixels at each of the four positions in the 2 x 2 windows, [m / 2, m / 2, ...] each."""
    return [[tiles[i::2, j::2] for j in range(2)] for i in range(2)]
