"""3x3 convolutions with 4 multiplications an output instead of 9: Winograd's F(2x2, 3x3).

Y = A' [ (G g G') * (B' d B) ] A for every tile d of 4x4 pixels, each overlapping its neighbours by two, and the 2x2
outputs Y of it (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, Eq. 8 and section 4.1). Over
channels the elementwise products are 16 matrix products of tiles x channels with channels x features, which vmap over
clients as batched products do. What is written to memory on the way is 4 times the images, where patches are 9 times.

The backward pass is spelled out: it is the transposes of the same four linear maps, and XLA's own derivative of the
slices scatters. Rounding is that of float32, a little above the direct sum's.
"""

import operator
from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

# Lavin and Gray, section 4.1: rows give the combinations.
PIXELS = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))  # B', 4 of 4
KERNELS = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))  # G, 4 of 3
OUTPUTS = ((1, 1, 1, 0), (0, 1, -1, -1))  # A', 2 of 4

Matrix = Sequence[Sequence[float]]


@jax.custom_vjp
def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A 3x3 convolution without padding, stride one.

    Args:
        x: [B, H, W, channels].
        kernel: [features, 9 * channels]; inputs go over columns, then rows, then channels of the window.

    Returns:
        [B, H - 2, W - 2, features].
    """
    return _forward(x, kernel)[0]


def _forward(x: jax.Array, kernel: jax.Array):
    tiles, kernels = _of_pixels(x), _of_kernel(kernel)
    products = _batched(tiles, kernels, 2, 2)
    batch, height, width = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    y = _to_outputs(products, (batch, height, width))
    return y, (x, tiles, kernels)


def _backward(kept, y):
    x, tiles, kernels = kept
    products = lax.optimization_barrier(_of_outputs(y))
    x_tiles = _batched(products, kernels, 2, 1)
    # A product over the long axis is faster with that axis last, even if it must be moved there.
    moved = lax.optimization_barrier(products.swapaxes(1, 2))
    kernel = _batched(moved, tiles, 2, 1)
    return _to_pixels(x_tiles, x.shape[:3]), _to_kernel(kernel)


convolve.defvjp(_forward, _backward)


def _batched(left: jax.Array, right: jax.Array, left_axis: int, right_axis: int) -> jax.Array:
    """16 matrix products, of which the given axes are summed over."""
    return lax.dot_general(left, right, (((left_axis,), (right_axis,)), ((0,), (0,))))


def _num_tiles(side: int) -> int:
    """Tiles along a side of so many outputs; the last may hang over."""
    return -(-side // 2)


def _of_pixels(x: jax.Array) -> jax.Array:
    """B' d B of every tile: [B, H, W, channels] -> [16, tiles, channels]."""
    batch, height, width, channels = x.shape
    rows, columns = _num_tiles(height - 2), _num_tiles(width - 2)
    pairs = _pad(x, 2 * rows + 2, 2 * columns + 2).reshape(batch, rows + 1, 2, columns + 1, 2, channels)
    down = _combine(PIXELS, [pairs[:, k // 2 : k // 2 + rows, k % 2] for k in range(4)])
    both = [
        part for d in down for part in _combine(PIXELS, [d[:, :, k // 2 : k // 2 + columns, k % 2] for k in range(4)])
    ]
    return jnp.stack(both).reshape(16, -1, channels)


def _to_pixels(tiles: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The transpose of `_of_pixels`: what each pixel is given by the tiles that it lies in."""
    batch, height, width = shape
    rows, columns = _num_tiles(height - 2), _num_tiles(width - 2)
    parts = tiles.reshape(4, 4, batch, rows, columns, -1)
    down = lax.optimization_barrier(_overlap([parts[i] for i in range(4)], axis=2))  # 4, B, rows + 1, 2, columns, ...
    both = _overlap([down[j] for j in range(4)], axis=3)  # B, rows + 1, 2, columns + 1, 2, ...
    x = both.reshape(batch, 2 * rows + 2, 2 * columns + 2, -1)
    return lax.optimization_barrier(x[:, :height, :width])


def _overlap(parts: list[jax.Array], axis: int) -> jax.Array:
    """B of a side, tiles laid over each other two apart: an axis of n tiles becomes two, of n + 1 pairs and 2."""
    pixels = _combine(_transposed(PIXELS), parts)
    widths = [(0, 0)] * pixels[0].ndim
    after, before = widths.copy(), widths.copy()
    after[axis], before[axis] = (0, 1), (1, 0)
    return jnp.stack([jnp.pad(pixels[k], after) + jnp.pad(pixels[k + 2], before) for k in range(2)], axis=axis + 1)


def _of_kernel(kernel: jax.Array) -> jax.Array:
    """G g G': [features, 9 * channels] -> [16, features, channels]."""
    window = kernel.reshape(kernel.shape[0], 3, 3, -1)  # columns, rows
    down = _combine(KERNELS, [window[:, :, row] for row in range(3)])
    return _stack([_combine(KERNELS, [d[:, column] for column in range(3)]) for d in down])


def _to_kernel(parts: jax.Array) -> jax.Array:
    """The transpose of `_of_kernel`."""
    features, channels = parts.shape[1:]
    parts = parts.reshape(4, 4, features, channels)
    rows = _combine(_transposed(KERNELS), [parts[i] for i in range(4)])  # 3 of [4, features, channels]
    window = [jnp.stack(_combine(_transposed(KERNELS), [row[j] for j in range(4)])) for row in rows]
    return jnp.stack(window, axis=1).transpose(2, 0, 1, 3).reshape(features, -1)


def _to_outputs(products: jax.Array, shape: tuple[int, int, int]) -> jax.Array:
    """A' m A of every tile: [16, tiles, features] -> [B, H - 2, W - 2, features]."""
    batch, height, width = shape
    rows, columns = _num_tiles(height), _num_tiles(width)
    parts = products.reshape(4, 4, batch, rows, columns, -1)
    down = _combine(OUTPUTS, [parts[i] for i in range(4)])  # 2 of [4, B, rows, columns, features]
    both = [jnp.stack(_combine(OUTPUTS, [d[j] for j in range(4)]), axis=3) for d in down]
    return jnp.stack(both, axis=2).reshape(batch, 2 * rows, 2 * columns, -1)[:, :height, :width]


def _of_outputs(y: jax.Array) -> jax.Array:
    """The transpose of `_to_outputs`."""
    batch, height, width, features = y.shape
    rows, columns = _num_tiles(height), _num_tiles(width)
    pairs = _pad(y, 2 * rows, 2 * columns).reshape(batch, rows, 2, columns, 2, features)
    down = _combine(_transposed(OUTPUTS), [pairs[:, :, k] for k in range(2)])
    both = [_combine(_transposed(OUTPUTS), [d[:, :, :, k] for k in range(2)]) for d in down]
    return _stack(both).reshape(16, -1, features)


def _pad(x: jax.Array, height: int, width: int) -> jax.Array:
    return jnp.pad(x, ((0, 0), (0, height - x.shape[1]), (0, width - x.shape[2]), (0, 0)))


def _stack(parts: list[list[jax.Array]]) -> jax.Array:
    return jnp.stack([part for row in parts for part in row])


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix))


def _combine(matrix: Matrix, parts: Sequence[jax.Array]) -> list[jax.Array]:
    """The linear combinations that the rows of a small matrix name; most entries are 0, 1 or -1."""
    return [reduce(operator.add, [_times(c, part) for c, part in zip(row, parts) if c != 0]) for row in matrix]


def _times(factor: float, part: jax.Array) -> jax.Array:
    return part if factor == 1 else -part if factor == -1 else factor * part
