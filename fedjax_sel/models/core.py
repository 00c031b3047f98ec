"""Shared types: weights, outputs and models, modules as pure functions, and the precision of matrix products."""

import inspect
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal
from jax.interpreters import partial_eval

from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError


class Weights(NamedTuple):
    """The weights of one model, as clients receive and return them: pytrees of float32 arrays."""

    trained: Any  # weights that gradients update
    # State that training updates without a gradient, such as the running statistics of batch normalization. The server
    # averages it like the weights. Empty for most models.
    carried: Any = ()


class Output(NamedTuple):
    """The output of a model for a batch."""

    prediction: jax.Array  # [B, ...], such as the logits [B, C] of a classifier
    # Outputs of the profile layer before the activation, [B, Q]; None without such a layer. A client's profile is their
    # mean over its data (FL-DP3S Eq. 11).
    profile: jax.Array | None = None
    carried: Any = ()  # `Weights.carried`, updated by a training pass and unchanged in evaluation


def names_of(weights: Weights) -> dict[str, Any]:
    """Return the leaves by the names that they have in `params.npz`, such as `trained/Dense_0/kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


Paths = tuple[tuple[Any, ...], tuple[Any, ...] | None]
"""Paths of the weight and the bias, as keys from the root of the trained weights."""

_SAME_NUMBERS = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy")
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "checkpoint")


class _Provenance(NamedTuple):
    """The derivation of an array from leaves of the weights, which are given by index."""

    leaf: int | None = None  # the array is this leaf, reshaped
    weight: int | None = None  # the array is a product with this leaf,
    bias: int | None = None  # plus this leaf


def find_output_layer(apply: Callable[[Any], Any], trained: Any) -> tuple[Any, Paths | None]:
    """Return the shapes of a model's Output, and the paths of its output layer (None without one).

    The output layer is a weight matrix whose product, plus an optional bias vector, is the prediction. `apply` maps
    the trained weights (arrays or shapes) to the Output.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(trained)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in leaves]
    traced = jax.make_jaxpr(lambda *flat: apply(jax.tree.unflatten(structure, flat)), return_shape=True)
    closed, output = traced(*shapes)
    prediction = _run(closed.jaxpr, [_Provenance(leaf=index) for index in range(len(shapes))])[0]
    if prediction.weight is None:
        return output, None
    paths = [tuple(map(_key, path)) for path, _ in leaves]
    return output, (paths[prediction.weight], None if prediction.bias is None else paths[prediction.bias])


def _run(jaxpr: Any, inputs: list[_Provenance]) -> list[_Provenance]:
    """Return the provenance of a jaxpr's outputs from that of its inputs."""
    provenance = dict(zip(jaxpr.invars, inputs))

    def of(var: Any) -> _Provenance:
        return _Provenance() if isinstance(var, Literal) else provenance.get(var, _Provenance())

    for eqn in jaxpr.eqns:
        operands, name = [of(var) for var in eqn.invars], eqn.primitive.name
        inner = next((eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params), None)
        if name in _SAME_NUMBERS:
            provenance[eqn.outvars[0]] = operands[0]
        elif name == "dot_general":
            factors = [operand.leaf for operand in operands if operand.leaf is not None]
            if len(factors) == 1:
                provenance[eqn.outvars[0]] = _Provenance(weight=factors[0])
        elif name in ("add", "add_any"):
            product, vector = sorted(operands, key=lambda operand: operand.leaf is not None)
            if product.weight is not None and product.bias is None and vector.leaf is not None:
                provenance[eqn.outvars[0]] = product._replace(bias=vector.leaf)
        elif name in _CALLS and inner is not None:
            inner = getattr(inner, "jaxpr", inner)
            provenance.update(zip(eqn.outvars, _run(inner, operands[-len(inner.invars) :])))
    return [of(var) for var in jaxpr.outvars]


def _key(key: Any) -> Any:
    return next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name))


# Matrix products in the precision of a run (`--precision`). By default, accelerators multiply float32 arrays in TF32
# (recent GPUs) or bfloat16 (TPUs). Here they do so only on request. All else stays in float32.

LEVELS = {"float32": lax.Precision.HIGHEST, "tf32": lax.Precision.HIGH, "bfloat16": lax.Precision.DEFAULT}
"""JAX's precision by name. `tf32` rounds factors to 10 bits; on a TPU it is three bfloat16 products, which is more."""

PRECISIONS = tuple(LEVELS)


def dot(left: jax.Array, right: jax.Array, dimensions: Any, precision: str = "float32") -> jax.Array:
    """Return `lax.dot_general` of float32 arrays in one of PRECISIONS, as float32."""
    left, right = narrowed(left, precision), narrowed(right, precision)
    return lax.dot_general(left, right, dimensions, precision=LEVELS[precision]).astype(jnp.float32)


def narrowed(factor: jax.Array, precision: str) -> jax.Array:
    """Convert a factor to the dtype of the product.

    A bfloat16 product is accumulated in higher precision but returned in bfloat16. Gradients through it are then
    bfloat16 products too, as with PyTorch's autocast.
    """
    return factor.astype(jnp.bfloat16) if precision == "bfloat16" else factor


Params = Any  # a pytree of float32 arrays
Draws = Any  # a pytree of arrays: the random draws of one training pass, usually [B, ...]


class Model(NamedTuple):
    """A model for inputs of one shape. Static."""

    name: str  # in messages
    init: Callable[[jax.Array], Weights]  # key -> weights
    draw: Callable[[jax.Array, int], Draws]  # (key, B) -> random draws of a training pass over B examples
    apply: Callable[[Weights, Any, Draws | None], Output]  # (weights, inputs [B, ...], draws; None in evaluation)
    num_params: int  # number of trained parameters, P
    num_carried: int  # number of carried values, such as batch statistics
    profile_size: int  # units of the profile layer, Q; 0 without a profile layer
    cpu_block: int  # examples per evaluation on a CPU core
    cpu_micro_batch: int  # examples per gradient on a CPU core
    output_layer: Paths | None = None  # None: no such layer

    @property
    def size(self) -> int:
        """Number of values in one transfer of the model, P + carried."""
        return self.num_params + self.num_carried


Arrays = Any  # a pytree of arrays
Apply = Callable[[Arrays, Arrays, Any, jax.Array | None, bool], tuple[Any, Arrays]]
"""(trained, carried, inputs [B, ...], key or None, train) -> (output, carried). `train` is static.

In evaluation the key is None, and `carried` is returned unchanged.
"""


class PureModule(NamedTuple):
    """A module as pure functions."""

    init: Callable[[jax.Array], tuple[Arrays, Arrays]]  # key -> (trained, carried)
    apply: Apply
    # Path of a layer, or None for the first fully-connected layer -> an `Apply` whose output is (output, layer output).
    # Raises a UserError for a missing layer before anything is compiled.
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


def reads_key(function: Callable[[jax.Array], Any]) -> tuple[bool, Any]:
    """Return whether a function's result depends on its random key, and the result's shapes."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(jax_settings.key(0))
    _, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals))
    return used[0], shapes


def left_alone(change: Callable[[Arrays], Arrays], shapes: Arrays) -> Any:
    """Return, for each array of a pytree, whether a function of given argument shapes leaves it unchanged.

    The test inspects the jaxpr. Arrays that pass through a nested jaxpr count as changed.
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
    arguments = {}
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        if parameter.name in flags and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            arguments[parameter.name] = flags[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            raise UserError(
                f"model: {name}.__call__ requires an argument {parameter.name!r}; give it a default, or, if it is a "
                f"training flag, {_REMEDY}"
            )
    own = {key: flags[key] for key in flags if key in attributes and key not in arguments}
    if named is None:
        return arguments, {key: own[key] for key in own if isinstance(attributes[key], bool | None)}
    for key in flags:
        if key not in own and key not in arguments:
            raise UserError(
                f"training_flags: {name} has no argument of __call__ and no attribute {key!r}; name only existing ones"
            )
    return arguments, own


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
