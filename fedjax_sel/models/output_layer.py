"""Detection of a model's output layer in its weights, from its jaxpr; independent of the module's library."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal

Paths = tuple[tuple[Any, ...], tuple[Any, ...] | None]
"""Paths of the weight and the bias, as keys from the root of the trained weights."""

_SAME_NUMBERS = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy", "slice")
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "checkpoint")


class _Provenance(NamedTuple):
    """The derivation of an array from leaves of the weights, which are given by index."""

    leaf: int | None = None  # the array is this leaf, reshaped
    weight: int | None = None  # the array is a product with this leaf,
    bias: int | None = None  # plus this leaf


def find(apply: Callable[[Any], Any], trained: Any) -> tuple[Any, Paths | None]:
    """Return the shapes of a model's Output, and the paths of its output layer (None without one).

    The output layer is a weight matrix whose product, plus an optional bias vector, is the prediction.

    Args:
        apply: trained weights -> Output.
        trained: trained weights, as arrays or shapes.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(trained)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in leaves]
    closed, output = jax.make_jaxpr(lambda *flat: apply(jax.tree.unflatten(structure, flat)), return_shape=True)(
        *shapes
    )
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
