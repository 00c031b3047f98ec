"""Models before the shapes of their inputs are known, from Flax modules or from two functions."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.models import core
from fedjax_sel.models.core import Flags, Model, Output, PureModule, Weights, zeros_of
from fedjax_sel.models.linen import from_linen
from fedjax_sel.models.nnx import from_nnx as from_nnx_module

CPU_BLOCK = 100  # examples per evaluation on a CPU core
CPU_MICRO_BATCH = 50  # examples per gradient on a CPU core, if the pass may be split
WHOLE_BATCH = 2**30


class Blueprint(NamedTuple):
    """A model whose input shapes are not known yet.

    Attributes:
        name: name of the model in messages and tables.
        build: shapes and dtypes of inputs [B, ...] -> model.
    """

    name: str
    build: Callable[[Any], Model]


def from_flax(
    module: nn.Module,
    *,
    profile_layer: str | None = None,
    fast_convolutions: bool = True,
    training_flags: Flags | None = None,
) -> Blueprint:
    """Return the blueprint of an unmodified `flax.linen` module.

    Random streams such as dropout's receive keys by name. Batch statistics and other collections travel with the
    weights and are averaged like them.

    Args:
        module: module that returns predictions. It may take a training flag: an argument of `__call__` or a field
            named `train`, `training`, `is_training`, `deterministic` or `use_running_average`.
        profile_layer: path of the layer whose mean output is a client's profile, such as "Dense_0". None: the first
            fully-connected layer.
        fast_convolutions: True to replace XLA's convolutions, which are slow with one kernel per client, by matrix
            products; results are equal up to rounding.
        training_flags: flags with other names, and their values in training and in evaluation: `{"mode": ("train",
            "eval")}`. If given, the usual names are not searched, and the training pass is not checked for frozen
            batch statistics or inactive dropout. Pass `{}` for a module without flags.
    """
    name = type(module).__name__

    def build(inputs: Any) -> Model:
        return _model(name, from_linen(module, inputs, fast_convolutions, training_flags), inputs, profile_layer)

    return Blueprint(name, build)


def from_nnx(
    module: nnx.Module | Callable[..., nnx.Module],
    *,
    profile_layer: str | None = None,
    fast_convolutions: bool = True,
    training_flags: Flags | None = None,
) -> Blueprint:
    """Return the blueprint of a Flax NNX module; other arguments as in `from_flax`.

    Args:
        module: function or class that makes a module from `nnx.Rngs`, separately for each seed; or an instance, whose
            weights are the initial weights of all seeds.
        profile_layer: path of the profile layer, such as "blocks/0/conv".
        fast_convolutions: replacement of XLA's convolutions.
        training_flags: arguments of `__call__`, or attributes of the module and its submodules. `train()` and `eval()`
            are always called.
    """
    factory = module.func if isinstance(module, functools.partial) else module
    name = type(module).__name__ if isinstance(module, nnx.Module) else getattr(factory, "__name__", "module")

    def build(inputs: Any) -> Model:
        return _model(name, from_nnx_module(module, inputs, fast_convolutions, training_flags), inputs, profile_layer)

    return Blueprint(name, build)


def from_functions(
    init: Callable[[jax.Array], Any], apply: Callable[[Any, Any], jax.Array], name: str = "functions"
) -> Blueprint:
    """Return the blueprint of two functions.

    Args:
        init: key -> params, a pytree of float32 arrays.
        apply: (params, inputs [B, ...]) -> predictions [B, ...].
        name: name of the model in messages.
    """

    def applied(trained: Any, carried: Any, inputs: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        return apply(trained, inputs), carried

    def no_layer(layer: str | None) -> Any:
        raise UserError(f"model: {name} consists of functions, without a profile layer{f' {layer}' if layer else ''}")

    pure = PureModule(lambda key: (init(key), {}), applied, no_layer)
    return Blueprint(name, lambda inputs: _model(name, pure, inputs, None))


def of(value: Any) -> Blueprint | None:
    """Return the blueprint of a user's model, or None if the value is not a model."""
    if isinstance(value, Blueprint):
        return value
    if isinstance(value, Model):
        return Blueprint(value.name, lambda inputs: value)
    if isinstance(value, nn.Module):
        return from_flax(value)
    factory = value.func if isinstance(value, functools.partial) else value
    if isinstance(value, nnx.Module) or (isinstance(factory, type) and issubclass(factory, nnx.Module)):
        return from_nnx(value)
    return None


def _model(name: str, pure: PureModule, inputs: Any, profile_layer: str | None) -> Model:
    """Make a model from pure functions, for inputs of given shapes [B, ...]."""
    trained, carried = jax.eval_shape(pure.init, jax_settings.key(0))
    for path, leaf in jax.tree_util.tree_leaves_with_path((trained, carried)):
        if leaf.dtype != jnp.float32:
            raise UserError(
                f"model: {name} keeps {leaf.dtype} at {jax.tree_util.keystr(path[1:])}, but only float32 can be "
                "averaged over clients; convert it to float32"
            )
    has_carried = bool(jax.tree.leaves(carried))
    try:
        apply, has_profile = pure.apply_with_layer(profile_layer), True
    except UserError:
        if profile_layer is not None:
            raise
        apply, has_profile = pure.apply, False
    draws_numbers = _reads_key(
        lambda key: pure.apply(zeros_of(trained), zeros_of(carried), zeros_of(inputs), key, True)
    )

    def init(key: jax.Array) -> Weights:
        trained, carried = pure.init(key)
        return Weights(trained, carried if has_carried else ())

    def draw(key: jax.Array, size: int) -> Any:
        # The draws are one key for the whole batch.
        return {"key": jax.random.key_data(key)} if draws_numbers else {}

    def applied(weights: Weights, inputs: Any, draws: Any | None) -> Output:
        train = draws is not None
        key = jax_settings.key(0) if train else None
        if draws:
            key = jax.random.wrap_key_data(draws["key"], impl=jax_settings.PRNG)
        carried_now = weights.carried if has_carried else carried
        # Layers without a precision of their own multiply in float32; accelerators default to less.
        with jax.default_matmul_precision("highest"):
            output, after = apply(weights.trained, carried_now, inputs, key, train)
        prediction, layer = output if has_profile else (output, None)
        profile = None if layer is None else layer.reshape(layer.shape[0], -1)
        return Output(_in_float32(prediction), _in_float32(profile), after if has_carried else ())

    shapes = jax.eval_shape(init, jax_settings.key(0))
    fixed = shapes._replace(carried=zeros_of(shapes.carried))
    output, layer = core.find_output_layer(
        lambda trained: applied(fixed._replace(trained=trained), zeros_of(inputs), None), trained
    )
    profile_size = 0 if output.profile is None else output.profile.shape[-1]
    micro_batch = WHOLE_BATCH if draws_numbers or has_carried else CPU_MICRO_BATCH
    sizes = (_count(trained), _count(carried), profile_size, CPU_BLOCK, micro_batch)
    return Model(name, init, draw, applied, *sizes, layer)


def _in_float32(tree: Any) -> Any:
    """Convert floats to float32, since sums over many examples are inaccurate in half precision."""

    def cast(leaf: Any) -> Any:
        is_float = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(jnp.float32) if is_float else leaf

    return jax.tree.map(cast, tree)


def _count(arrays: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(arrays))


def _reads_key(function: Callable[[jax.Array], Any]) -> bool:
    """Return whether a function uses its key."""
    jaxpr = jax.make_jaxpr(lambda data: function(jax.random.wrap_key_data(data, impl=jax_settings.PRNG)))(
        jax.random.key_data(jax_settings.key(0))
    ).jaxpr
    wrapped = {var for eqn in jaxpr.eqns if eqn.invars and eqn.invars[0] in jaxpr.invars for var in eqn.outvars}
    return any(var in wrapped for eqn in jaxpr.eqns for var in eqn.invars if not hasattr(var, "val"))
