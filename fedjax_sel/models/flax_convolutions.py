"""Convolutions of unmodified Flax modules as matrix products, as `layers.py` has them.

XLA computes a convolution slowly on a CPU inside a loop, and with a kernel for every client as a grouped one besides:
a training step of a ResNet takes ten times longer and more than with products of patches, or Winograd's
(`benchmarks/convolutions.py --models resnet8`). Flax lets a function of the same signature stand in for
`lax.conv_general_dilated`; this is one, equal to it within rounding. Transposed convolutions and local ones stay XLA's.

Winograd's products have a reverse derivative only, so what takes forward ones (`jax.jvp`, `jax.hessian`) has to leave
the modules their own. `jax.jit` keeps what it traced, whatever stands in when it is called again: enter the context
inside the function that is compiled.
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

PIXELS_A_CHANNEL = 8  # of a batch, the fewest with which transforming the kernels of Winograd's products is paid for


@contextmanager
def faster_convolutions(enabled: bool = True) -> Iterator[None]:
    """Let `convolve` compute every `flax.linen.Conv` that is called inside, unless a module names a function itself.

    Args:
        enabled: False leaves them to XLA.
    """
    if not enabled:
        yield
        return
    with nn.intercept_methods(_stand_in):
        yield


def make_faster(module: nnx.Module) -> None:
    """Let `convolve` compute every convolution of an NNX module, unless it names a function itself."""
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
    """Return what `lax.conv_general_dilated` does, by matrix products where they can do it.

    It is left to XLA where features are in groups, inputs are dilated or channels do not come last.

    Args:
        inputs: [B, spatial ..., channels].
        kernel: [size of the window ..., channels, features].
        strides: one for each spatial axis.
        padding: `SAME`, `SAME_LOWER`, `VALID`, or (before, after) for each spatial axis.
        lhs_dilation: of the inputs.
        rhs_dilation: of the kernel.
        dimension_numbers: as Flax gives them.
        feature_group_count: groups of channels.
        precision: of the products.
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
    # Inputs of one output unit go over the last spatial axis first, and channels last: the order of `layers.patches`.
    matrix = kernel.transpose(axes + 1, *reversed(range(axes)), axes).reshape(kernel.shape[-1], -1)
    exact = x.dtype == kernel.dtype == jnp.float32 and precision in (None, lax.Precision.HIGHEST)
    pixels = math.prod(inputs.shape[:-1])
    if exact and window == (3, 3) and {*strides, *dilation} == {1} and pixels >= PIXELS_A_CHANNEL * inputs.shape[-1]:
        return layers.by_winograd(x, matrix, 3)
    patches = _patches(x, window, strides, dilation)
    return lax.dot_general(patches, matrix, (((axes + 1,), (1,)), ((), ())), precision=precision)


def _patches(x: jax.Array, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> jax.Array:
    """Return all windows as slices joined along the channels, one spatial axis after another.

    Args:
        x: [B, spatial ..., channels], padded.
        window: size of the window, one for each spatial axis as all that follows.
        strides: between windows.
        dilation: between a window's pixels.

    Returns:
        [B, windows ..., size of the window * channels].
    """
    for axis, (size, stride, step) in enumerate(zip(window, strides, dilation), start=1):
        reach = x.shape[axis] - (size - 1) * step
        starts = [offset * step for offset in range(size)]
        slices = [lax.slice_in_dim(x, start, start + reach, stride, axis) for start in starts]
        x = jnp.concatenate(slices, axis=-1) if size > 1 else slices[0]
    return x


def _channels_last(rank: int) -> lax.ConvDimensionNumbers:
    """Return what Flax says of [B, spatial ..., channels] and [window ..., channels, features]."""
    inputs = (0, rank - 1, *range(1, rank - 1))
    return lax.ConvDimensionNumbers(inputs, (rank - 1, rank - 2, *range(rank - 2)), inputs)


def _stand_in(next_function: Callable, args: tuple, kwargs: dict, context: nn.module.InterceptorContext) -> Any:
    """Give a Conv our function for the length of one call."""
    module = context.module
    named = ("conv_general_dilated", "conv_general_dilated_cls")
    if type(module) is not nn.Conv or context.method_name != "__call__" or any(getattr(module, n, None) for n in named):
        return next_function(*args, **kwargs)
    object.__setattr__(module, named[0], convolve)  # a module is frozen once it is bound
    try:
        return next_function(*args, **kwargs)
    finally:
        object.__setattr__(module, named[0], None)
