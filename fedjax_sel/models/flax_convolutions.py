"""Convolutions of unmodified Flax modules as matrix products, as in `layers.py`.

On a CPU, XLA's convolutions are slow inside loops and when they are grouped, as with one kernel per client. A training
step of a ResNet then takes over ten times as long as with patches or Winograd's products
(`benchmarks/convolutions.py --models resnet8`). Flax accepts a replacement for `lax.conv_general_dilated`; `convolve`
is one, equal up to rounding. Transposed and local convolutions remain XLA's.

Winograd's products support only reverse-mode differentiation. For forward mode (`jax.jvp`, `jax.hessian`) keep XLA's
convolutions. `jax.jit` caches its trace, so enter the context inside the compiled function.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from fedjax_sel.models import layers

PIXELS_A_CHANNEL = 8  # smallest number of pixels in a batch per channel for which Winograd's kernel transform pays off


@contextmanager
def faster_convolutions(enabled: bool = True) -> Iterator[None]:
    """Compute each `flax.linen.Conv` in this context by `convolve`, unless the module sets its own function.

    Args:
        enabled: False to keep XLA's convolutions.
    """
    if not enabled:
        yield
        return
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
    """Compute `lax.conv_general_dilated` by matrix products.

    Grouped features, dilated inputs and other axis orders than channels-last are left to XLA.

    Args:
        inputs: inputs [B, spatial ..., channels].
        kernel: kernel [window ..., channels, features].
        strides: stride per spatial axis.
        padding: `SAME`, `SAME_LOWER`, `VALID`, or (before, after) per spatial axis.
        lhs_dilation: dilation of the inputs per spatial axis.
        rhs_dilation: dilation of the kernel per spatial axis.
        dimension_numbers: axis order, as Flax passes it.
        feature_group_count: number of channel groups.
        precision: precision of the products.
        **options: further arguments of `lax.conv_general_dilated`.

    Returns:
        [B, spatial ..., features].
    """
    axes = inputs.ndim - 2
    window, dilation = kernel.shape[:axes], tuple(rhs_dilation or (1,) * axes)
    reach = [(size - 1) * step + 1 for size, step in zip(window, dilation)]
    channels_last = dimension_numbers == _channels_last(inputs.ndim)
    plain = (
        channels_last and feature_group_count == 1 and set(lhs_dilation or (1,)) == {1} and not any(options.values())
    )
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
    # Reorder the kernel as `layers.patches` orders windows: last spatial axis first, channels last.
    matrix = kernel.transpose(axes + 1, *reversed(range(axes)), axes).reshape(kernel.shape[-1], -1)
    exact = x.dtype == kernel.dtype == jnp.float32 and precision in (None, lax.Precision.HIGHEST)
    pixels = math.prod(inputs.shape[:-1])
    if exact and window == (3, 3) and {*strides, *dilation} == {1} and pixels >= PIXELS_A_CHANNEL * inputs.shape[-1]:
        return layers.by_winograd(x, matrix, 3)
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


def _channels_last(rank: int) -> lax.ConvDimensionNumbers:
    """Return Flax's dimension numbers of [B, spatial ..., channels] and [window ..., channels, features]."""
    inputs = (0, rank - 1, *range(1, rank - 1))
    return lax.ConvDimensionNumbers(inputs, (rank - 1, rank - 2, *range(rank - 2)), inputs)


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
