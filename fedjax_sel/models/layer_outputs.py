"""The output of one layer inside an unmodified `flax.linen` module, by the layer's path.

Paths are as in the parameter tree, such as `Dense_0` or `block_1/Conv_2`. Flax's `capture_intermediates` returns the
output, so layers inside `nn.remat` and `nn.jit` are supported. A layer inside `nn.scan` runs many times and is not.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import flax.linen as nn
import jax

from fedjax_sel.errors import UserError

COLLECTION = "intermediates"  # Flax's name of the captured collection
METHOD = "__call__"


def of(module: nn.Module, variables: Any, inputs: Any, layer: str | None = None, **options: Any) -> tuple[Any, Any]:
    """Apply a module, and also return the output of one of its layers.

    Args:
        module: the module.
        variables: variables for `module.apply`, or their shapes under `jax.eval_shape`.
        inputs: inputs [B, ...].
        layer: path of the layer; None: the first fully-connected layer that runs.
        **options: further arguments of `module.apply`, except `mutable`.

    Returns:
        (output, output of the layer's first call).

    Raises:
        UserError: the layer does not exist. This is checked before any computation.
    """

    def run(mutable: Any, capture: Callable[[nn.Module, str], bool]) -> Any:
        return module.apply(variables, inputs, mutable=mutable, capture_intermediates=capture, **options)

    path = find(run, layer, type(module).__name__, jax.tree.leaves(inputs)[0].shape[0])
    output, captured = run([COLLECTION], is_at(path))
    return output, first_output(captured, path)


def find(run: Callable[[Any, Callable[[nn.Module, str], bool]], Any], layer: str | None, name: str, batch: int) -> str:
    """Return the path of a layer, or of the first fully-connected one, by abstract evaluation.

    Args:
        run: (mutable, capture_intermediates) -> (output, updated collections); applies the module.
        layer: path of the layer; None: the first `nn.Dense`, `nn.DenseGeneral` or `nn.Einsum` that runs.
        name: name of the module in messages.
        batch: batch size B.

    Raises:
        UserError: the layer does not exist, or its output is not one array [B, ...].
    """
    ran: dict[str, bool] = {}  # path -> True if fully connected, in the order of first calls

    def note(next_function: Callable, args: tuple, kwargs: dict, context: nn.module.InterceptorContext) -> Any:
        if context.method_name == METHOD and context.module.path:
            path = "/".join(context.module.path)
            ran.setdefault(path, isinstance(context.module, nn.Dense | nn.DenseGeneral | nn.Einsum))
        return next_function(*args, **kwargs)

    def capture() -> Any:
        with nn.intercept_methods(note):
            return run([COLLECTION], lambda module, method: method == METHOD)[1]

    captured = jax.eval_shape(capture)
    readable = [path for path in ran if _is_of_examples(first_output(captured, path), batch)]
    wanted = [path for path in readable if (ran[path] if layer is None else path == layer)]
    return wanted[0] if wanted else raise_missing_layer(layer, name, readable, "flax.linen.Dense")


def raise_missing_layer(layer: str | None, name: str, readable: Sequence[str], dense: str) -> NoReturn:
    """Raise the error for a missing profile layer.

    Args:
        layer: requested path; None: the first fully-connected layer.
        name: name of the module.
        readable: paths of the layers that can be profile layers.
        dense: class names of fully-connected layers.

    Raises:
        UserError: always.
    """
    problem = f"{name} has no fully-connected layer ({dense})" if layer is None else f"{name} has no layer {layer!r}"
    choices = f"one of its layers, {', '.join(readable)}" if readable else "another model, since it has no layers"
    raise UserError(f"profile_layer: {problem} whose output could be the profile; name {choices}")


def is_at(path: str) -> Callable[[nn.Module, str], bool]:
    """Return the `capture_intermediates` filter of the layer at a path."""
    return lambda module, method: method == METHOD and "/".join(module.path) == path


def first_output(captured: Any, path: str) -> Any:
    """Return the output of a layer's first call from the collections that `apply` updated, or None."""
    node = captured.get(COLLECTION, {})
    for part in path.split("/"):
        node = node.get(part, {}) if hasattr(node, "get") else {}
    outputs = node.get(METHOD) if hasattr(node, "get") else None
    return outputs[0] if outputs else None


def _is_of_examples(output: Any, batch: int) -> bool:
    return hasattr(output, "dtype") and output.shape[:1] == (batch,)
