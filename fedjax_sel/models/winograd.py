"""3x3 convolutions by Winograd's algorithms F(2x2, 3x3) and F(4x4, 3x3), which need fewer multiplications.

Y = A' [ (G g G') * (B' d B) ] A maps a tile d of (m + 2)^2 pixels to m x m outputs Y; neighboring tiles overlap by two
pixels. Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), Eq. 8 and the next two
sections. An output takes 4 multiplications with m = 2 and 2.25 with m = 4, instead of 9. Over channels the elementwise
products become (m + 2)^2 matrix products [tiles, channels] x [channels, features], which vmap over clients into batched
products. The tiles take 4 or 2.25 times the memory of the images; patches take 9 times.

The backward pass is explicit and applies the transposes of the four linear maps, since XLA's derivative of slices
scatters. In float32 the error relative to the largest output is about 1e-6 with m = 2, and 1e-5 with m = 4.
"""

import operator
from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.models import core as products

Matrix = Sequence[Sequence[float]]


class Tiling(NamedTuple):
    """The matrices of F(m x m, 3 x 3)."""

    pixels: Matrix  # B' [m + 2, m + 2]
    kernels: Matrix  # G [m + 2, 3]
    outputs: Matrix  # A' [m, m + 2]

    @property
    def outputs_a_side(self) -> int:
        """Number of outputs along a side of a tile, m."""
        return len(self.outputs)

    @property
    def pixels_a_side(self) -> int:
        """Number of pixels along a side of a tile, m + 2."""
        return len(self.pixels)

    def num_tiles(self, side: int) -> int:
        """Return the number of tiles along `side` outputs; the last tile may extend beyond the edge."""
        return -(-side // self.outputs_a_side)


TWO = Tiling(
    pixels=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    kernels=((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    outputs=((1, 1, 1, 0), (0, 1, -1, -1)),
)
FOUR = Tiling(
    pixels=(
        (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
    ),
    kernels=(
        (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
    ),
    outputs=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
)  # fmt: skip
FEW_TILES = 60  # with fewer large tiles, their products are too small to be fast
TILES_AT_ONCE = 100  # large tiles per product on a CPU; with 32 to 64 channels they stay in a core's cache


def tiling_of(batch: int, height: int, width: int) -> Tiling:
    """Return the faster tiling for a batch of outputs."""
    large = batch * FOUR.num_tiles(height) * FOUR.num_tiles(width)
    return FOUR if large >= FEW_TILES else TWO


def images_at_once(batch: int, height: int, width: int) -> int:
    """Return the number of images to convolve together, a divisor of the batch: on a CPU few enough for its cache."""
    tiles = FOUR.num_tiles(height) * FOUR.num_tiles(width)
    if jax.default_backend() != "cpu":
        return batch
    most = max(TILES_AT_ONCE // tiles, 1)
    few = max(images for images in range(1, batch + 1) if batch % images == 0 and images <= most)
    return few if few * tiles >= FEW_TILES else batch


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def transform_kernel(tiling: Tiling, kernel: jax.Array) -> jax.Array:
    """Return the transformed kernel G g G' for `convolve`, [(m + 2)^2, features, channels].

    The kernel is [features, 9 * channels], ordered by columns, rows and channels of the window.
    """
    window = kernel.reshape(kernel.shape[0], 3, 3, -1)  # columns, rows
    down = _combine(tiling.kernels, [window[:, :, row] for row in range(3)])
    return _stack([_combine(tiling.kernels, [d[:, column] for column in range(3)]) for d in down])


transform_kernel.defvjp(
    lambda tiling, kernel: (transform_kernel(tiling, kernel), None), lambda tiling, _, y: (_to_kernel(tiling, y),)
)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def convolve(tiling: Tiling, x: jax.Array, kernels: jax.Array) -> jax.Array:
    """Convolve images [B, H, W, channels] with a kernel from `transform_kernel`, tile by tile, without padding.

    Returns:
        Outputs [m, m, B, rows, columns, features] of tile (r, c) at [:, :, :, r, c]. Pixel (i, j) of a tile is pixel
        (m r + i, m c + j) of the output image; pixels beyond the edges are meaningless.
    """
    return _forward(tiling, x, kernels)[0]


def _forward(tiling: Tiling, x: jax.Array, kernels: jax.Array):
    batch, height, width = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    tiles = _transform_pixels(tiling, x)
    products = _batched(tiles, kernels, 2, 2)
    shape = batch, tiling.num_tiles(height), tiling.num_tiles(width), -1
    return _to_outputs(tiling, products).reshape(*(tiling.outputs_a_side,) * 2, *shape), (x, tiles, kernels)


def _backward(tiling: Tiling, kept, y):
    x, tiles, kernels = kept
    products = lax.optimization_barrier(_spread_outputs(tiling, y))
    x_tiles = _batched(products, kernels, 2, 1)
    # A product over the long axis is faster with that axis last, despite the cost of the transposition.
    moved = lax.optimization_barrier(products.swapaxes(1, 2))
    return _to_pixels(tiling, x_tiles, x.shape[:3]), _batched(moved, tiles, 2, 1)


convolve.defvjp(_forward, _backward)


def _batched(left: jax.Array, right: jax.Array, left_axis: int, right_axis: int) -> jax.Array:
    """Multiply matrices, one product per pixel of a tile, and contract the given axes."""
    return products.dot(left, right, (((left_axis,), (right_axis,)), ((0,), (0,))))


def _transform_pixels(tiling: Tiling, x: jax.Array) -> jax.Array:
    """Return B' d B of each tile: [B, H, W, channels] -> [(m + 2)^2, tiles, channels]."""
    m, side = tiling.outputs_a_side, tiling.pixels_a_side
    batch, height, width, channels = x.shape
    rows, columns = tiling.num_tiles(height - 2), tiling.num_tiles(width - 2)
    padded = jnp.pad(x, ((0, 0), (0, m * rows + m - height), (0, m * columns + m - width), (0, 0)))
    blocks = padded.reshape(batch, rows + 1, m, columns + 1, m, channels)
    down = _combine(tiling.pixels, [blocks[:, k // m : k // m + rows, k % m] for k in range(side)])
    both = [_combine(tiling.pixels, [d[:, :, k // m : k // m + columns, k % m] for k in range(side)]) for d in down]
    return _stack(both).reshape(side**2, -1, channels)


def _to_pixels(tiling: Tiling, tiles: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Apply the transpose of `_transform_pixels`, which sums the contributions of overlapping tiles to each pixel."""
    m, side = tiling.outputs_a_side, tiling.pixels_a_side
    batch, height, width = shape
    rows, columns = tiling.num_tiles(height - 2), tiling.num_tiles(width - 2)
    parts = tiles.reshape(side, side, batch, rows, columns, -1)
    down = lax.optimization_barrier(_overlap(tiling, list(parts), axis=2))  # m + 2, B, rows + 1, m, columns, ...
    both = _overlap(tiling, list(down), axis=3)  # B, rows + 1, m, columns + 1, m, ...
    x = both.reshape(batch, m * rows + m, m * columns + m, -1)
    return lax.optimization_barrier(x[:, :height, :width])


def _overlap(tiling: Tiling, parts: list[jax.Array], axis: int) -> jax.Array:
    """Multiply by B along one side and add overlapping tiles: n tiles become two axes, n + 1 blocks of m pixels."""
    m = tiling.outputs_a_side
    pixels = _combine(_transposed(tiling.pixels), parts)
    widths = [(0, 0)] * pixels[0].ndim
    after, before = widths.copy(), widths.copy()
    after[axis], before[axis] = (0, 1), (1, 0)
    own = [jnp.pad(pixel, after) for pixel in pixels[:m]]
    previous = [jnp.pad(pixel, before) for pixel in pixels[m:]]
    return jnp.stack([*map(operator.add, own[:2], previous), *own[2:]], axis=axis + 1)


def _to_kernel(tiling: Tiling, parts: jax.Array) -> jax.Array:
    """Apply the transpose of `transform_kernel`."""
    side, (features, channels) = tiling.pixels_a_side, parts.shape[1:]
    parts = parts.reshape(side, side, features, channels)
    rows = _combine(_transposed(tiling.kernels), list(parts))  # 3 of [m + 2, features, channels]
    window = [jnp.stack(_combine(_transposed(tiling.kernels), list(row))) for row in rows]
    return jnp.stack(window, axis=1).transpose(2, 0, 1, 3).reshape(features, -1)


def _to_outputs(tiling: Tiling, products: jax.Array) -> jax.Array:
    """Return A' M A of each tile: [(m + 2)^2, tiles, features] -> [m^2, tiles, features]."""
    side = tiling.pixels_a_side
    down = _combine(tiling.outputs, list(products.reshape(side, side, *products.shape[1:])))
    return _stack([_combine(tiling.outputs, list(d)) for d in down])


def _spread_outputs(tiling: Tiling, y: jax.Array) -> jax.Array:
    """Apply the transpose of `_to_outputs`: [m, m, B, rows, columns, features] -> [(m + 2)^2, tiles, features]."""
    down = _combine(_transposed(tiling.outputs), list(y))
    both = [_combine(_transposed(tiling.outputs), list(d)) for d in down]
    return _stack(both).reshape(tiling.pixels_a_side**2, -1, y.shape[-1])


def _stack(parts: list[list[jax.Array]]) -> jax.Array:
    return jnp.stack([part for row in parts for part in row])


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix))


def _combine(matrix: Matrix, parts: Sequence[jax.Array]) -> list[jax.Array]:
    """Multiply a small matrix by a list of arrays; most entries are 0, 1 or -1, so products are avoided."""
    return [reduce(operator.add, [_times(c, part) for c, part in zip(row, parts) if c != 0]) for row in matrix]


def _times(factor: float, part: jax.Array) -> jax.Array:
    return part if factor == 1 else -part if factor == -1 else factor * part
