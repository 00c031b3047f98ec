"""Common parts of Linen and NNX modules: pure functions, the training-mode argument, and convolutions as products."""

import inspect
import math
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from fedjax_sel.errors import UserError
from fedjax_sel.models import layers

# The simulator's interface of a neural network, independent of its library. Training passes update its state `carried`,
# such as the running averages of batch normalization, without a gradient.

Arrays = Any  # a pytree of arrays
Apply = Callable[[Arrays, Arrays, Any, jax.Array | None, bool], tuple[Any, Arrays]]
"""(trained, carried, inputs [B, ...], key, train) -> (output, carried). `train` is static.

In evaluation the key is None, and `carried` is returned unchanged.
"""


class PureModule(NamedTuple):
    """A module as pure functions.

    Attributes:
        init: key -> (trained, carried).
        apply: forward pass, see `Apply`.
        apply_with_layer: path of a layer, or None for the first fully-connected layer -> an `Apply` whose output is
            (output, layer output). Raises a UserError for a missing layer before anything is compiled.
    """

    init: Callable[[jax.Array], tuple[Arrays, Arrays]]
    apply: Apply
    apply_with_layer: Callable[[str | None], Apply]


def stream_key(key: jax.Array, name: str) -> jax.Array:
    """Return the key of a random stream, which depends on the stream's name but not on other streams."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def shapes_of(arrays: Any) -> Any:
    """Return the shapes and dtypes of a pytree."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), arrays)


def zeros_of(shapes: Any) -> Any:
    """Return a pytree of zeros with given shapes and dtypes."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def left_alone(change: Callable[[Arrays], Arrays], shapes: Arrays) -> Any:
    """Return, for each array of a pytree, whether a function of given argument shapes leaves it unchanged.

    Arrays that pass through a nested jaxpr count as changed.
    """
    jaxpr = jax.make_jaxpr(change)(shapes).jaxpr
    alone = [after is before for after, before in zip(jaxpr.outvars, jaxpr.invars)]
    return jax.tree.unflatten(jax.tree.structure(shapes), alone)


Flags = Mapping[str, tuple[Any, Any]]
"""(value in training, value in evaluation) of each flag, by name."""

KNOWN: Flags = {
    "train": (True, False), "training": (True, False), "is_training": (True, False),
    "deterministic": (False, True), "use_running_average": (False, True),
}  # fmt: skip
"""Training flags that are recognized by their name."""


def flag_values(flags: Flags, train: bool) -> dict[str, Any]:
    """Return the values of flags in training or in evaluation."""
    return {name: in_training if train else otherwise for name, (in_training, otherwise) in flags.items()}


def find_training_flags(
    call: Callable, attributes: Mapping[str, Any], name: str, named: Flags | None
) -> tuple[Flags, Flags]:
    """Return the training flags that are arguments of a bound `__call__`, and those that are attributes of the module.

    The flags come from KNOWN or from the user; a user's flags must all exist.
    """
    parameters = list(inspect.signature(call).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise UserError(f"model: {name}.__call__ takes no inputs; give it one positional parameter for a batch of them")
    flags = KNOWN if named is None else named
    if not isinstance(flags, Mapping) or not all(isinstance(v, tuple) and len(v) == 2 for v in flags.values()):
        raise UserError(
            f"training_flags: {named!r} does not map names to pairs (in training, in evaluation); give, for example, "
            "{'mode': ('train', 'eval')}"
        )
    arguments, takes_any = {}, False
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            takes_any |= parameter.kind is inspect.Parameter.VAR_KEYWORD
        elif parameter.name in flags and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            arguments[parameter.name] = flags[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            raise UserError(
                f"model: {name}.__call__ requires an argument {parameter.name!r}; give it a default, or, if it is a "
                f"training flag, {_REMEDY}"
            )
    own = {key: flags[key] for key in flags if key in attributes and key not in arguments}
    if named is None:
        return arguments, {key: own[key] for key in own if isinstance(attributes[key], bool | None)}
    others = {key: flags[key] for key in flags if key not in own and key not in arguments}
    if others and not takes_any:
        raise UserError(
            f"training_flags: {name} has no argument of __call__ and no attribute {next(iter(others))!r}; name only "
            "existing ones"
        )
    return {**arguments, **others}, own


def check_that_it_trains(name: str, flags: Flags, frozen: list[bool], silent: list[bool]) -> None:
    """Reject a module whose training pass leaves batch statistics or dropout unused, due to an unknown flag.

    `frozen` marks the batch statistics that a training pass leaves unchanged; `silent` marks the Dropout layers with a
    nonzero rate that draw nothing.
    """
    if any(silent) or (frozen and all(frozen)):
        problem = "has an inactive Dropout layer" if any(silent) else "has batch statistics that do not change"
        given = " and ".join(f"{key}={value!r}" for key, value in flag_values(flags, True).items())
        raise UserError(
            f"model: {name} {problem} in a training pass{' with ' if given else ''}{given}; for a flag of its "
            f"__call__, {_REMEDY}; if this is intended, pass training_flags={dict(flags)}, which disables this check"
        )


_REMEDY = (
    f"use one of the names {', '.join(KNOWN)}, or pass training_flags={{'name': (in training, in evaluation)}} to "
    "models.from_flax(...) or models.from_nnx(...)"
)


# Convolutions of unmodified Flax modules as matrix products, as in `layers.py`.
#
# On a CPU, XLA's convolutions are slow inside loops and when they are grouped, as with one kernel per client
# (`benchmarks/convolutions.py --models resnet8`). Flax accepts a replacement for `lax.conv_general_dilated`; `convolve`
# is one, equal up to rounding. Transposed and local convolutions remain XLA's.
#
# Winograd's products support only reverse-mode differentiation. For forward mode (`jax.jvp`, `jax.hessian`) keep XLA's
# convolutions. `jax.jit` caches its trace, so enter the context inside the compiled function.

PIXELS_A_CHANNEL = 8  # smallest number of pixels in a batch per channel for which Winograd's kernel transform pays off


@contextmanager
def faster_convolutions(enabled: bool = True) -> Iterator[None]:
    """Compute each `flax.linen.Conv` in this context by `convolve`, unless the module sets its own function."""
    with nn.intercept_methods(_stand_in) if enabled else nullcontext():
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
        plain = inputs.size > 0 and min(map(min, pads)) >= 0 and all(map(operator.ge, padded, reach))
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
