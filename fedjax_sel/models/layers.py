"""Layers that stay fast when every client has its own weights.

Under `vmap` over clients a convolution with per-client kernels becomes a grouped convolution, which XLA runs slowly
nearly everywhere, on a CPU inside a loop most of all. So a convolution is by default written as matrix products, which
vmap into batched ones: Winograd's for 3x3 kernels over many channels, and one product of patches, slices joined
together, for the others. `benchmarks/convolutions.py` times the other forms beside them. Channels come last.
"""

import math
import zlib
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.models import products, wide, winograd
from fedjax_sel.models.pooling import max_pool, pool_tiles

Initializer = Callable[[jax.Array, tuple[int, ...], jnp.dtype], jax.Array]

DEFAULT_INITIALIZER = "pytorch"
INITIALIZERS = (DEFAULT_INITIALIZER, "kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal")
"""`pytorch`: what torch.nn.Linear and Conv2d do by default, uniform in +-1/sqrt(fan_in)."""


def kernel_initializer(name: str, fan_in: int, fan_out: int) -> Initializer:
    """Return an initialiser of weights by name (FL-DP3S section 4.2 compares the last four).

    Of one key two of them draw independent numbers: else the weights of two would be the same ones rescaled, and what
    does not depend on the scale would not depend on the initialiser either.

    Args:
        name: one of INITIALIZERS.
        fan_in: inputs of one output unit.
        fan_out: outputs that one input unit reaches.

    Returns:
        A function (key, shape, dtype) -> weights.
    """
    variances = {
        "pytorch": 1.0 / (3.0 * fan_in),
        "kaiming-uniform": 2.0 / fan_in,
        "kaiming-normal": 2.0 / fan_in,
        "xavier-uniform": 2.0 / (fan_in + fan_out),
        "xavier-normal": 2.0 / (fan_in + fan_out),
    }
    deviation = math.sqrt(variances[name])
    draw = _normal(deviation) if name.endswith("normal") else _uniform(math.sqrt(3.0) * deviation)
    if name == DEFAULT_INITIALIZER:
        return draw
    own = zlib.crc32(name.encode())
    return lambda key, shape, dtype=jnp.float32: draw(jax.random.fold_in(key, own), shape, dtype)


def bias_initializer(fan_in: int) -> Initializer:
    """Return the uniform law in +-1/sqrt(fan_in), PyTorch's default, whatever initialises the weights."""
    return _uniform(1.0 / math.sqrt(fan_in))


def _normal(deviation: float) -> Initializer:
    return lambda key, shape, dtype=jnp.float32: deviation * jax.random.normal(key, shape, dtype)


def _uniform(limit: float) -> Initializer:
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -limit, limit)


Product = Callable[..., jax.Array]
"""(x [..., inputs], kernel [features, inputs], precision=one of `products.PRECISIONS`) -> [..., features]."""


def matmul(x: jax.Array, kernel: jax.Array, precision: str = "float32") -> jax.Array:
    """Multiply [..., inputs] by the transpose of [features, inputs]."""
    return products.dot(x, kernel, (((x.ndim - 1,), (1,)), ((), ())), precision)


class Linear(nn.Module):
    """y = W x + b with W stored as [features, inputs], or as [inputs, features] where it is large (`wide.py`).

    The first as in PyTorch, and unlike flax.linen.Dense: XLA's matrix multiplications on a CPU are up to a fifth faster
    so, in the gradient of W most of all.

    Attributes:
        features: output units.
        inputs: of one output unit.
        product: how W is applied.
        precision: one of `products.PRECISIONS`.
        kernel: initialiser, called with the shape [inputs, features].
        bias: initialiser.
    """

    features: int
    inputs: int
    product: Product
    precision: str
    kernel: Initializer
    bias: Initializer

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map what the product takes to [..., features]."""
        is_wide = self.product is matmul and wide.is_wide(self.inputs, self.features)

        def initial(key: jax.Array) -> jax.Array:
            kernel = self.kernel(key, (self.inputs, self.features), jnp.float32)
            return kernel if is_wide else kernel.T

        kernel = self.param("kernel", initial)
        product = wide.product if is_wide else self.product
        y = product(x, kernel, precision=self.precision)
        return y + self.param("bias", self.bias, (self.features,), jnp.float32)


class Dense(nn.Module):
    """A layer whose output units each see `window` positions of the input: one, if it is fully connected.

    Attributes:
        features: output units.
        initializer: one of INITIALIZERS.
        precision: one of `products.PRECISIONS`.
        window: positions that one output unit sees, and that one input reaches (k^2 for a convolution).
        product: how the weights are applied.
    """

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
        bias = bias_initializer(fan_in)
        return Linear(self.features, fan_in, self.product, self.precision, kernel, bias, name="Dense_0")(x)


DEFAULT_CONVOLUTION = "winograd"


class Conv(nn.Module):
    """A square convolution without padding, stride one.

    Attributes:
        features: output channels.
        size: side of the kernel.
        initializer: one of INITIALIZERS.
        precision: one of `products.PRECISIONS`.
        form: one of CONVOLUTIONS; all give the same up to rounding.
        pooled: whether `max_pool` follows; what it does not read is not computed.
    """

    features: int
    size: int
    initializer: str = "pytorch"
    precision: str = "float32"
    form: str = DEFAULT_CONVOLUTION
    pooled: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map [B, H, W, channels] to [B, H - size + 1, W - size + 1, features], or half as high and wide."""
        product = partial(CONVOLUTIONS[self.form], size=self.size, pooled=self.pooled)
        return Dense(self.features, self.initializer, self.precision, self.size**2, product)(x)


def by_patches(
    x: jax.Array, kernel: jax.Array, size: int, precision: str = "float32", pooled: bool = False
) -> jax.Array:
    """Convolve by patches and one multiplication.

    Args:
        x: [B, H, W, channels].
        kernel: [features, size^2 * channels]; inputs go over columns, then rows, then channels of the window.
        size: side of the kernel.
        precision: one of `products.PRECISIONS`.
        pooled: whether `max_pool` follows.

    Returns:
        [B, H - size + 1, W - size + 1, features], or what `max_pool` makes of it.
    """
    if pooled and size == 3 and x.shape[-1] <= CORNER_CHANNELS:
        return pool_tiles(matmul(patches_by_corner(x, size), kernel, precision))[0, 0]
    y = matmul(patches(_read_by_pooling(x, size) if pooled else x, size), kernel, precision)
    return max_pool(y) if pooled else y


def by_shifts(
    x: jax.Array, kernel: jax.Array, size: int, precision: str = "float32", pooled: bool = False
) -> jax.Array:
    """Convolve as the sum of size^2 multiplications of shifted slices; arguments as `by_patches`."""
    x = _read_by_pooling(x, size) if pooled else x
    height, width = x.shape[-3] - size + 1, x.shape[-2] - size + 1
    parts = kernel.reshape(kernel.shape[0], size, size, -1)
    slices = ((x[..., i : i + height, j : j + width, :], parts[:, j, i]) for i in range(size) for j in range(size))
    y = sum((matmul(*factors, precision) for factors in slices), start=jnp.zeros((), x.dtype))
    return max_pool(y) if pooled else y


def by_xla(x: jax.Array, kernel: jax.Array, size: int, precision: str = "float32", pooled: bool = False) -> jax.Array:
    """Convolve by XLA's own operation, grouped under `vmap` over kernels; arguments as `by_patches`."""
    x = _read_by_pooling(x, size) if pooled else x
    window = kernel.reshape(kernel.shape[0], size, size, -1).transpose(2, 1, 3, 0)
    y = lax.conv_general_dilated(
        products.narrowed(x, precision), products.narrowed(window, precision), (1, 1), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=products.LEVELS[precision],
    ).astype(jnp.float32)  # fmt: skip
    return max_pool(y) if pooled else y


def by_winograd(
    x: jax.Array, kernel: jax.Array, size: int, precision: str = "float32", pooled: bool = False
) -> jax.Array:
    """Convolve by Winograd's fewer multiplications where that tells, by patches elsewhere; arguments as `by_patches`.

    In less than float32 by patches too: its sums and differences would magnify what rounding takes away.
    """
    if size != 3 or x.shape[-1] < WINOGRAD_CHANNELS or precision != "float32":
        return by_patches(x, kernel, size, precision, pooled)
    x = _read_by_pooling(x, size) if pooled else x
    batch, height, width = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    at_once = winograd.images_at_once(batch, height, width)
    tiling = winograd.tiling_of(at_once, height, width)
    kernels = winograd.of_kernel(tiling, kernel)

    def convolved(images: jax.Array) -> jax.Array:
        tiles: jax.Array = winograd.convolve(tiling, images, kernels)
        if pooled:
            return _assembled(pool_tiles(tiles), height // 2, width // 2)
        return _assembled(tiles, height, width)

    return _in_turn(convolved, x, at_once)


def _in_turn(function: Callable[[jax.Array], jax.Array], images: jax.Array, at_once: int) -> jax.Array:
    """Return what a function makes of each image, so many of them at once."""
    if at_once == len(images):
        return function(images)
    y = lax.map(function, images.reshape(-1, at_once, *images.shape[1:]))
    return y.reshape(len(images), *y.shape[2:])


CORNER_CHANNELS = 3  # the most of an image whose patches are made in the order of pooling
WINOGRAD_CHANNELS = 16  # the fewest with which its transforms are paid for

CONVOLUTIONS: dict[str, Callable[..., jax.Array]] = {
    "winograd": by_winograd,
    "patches": by_patches,
    "shifts": by_shifts,
    "xla": by_xla,
}


def _read_by_pooling(x: jax.Array, size: int) -> jax.Array:
    """Return the pixels whose windows `max_pool` does not drop."""
    height, width = x.shape[-3] - size + 1, x.shape[-2] - size + 1
    return x[..., : height // 2 * 2 + size - 1, : width // 2 * 2 + size - 1, :]


def _assembled(tiles: jax.Array, height: int, width: int) -> jax.Array:
    """Assemble tiles [m, m, B, rows, columns, features] of `winograd.convolve` to [B, height, width, features]."""
    m, _, batch, rows, columns, features = tiles.shape
    y = tiles.transpose(2, 3, 0, 4, 1, 5).reshape(batch, m * rows, m * columns, features)
    return y[:, :height, :width]


def patches(x: jax.Array, size: int) -> jax.Array:
    """Join all size x size windows, as slices, along the channels, first across columns and then across rows.

    Two stages join 2 * size slices instead of size^2.

    Args:
        x: [B, H, W, channels].
        size: side of a window.

    Returns:
        [B, H - size + 1, W - size + 1, size^2 * channels].
    """
    height, width = x.shape[-3] - size + 1, x.shape[-2] - size + 1
    rows = jnp.concatenate([x[..., i : i + height, :, :] for i in range(size)], axis=-1)
    return jnp.concatenate([rows[..., :, j : j + width, :] for j in range(size)], axis=-1)


def patches_by_corner(x: jax.Array, size: int) -> jax.Array:
    """Return `patches` in the order that max-pooling wants for their products: a pooling window's four far apart.

    The maximum of four arrays is fast where that over strides in one is not. Only what pooling reads is made.

    Args:
        x: [B, H, W, channels].
        size: side of a window, odd.

    Returns:
        [2, 2, B, (H - size + 1) // 2, (W - size + 1) // 2, size^2 * channels].
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


DRAWS = "draws"  # the collection of what a training pass draws: for each example


class Dropout(nn.Module):
    """Sets units to zero with probability `rate` and scales the others by 1 / (1 - rate).

    Spends as few random bits a unit as the rate needs (one for 0.5), since drawing 32 of them costs as much as a small
    layer's multiplications. What they decide is drawn from the stream "dropout", unless the collection DRAWS has it.

    Attributes:
        rate: probability of zero, 0 to below 1.
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Drop random elements of an array in training, and return the array as it is outside."""
        if not train or self.rate == 0.0:
            return x
        probability = 1.0 - self.rate

        def draw() -> jax.Array:
            return _coin_flips(self.make_rng("dropout"), probability, x.shape)

        given_or_wanted = self.has_variable(DRAWS, "keep") or self.is_mutable_collection(DRAWS)
        keep = self.variable(DRAWS, "keep", draw).value if given_or_wanted else draw()
        return jnp.where(keep, x / (1.0 - self.rate), 0.0)


def _bits_a_unit(probability: float) -> int:
    return next((bits for bits in (1, 2, 4, 8, 16) if (probability * 2**bits).is_integer()), 32)


def _coin_flips(key: jax.Array, probability: float, shape: tuple[int, ...]) -> jax.Array:
    """Draw independent Booleans, True with the given probability (to within 2^-32)."""
    size, bits = math.prod(shape), _bits_a_unit(probability)
    words = jax.random.bits(key, (-(-size // (32 // bits)),), jnp.uint32)
    highest = jnp.uint32(min(round(probability * 2**bits), 2**32 - 1))
    mask = jnp.uint32(2**bits - 1)
    # One comparison a shift: XLA computes a single one of all shifts slowly on a CPU, number by number.
    flips = [((words >> shift) & mask) < highest for shift in range(0, 32, bits)]
    return jnp.concatenate(flips)[:size].reshape(shape)
