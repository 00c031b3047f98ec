"""Where a model's output layer stands in its weights, from its jaxpr, whatever library the module is of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal

Paths = tuple[tuple[Any, ...], tuple[Any, ...] | None]
"""Of the weight and of the bias: keys from the top of the trained weights."""

_SAME_NUMBERS = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy", "slice")
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "checkpoint")


class _Made(NamedTuple):
    """How an array was made of the weights' leaves, which are named by their places."""

    leaf: int | None = None  # it is this one, in another shape
    weight: int | None = None  # it is a product with this one,
    bias: int | None = None  # and this one was added


def find(apply: Callable[[Any], Any], trained: Any) -> tuple[Any, Paths | None]:
    """Return the shapes of what a model makes, and the paths of its output layer; None where it has none.

    The output layer is a matrix of the weights whose product, with or without a vector added, is the prediction.

    Args:
        apply: trained weights -> Output.
        trained: arrays or shapes.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(trained)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in leaves]
    closed, output = jax.make_jaxpr(lambda *flat: apply(jax.tree.unflatten(structure, flat)), return_shape=True)(
        *shapes
    )
    made = _run(closed.jaxpr, [_Made(leaf=place) for place in range(len(shapes))])[0]
    if made.weight is None:
        return output, None
    paths = [tuple(map(_key, path)) for path, _ in leaves]
    return output, (paths[made.weight], None if made.bias is None else paths[made.bias])


def _run(jaxpr: Any, inputs: list[_Made]) -> list[_Made]:
    known = dict(zip(jaxpr.invars, inputs))

    def of(var: Any) -> _Made:
        return _Made() if isinstance(var, Literal) else known.get(var, _Made())

    for eqn in jaxpr.eqns:
        operands, name = [of(var) for var in eqn.invars], eqn.primitive.name
        inner = next((eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params), None)
        if name in _SAME_NUMBERS:
            known[eqn.outvars[0]] = operands[0]
        elif name == "dot_general":
            of_leaves = [made.leaf for made in operands if made.leaf is not None]
            if len(of_leaves) == 1:
                known[eqn.outvars[0]] = _Made(weight=of_leaves[0])
        elif name in ("add", "add_any"):
            product, vector = sorted(operands, key=lambda made: made.leaf is not None)
            if product.weight is not None and product.bias is None and vector.leaf is not None:
                known[eqn.outvars[0]] = product._replace(bias=vector.leaf)
        elif name in _CALLS and inner is not None:
            inner = getattr(inner, "jaxpr", inner)
            known.update(zip(eqn.outvars, _run(inner, operands[-len(inner.invars) :])))
    return [of(var) for var in jaxpr.outvars]


def _key(key: Any) -> Any:
    return next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name))
