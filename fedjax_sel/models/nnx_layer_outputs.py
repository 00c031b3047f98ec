"""The output of one layer inside an unmodified NNX module, by the layer's path.

Paths are as in the parameter tree, such as `fc1` or `blocks/0/conv`. NNX has no hook for calls. The layer therefore
becomes an instance of a subclass whose `__call__` also stores its output as an `nnx.Intermediate`. NNX returns these
from its transforms, so layers inside `nnx.remat` and `nnx.jit` are supported. A stack of layers inside `nnx.scan` or
`nnx.vmap` has one output per layer and is not supported.
"""

import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx

from fedjax_sel.models import layer_outputs

KEPT = "kept_for_profiles"
FULLY_CONNECTED = (nnx.Linear, nnx.LinearGeneral, nnx.Einsum)

Watch = Callable[[nnx.Module], Any]
"""Prepares a merged module for one call."""


def find(run: Callable[[Watch], Any], layer: str | None, name: str, batch: int) -> str:
    """Return the path of a layer, or of the first fully-connected one, by abstract evaluation.

    Args:
        run: function that prepares the module, applies it, and returns the result of the preparation.
        layer: path of the layer; None: the first layer of FULLY_CONNECTED that runs.
        name: name of the module in messages.
        batch: batch size B.

    Raises:
        UserError: the layer does not exist, or its output is not one array [B, ...].
    """
    ran: dict[str, bool] = {}  # path -> True if fully connected, in the order of first calls

    def note_all(module: nnx.Module) -> None:
        for path, node in list(_layers(module)):
            _after_call(node, lambda called, _, path=path: ran.setdefault(path, isinstance(called, FULLY_CONNECTED)))

    def trace(watch: Watch) -> Any:
        return jax.eval_shape(lambda: first_output(run(watch)))

    def readable(path: str) -> bool:
        try:
            output = trace(lambda module: keep(module, path))
        except Exception:  # the module itself runs, so one of its transforms rejects the additional Variable
            return False
        return output is not None and output.shape[:1] == (batch,)

    trace(note_all)
    for path in ran:
        if (ran[path] if layer is None else path == layer) and readable(path):
            return path
    layer_outputs.raise_missing_layer(layer, name, [path for path in ran if readable(path)], "nnx.Linear")


def keep(module: nnx.Module, path: str) -> nnx.Module:
    """Make the layer at a path store the output of its first call, and return the layer."""

    def set_once(called: nnx.Module, output: Any) -> None:
        if getattr(called, KEPT, None) is None and isinstance(output, jax.Array):
            setattr(called, KEPT, nnx.Intermediate(output))

    node = dict(_layers(module))[path]
    _after_call(node, set_once)
    return node


def first_output(layer: nnx.Module | None) -> Any:
    """Return the stored output of a layer's first call, or None."""
    kept = getattr(layer, KEPT, None)
    return None if kept is None else kept[...]


def _layers(module: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
    """Yield the path and the module of each submodule."""
    for path, node in nnx.iter_graph(module):
        if path and isinstance(node, nnx.Module):
            yield "/".join(map(str, path)), node


def _after_call(layer: nnx.Module, look: Callable[[Any, Any], Any]) -> None:
    """Call a function with the layer and its output after each of the layer's calls."""
    own = type(layer)
    if not callable(layer):
        return

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = own.__call__(self, *args, **kwargs)  # pyright: ignore
        look(self, output)
        return output

    is_pytree = not jax.tree_util.all_leaves([layer])
    watched = types.new_class(own.__name__, (own,), {"pytree": is_pytree}, lambda body: body.update(__call__=call))
    object.__setattr__(layer, "__class__", watched)
