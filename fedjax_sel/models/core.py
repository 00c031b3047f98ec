"""Model weights, outputs, output layers, and the precision of matrix products."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal

from fedjax_sel.core import jax_settings


class Weights(NamedTuple):
    """The weights of one model, as clients receive and return them.

    Attributes:
        trained: weights that gradients update, a pytree of float32 arrays.
        carried: state that training updates without a gradient, such as the running statistics of batch normalization.
            A pytree of float32 arrays, which the server averages like the weights. Empty for most models.
    """

    trained: Any
    carried: Any = ()


class Output(NamedTuple):
    """The output of a model for a batch.

    Attributes:
        prediction: predictions [B, ...], such as the logits [B, C] of a classifier.
        profile: outputs of the profile layer before the activation, [B, Q]. A client's profile is their mean over its
            data (FL-DP3S Eq. 11). None if the model has no such layer.
        carried: `Weights.carried`, updated by a training pass and unchanged in evaluation.
    """

    prediction: jax.Array
    profile: jax.Array | None = None
    carried: Any = ()


Paths = tuple[tuple[Any, ...], tuple[Any, ...] | None]
"""Paths of the weight and the bias, as keys from the root of the trained weights."""

_SAME_NUMBERS = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy", "slice")
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
    """A model for inputs of one shape. Static.

    Attributes:
        name: name of the model in messages.
        init: key -> weights.
        draw: (key, B) -> random draws of a training pass over B examples.
        apply: (weights, inputs [B, ...], draws in training or None in evaluation) -> Output.
        num_params: number of trained parameters, P.
        num_carried: number of carried values, such as batch statistics.
        profile_size: units of the profile layer, Q; 0 without a profile layer.
        cpu_block: examples per evaluation on a CPU core.
        cpu_micro_batch: examples per gradient on a CPU core.
        output_layer: paths of the output layer's weight and bias; None if there is no such layer.
    """

    name: str
    init: Callable[[jax.Array], Weights]
    draw: Callable[[jax.Array, int], Draws]
    apply: Callable[[Weights, Any, Draws | None], Output]
    num_params: int
    num_carried: int
    profile_size: int
    cpu_block: int
    cpu_micro_batch: int
    output_layer: Paths | None = None

    def shapes(self) -> Params:
        """Return the shapes of the trained weights."""
        return jax.eval_shape(self.init, jax_settings.key(0)).trained

    @property
    def size(self) -> int:
        """Number of values in one transfer of the model, P + carried."""
        return self.num_params + self.num_carried
