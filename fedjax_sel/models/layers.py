"""Layers that stay fast with separate weights per client.

Under `vmap` over clients, a convolution with per-client kernels becomes a grouped convolution. XLA runs these slowly on
nearly all devices, and slowest in a loop on a CPU. A convolution is therefore one matrix product of patches, which
vmaps into a batched product; `benchmarks/convolutions.py` compares both. Channels come last.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from fedjax_sel.models import core

# Fully-connected layers whose weights exceed a core's cache, so that memory traffic dominates their time.
#
# For small batches their gradient is a sum of one outer product per example instead of a matrix product. XLA fuses the
# sum with the SGD step, so that the gradient is never written to memory (`benchmarks/wide.py`).

MIN_WEIGHTS = 2**20  # 4 MB; the private cache of a core has 1 to 2 MB
FEW_EXAMPLES = 16


def transposed_product(x: jax.Array, kernel: jax.Array, precision: str = "float32") -> jax.Array:
    """Multiply [..., inputs] by [inputs, features]; in float32 with the gradient for small batches."""
    return _product(x, kernel) if precision == "float32" else _along(x, kernel, 0, precision)


def _along(x: jax.Array, kernel: jax.Array, axis: int, precision: str = "float32") -> jax.Array:
    return core.dot(x, kernel, (((x.ndim - 1,), (axis,)), ((), ())), precision)


@jax.custom_vjp
def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _along(x, kernel, 0)


def _backward(kept, y):
    x, kernel = kept
    examples, outputs = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    if len(examples) <= FEW_EXAMPLES and jax.default_backend() == "cpu":
        # Keep XLA from fusing the factors' computation into the sum, which would repeat it for each weight.
        examples, outputs = lax.optimization_barrier((examples, outputs))
        outer = (inputs[:, None] * features[None, :] for inputs, features in zip(examples, outputs))
        gradient = sum(outer, jnp.zeros_like(kernel))
    else:
        gradient = _along(examples.T, outputs, 0)
    return _along(y, kernel, 1), gradient


_product.defvjp(lambda x, kernel: (_product(x, kernel), (x, kernel)), _backward)


# On a CPU, XLA is slow at strided maxima and slower at their gradient. Where possible, convolutions therefore return
# the pixels of a pooling window in separate slices.
def max_pool(x: jax.Array) -> jax.Array:
    """Max-pool [B, H, W, channels] 2 x 2; an odd last row or column is dropped, as in PyTorch."""
    *batch, height, width, channels = x.shape
    even = x[..., : height // 2 * 2, : width // 2 * 2, :]
    return even.reshape(*batch, height // 2, 2, width // 2, 2, channels).max(axis=(-4, -2))


@jax.custom_vjp
def pool_tiles(tiles: jax.Array) -> jax.Array:
    """Max-pool 2 x 2 within tiles [m, m, ...], m even, to [m / 2, m / 2, ...]; tied maxima share the gradient."""
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


Initializer = Callable[[jax.Array, tuple[int, ...], jnp.dtype], jax.Array]

DEFAULT_INITIALIZER = "pytorch"
INITIALIZERS = (DEFAULT_INITIALIZER, "kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal")
"""Names of initializers. `pytorch` is the default of torch.nn.Linear and Conv2d, uniform in +-1/sqrt(fan_in)."""


def kernel_initializer(name: str, fan_in: int, fan_out: int) -> Initializer:
    """Return an initializer of INITIALIZERS, (key, shape, dtype) -> weights.

    FL-DP3S section 4.2 compares the last four. Initializers draw independent numbers from the same key. Otherwise two
    of them would differ only in scale, and scale-invariant results would not depend on the initializer.
    """
    variances = {"pytorch": 1.0 / (3.0 * fan_in), "kaiming": 2.0 / fan_in, "xavier": 2.0 / (fan_in + fan_out)}
    deviation = math.sqrt(variances[name.partition("-")[0]])
    draw = _uniform(math.sqrt(3.0) * deviation)
    if name == DEFAULT_INITIALIZER:
        return draw
    if name.endswith("normal"):
        draw = lambda key, shape, dtype: deviation * jax.random.normal(key, shape, dtype)  # noqa: E731
    own = zlib.crc32(name.encode())
    return lambda key, shape, dtype=jnp.float32: draw(jax.random.fold_in(key, own), shape, dtype)


def _uniform(limit: float) -> Initializer:
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -limit, limit)


Product = Callable[..., jax.Array]
"""(x [..., inputs], kernel [features, inputs], precision=one of `core.PRECISIONS`) -> [..., features]."""


def matmul(x: jax.Array, kernel: jax.Array, precision: str = "float32") -> jax.Array:
    """Multiply [..., inputs] by the transpose of [features, inputs]."""
    return _along(x, kernel, 1, precision)


class Linear(nn.Module):
    """y = W x + b, with W stored as [features, inputs], or as [inputs, features] if it is large.

    The first layout is PyTorch's, not flax.linen's. It makes XLA's matrix products on a CPU up to a fifth faster,
    mostly in the gradient of W. The initializer `kernel` is called with the shape [inputs, features].
    """

    features: int
    inputs: int
    product: Product
    precision: str
    kernel: Initializer
    bias: Initializer

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map inputs of the product to [..., features]."""
        is_wide = self.product is matmul and self.inputs * self.features >= MIN_WEIGHTS

        def initial(key: jax.Array) -> jax.Array:
            kernel = self.kernel(key, (self.inputs, self.features), jnp.float32)
            return kernel if is_wide else kernel.T

        kernel = self.param("kernel", initial)
        product = transposed_product if is_wide else self.product
        y = product(x, kernel, precision=self.precision)
        return y + self.param("bias", self.bias, (self.features,), jnp.float32)


class Dense(nn.Module):
    """A linear layer whose output units each depend on `window` positions of the input (1 if fully connected)."""

    features: int
    initializer: str = "pytorch"
    precision: str = "float32"
    window: int = 1
    product: Product = matmul

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map [..., inputs] to [..., features]."""
        fan_in = x.shape[-1] * self.window
        kernel = kernel_initializer(self.initializer, fan_in, self.features * self.window)
        bias = _uniform(1.0 / math.sqrt(fan_in))  # as in PyTorch
        return Linear(self.features, fan_in, self.product, self.precision, kernel, bias, name="Dense_0")(x)


class Conv(nn.Module):
    """A square convolution with stride one and without padding.

    With `pooled`, `max_pool` follows, and the outputs that it drops are not computed.
    """

    features: int
    size: int
    initializer: str = "pytorch"
    precision: str = "float32"
    pooled: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map [B, H, W, channels] to [B, H - size + 1, W - size + 1, features], or half as high and wide."""
        product = partial(by_patches, size=self.size, pooled=self.pooled)
        return Dense(self.features, self.initializer, self.precision, self.size**2, product)(x)


def by_patches(
    x: jax.Array, kernel: jax.Array, size: int, precision: str = "float32", pooled: bool = False
) -> jax.Array:
    """Convolve images [B, H, W, channels] by one product of patches, and apply `max_pool` to the result if `pooled`.

    The kernel is [features, size^2 * channels], ordered by columns, rows and channels of the window. The result is [B,
    H - size + 1, W - size + 1, features] before pooling.
    """
    if pooled and size == 3 and x.shape[-1] <= CORNER_CHANNELS:
        return pool_tiles(matmul(patches_by_corner(x, size), kernel, precision))[0, 0]
    read = _read_by_pooling(x, size) if pooled else x
    y = matmul(_patches(read, (size, size), (1, 1), (1, 1)), kernel, precision)
    return max_pool(y) if pooled else y


CORNER_CHANNELS = 3  # largest number of input channels for which patches are ordered for pooling


def _read_by_pooling(x: jax.Array, size: int) -> jax.Array:
    """Return the pixels in windows that `max_pool` keeps."""
    height, width = x.shape[-3] - size + 1, x.shape[-2] - size + 1
    return x[..., : height // 2 * 2 + size - 1, : width // 2 * 2 + size - 1, :]


def patches_by_corner(x: jax.Array, size: int) -> jax.Array:
    """Join windows as `_patches`, with the four positions of a 2 x 2 pooling window as leading axes, for an odd size.

    Patches that pooling drops are omitted: [2, 2, B, (H - size + 1) // 2, (W - size + 1) // 2, size^2 * channels].
    """
    batch, height, width, channels = x.shape
    height, width, reach = (height - size + 1) // 2, (width - size + 1) // 2, size // 2
    blocks = _read_by_pooling(x, size).reshape(batch, height + reach, 2, width + reach, 2, channels)
    corners = []
    for p in range(2):
        down = [blocks[:, (p + i) // 2 : (p + i) // 2 + height, (p + i) % 2] for i in range(size)]
        rows = jnp.concatenate(down, axis=-1)
        for q in range(2):
            right = [rows[:, :, (q + j) // 2 : (q + j) // 2 + width, (q + j) % 2] for j in range(size)]
            corners.append(jnp.concatenate(right, axis=-1))
    return jnp.stack(corners).reshape(2, 2, batch, height, width, -1)


DRAWS = "draws"  # name of the collection of a training pass's random draws


class Dropout(nn.Module):
    """Dropout with the minimal number of random bits per unit for the rate (one for 0.5).

    32 bits per unit cost as much as a small layer's products. The mask comes from the collection DRAWS if present, else
    from the random stream "dropout".
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Apply dropout in training; return the array unchanged in evaluation."""
        if not train or self.rate == 0.0:
            return x

        def draw() -> jax.Array:
            return _coin_flips(self.make_rng("dropout"), 1.0 - self.rate, x.shape)

        given_or_wanted = self.has_variable(DRAWS, "keep") or self.is_mutable_collection(DRAWS)
        keep = self.variable(DRAWS, "keep", draw).value if given_or_wanted else draw()
        return jnp.where(keep, x / (1.0 - self.rate), 0.0)


def _coin_flips(key: jax.Array, probability: float, shape: tuple[int, ...]) -> jax.Array:
    """Draw independent Booleans that are True with a given probability (to within 2^-32)."""
    size = math.prod(shape)
    bits = next((bits for bits in (1, 2, 4, 8, 16) if (probability * 2**bits).is_integer()), 32)
    words = jax.random.bits(key, (-(-size // (32 // bits)),), jnp.uint32)
    highest = jnp.uint32(min(round(probability * 2**bits), 2**32 - 1))
    mask = jnp.uint32(2**bits - 1)
    # One comparison per shift: on a CPU, XLA evaluates a single comparison of all shifts element by element.
    flips = [((words >> shift) & mask) < highest for shift in range(0, 32, bits)]
    return jnp.concatenate(flips)[:size].reshape(shape)


# On a CPU, XLA's convolutions are slow inside loops and when they are grouped, as with one kernel per client
# (`benchmarks/convolutions.py --models resnet8`). Flax accepts a replacement for `lax.conv_general_dilated`; `convolve`
# is one, equal up to rounding. Transposed and local convolutions remain XLA's. `jax.jit` caches its trace, so enter the
# context inside the compiled function.


@contextmanager
def faster_convolutions() -> Iterator[None]:
    """Compute each `flax.linen.Conv` in this context by `convolve`, unless the module sets its own function."""
    with nn.intercept_methods(_stand_in):
        yield


def make_faster(module: nnx.Module) -> None:
    """Compute each `nnx.Conv` of a module by `convolve`, unless it sets its own function."""
    for _, node in nnx.iter_graph(module):
        if isinstance(node, nnx.Conv) and node.conv_general_dilated is lax.conv_general_dilated:
            node.conv_general_dilated = convolve


def convolve(
    inputs: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    precision: Any = None,
    **options: Any,
) -> jax.Array:
    """Compute `lax.conv_general_dilated` by matrix products, with its arguments as Flax passes them.

    Inputs [B, spatial ..., channels] and a kernel [window ..., channels, features] give [B, spatial ..., features].
    Grouped features, dilated inputs and other axis orders than channels-last are left to XLA.
    """
    axes = inputs.ndim - 2
    window, dilation = kernel.shape[:axes], tuple(rhs_dilation or (1,) * axes)
    reach = [(size - 1) * step + 1 for size, step in zip(window, dilation)]
    # Flax's dimension numbers of [B, spatial ..., channels] and [window ..., channels, features].
    order = (0, axes + 1, *range(1, axes + 1))
    plain = dimension_numbers == lax.ConvDimensionNumbers(order, (axes + 1, axes, *range(axes)), order)
    plain &= feature_group_count == 1 and {*(lhs_dilation or (1,))} == {1} and not any(options.values())
    if plain:
        pads = lax.padtype_to_pads(inputs.shape[1:-1], reach, strides, padding) if isinstance(padding, str) else padding
        padded = [size + sum(pad) for size, pad in zip(inputs.shape[1:-1], pads)]
        plain = (
            all(size >= needed for size, needed in zip(padded, reach)) and inputs.size > 0 and min(map(min, pads)) >= 0
        )
    if not plain:
        return lax.conv_general_dilated(
            inputs, kernel, strides, padding, lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
            dimension_numbers=dimension_numbers, feature_group_count=feature_group_count, precision=precision,
            **options,
        )  # fmt: skip
    x = jnp.pad(inputs, [(0, 0), *pads, (0, 0)]) if max(map(max, pads)) > 0 else inputs
    # Reorder the kernel as `_patches` orders windows: last spatial axis first, channels last.
    matrix = kernel.transpose(axes + 1, *reversed(range(axes)), axes).reshape(kernel.shape[-1], -1)
    patches = _patches(x, window, strides, dilation)
    return lax.dot_general(patches, matrix, (((axes + 1,), (1,)), ((), ())), precision=precision)


def _patches(x: jax.Array, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> jax.Array:
    """Join all windows along the channels, [B, windows ..., window size * channels], one spatial axis at a time."""
    for axis, (size, stride, step) in enumerate(zip(window, strides, dilation), start=1):
        reach = x.shape[axis] - (size - 1) * step
        starts = [offset * step for offset in range(size)]
        slices = [lax.slice_in_dim(x, start, start + reach, stride, axis) for start in starts]
        x = jnp.concatenate(slices, axis=-1) if size > 1 else slices[0]
    return x


def _stand_in(next_function: Callable, args: tuple, kwargs: dict, context: nn.module.InterceptorContext) -> Any:
    """Replace the convolution function of a Conv during one call."""
    module = context.module
    named = ("conv_general_dilated", "conv_general_dilated_cls")
    if type(module) is not nn.Conv or context.method_name != "__call__" or any(getattr(module, n, None) for n in named):
        return next_function(*args, **kwargs)
    object.__setattr__(module, named[0], convolve)  # bound modules reject setattr
    try:
        return next_function(*args, **kwargs)
    finally:
        object.__setattr__(module, named[0], None)
