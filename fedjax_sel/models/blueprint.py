"""A model before the shape of its inputs is known, from a module of any library or from two functions."""

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
from fedjax_sel.models import output_layer
from fedjax_sel.models.core import Model
from fedjax_sel.models.linen_module import from_linen
from fedjax_sel.models.nnx_module import from_nnx as from_nnx_module
from fedjax_sel.models.output import Output
from fedjax_sel.models.pure_module import PureModule, zeros_of
from fedjax_sel.models.training_flag import Flags
from fedjax_sel.models.weights import Weights

CPU_BLOCK = 100  # examples that a CPU core evaluates at once
CPU_MICRO_BATCH = 50  # and whose gradient it computes at once, where a pass may be split
WHOLE_BATCH = 2**30


class Blueprint(NamedTuple):
    """What becomes a model once the shapes of its inputs are known.

    Attributes:
        name: for messages and tables.
        build: inputs [B, ...], as shapes -> the model.
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

    Dropout and other streams of random numbers are served by their names; batch statistics and other collections travel
    with the weights and are averaged as they are.

    Args:
        module: returns predictions; may take a flag such as `train` or `deterministic`, or any of
            `training_flag.KNOWN`.
        profile_layer: path of the layer whose mean output is a client's profile, e.g. "Dense_0"; None: the first
            fully-connected one.
        fast_convolutions: whether ours, equal up to rounding, stands in for XLA's, which is slow where every client has
            a kernel of its own.
        training_flags: flags of other names: arguments of its `__call__`, or else its fields, and what each is in
            training and in evaluation, as `{"mode": ("train", "eval")}`. Once given, known names are not looked for,
            and a module whose training pass changes no batch statistics, or drops nothing, is taken as it is: `{}`
            where it has no flag. None: known names.
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
    """Return the blueprint of a Flax NNX module.

    Args:
        module: makes one from `nnx.Rngs`, for every seed its own; or an instance, whose weights every seed starts from.
        profile_layer: as of `from_flax`.
        fast_convolutions: likewise.
        training_flags: likewise, of arguments or else of attributes, its own and those of modules inside it; `train()`
            and `eval()` are called in any case.
    """
    made_by = module.func if isinstance(module, functools.partial) else module
    name = type(module).__name__ if isinstance(module, nnx.Module) else getattr(made_by, "__name__", "module")

    def build(inputs: Any) -> Model:
        return _model(name, from_nnx_module(module, inputs, fast_convolutions, training_flags), inputs, profile_layer)

    return Blueprint(name, build)


def from_functions(
    init: Callable[[jax.Array], Any], apply: Callable[[Any, Any], jax.Array], name: str = "functions"
) -> Blueprint:
    """Return the blueprint of two functions.

    Args:
        init: key -> params, a pytree of float32 arrays.
        apply: (params, inputs [B, ...]) -> prediction [B, ...].
        name: for messages.
    """

    def applied(trained: Any, carried: Any, inputs: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        del key, train
        return apply(trained, inputs), carried

    def no_layer(layer: str | None) -> Any:
        raise UserError(f"model: {name} is made of functions, which have no layer {layer or ''}to take profiles of")

    pure = PureModule(lambda key: (init(key), {}), applied, no_layer)
    return Blueprint(name, lambda inputs: _model(name, pure, inputs, None))


def of(value: Any) -> Blueprint | None:
    """Return the blueprint of whatever a user takes for a model; None where it is none."""
    if isinstance(value, Blueprint):
        return value
    if isinstance(value, Model):
        return Blueprint(value.name, lambda inputs: value)
    if isinstance(value, nn.Module):
        return from_flax(value)
    made_by = value.func if isinstance(value, functools.partial) else value
    if isinstance(value, nnx.Module) or (isinstance(made_by, type) and issubclass(made_by, nnx.Module)):
        return from_nnx(value)
    return None


def _model(name: str, pure: PureModule, inputs: Any, profile_layer: str | None) -> Model:
    """Make a model of pure functions, for inputs of some shapes [B, ...]."""
    trained, carried = jax.eval_shape(pure.init, jax_settings.key(0))
    _check_weights(name, trained, "weights")
    _check_weights(name, carried, "collections")
    has_carried = bool(jax.tree.leaves(carried))
    apply, has_profile = _with_profile(pure, profile_layer)
    draws_numbers = _reads_key(
        lambda key: pure.apply(zeros_of(trained), zeros_of(carried), zeros_of(inputs), key, True)
    )

    def init(key: jax.Array) -> Weights:
        trained, carried = pure.init(key)
        return Weights(trained, carried if has_carried else ())

    def draw(key: jax.Array, size: int) -> Any:
        del size  # one key serves the batch
        return {"key": jax.random.key_data(key)} if draws_numbers else {}

    def applied(weights: Weights, inputs: Any, draws: Any | None) -> Output:
        train = draws is not None
        key = None
        if train:
            key = (
                jax.random.wrap_key_data(draws["key"], impl=jax_settings.PRNG) if draws_numbers else jax_settings.key(0)
            )
        carried_now = weights.carried if has_carried else carried
        # What a layer leaves open is float32, as in our own models: left alone, accelerators multiply in less.
        with jax.default_matmul_precision("highest"):
            output, after = apply(weights.trained, carried_now, inputs, key, train)
        prediction, layer = output if has_profile else (output, None)
        profile = None if layer is None else layer.reshape(layer.shape[0], -1)
        return Output(_in_float32(prediction), _in_float32(profile), after if has_carried else ())

    shapes = jax.eval_shape(init, jax_settings.key(0))
    output, layer = output_layer.find(
        lambda trained: applied(
            shapes._replace(trained=trained, carried=zeros_of(shapes.carried)), zeros_of(inputs), None
        ),
        trained,
    )
    return Model(
        name=name,
        init=init,
        draw=draw,
        apply=applied,
        num_params=_count(trained),
        num_carried=_count(carried),
        profile_size=0 if output.profile is None else output.profile.shape[-1],
        cpu_block=CPU_BLOCK,
        cpu_micro_batch=WHOLE_BATCH if draws_numbers or has_carried else CPU_MICRO_BATCH,
        output_layer=layer,
    )


def _in_float32(tree: Any) -> Any:
    """Return floats of half the width as float32: sums over many examples of them would not be sums."""

    def cast(leaf: Any) -> Any:
        is_float = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(jnp.float32) if is_float else leaf

    return jax.tree.map(cast, tree)


def _with_profile(pure: PureModule, profile_layer: str | None) -> tuple[Any, bool]:
    """Return the function that gives the layer's output too, and whether there is such a layer."""
    try:
        return pure.apply_with_layer(profile_layer), True
    except UserError:
        if profile_layer is not None:
            raise
        return pure.apply, False


def _check_weights(name: str, arrays: Any, what: str) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(arrays):
        if leaf.dtype != jnp.float32:
            raise UserError(
                f"model: {name} keeps {leaf.dtype} in its {what} at {jax.tree_util.keystr(path)}, and only float32 can "
                "be averaged over clients; keep it as float32"
            )


def _count(arrays: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(arrays))


def _reads_key(function: Callable[[jax.Array], Any]) -> bool:
    """Return whether a function of a key does anything with it."""
    jaxpr = jax.make_jaxpr(lambda data: function(jax.random.wrap_key_data(data, impl=jax_settings.PRNG)))(
        jax.random.key_data(jax_settings.key(0))
    ).jaxpr
    wrapped = {var for eqn in jaxpr.eqns if eqn.invars and eqn.invars[0] in jaxpr.invars for var in eqn.outvars}
    return any(var in wrapped for eqn in jaxpr.eqns for var in eqn.invars if not hasattr(var, "val"))
