"""The output of one layer inside an unmodified `flax.linen` module, by the layer's path.

A layer is called by its path of names, as in the tree of parameters: `Dense_0`, `block_1/Conv_2`. What Flax's own
`capture_intermediates` gives back is read, so that a layer inside `nn.remat` or `nn.jit` can be named; one inside
`nn.scan`, which runs many times, cannot.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import flax.linen as nn
import jax

from fedjax_sel.errors import UserError

COLLECTION = "intermediates"  # Flax's own name for what is captured
METHOD = "__call__"


def of(module: nn.Module, variables: Any, inputs: Any, layer: str | None = None, **options: Any) -> tuple[Any, Any]:
    """Apply a module and return what one of its layers returned as well.

    Args:
        module: any.
        variables: as `module.apply` takes them, or shapes under `jax.eval_shape`.
        inputs: [B, ...].
        layer: the layer's path; default: the first fully-connected layer that runs.
        **options: further arguments of `module.apply`, but for `mutable`.

    Returns:
        (output, the layer's output); of a layer that runs several times, the first.

    Raises:
        UserError: there is no such layer; found before anything is computed.
    """

    def run(mutable: Any, capture: Callable[[nn.Module, str], bool]) -> Any:
        return module.apply(variables, inputs, mutable=mutable, capture_intermediates=capture, **options)

    path = find(run, layer, type(module).__name__, jax.tree.leaves(inputs)[0].shape[0])
    output, captured = run([COLLECTION], is_at(path))
    return output, first_output(captured, path)


def find(run: Callable[[Any, Callable[[nn.Module, str], bool]], Any], layer: str | None, name: str, batch: int) -> str:
    """Return the path of a layer, or of the first fully-connected one, without computing anything.

    Args:
        run: (mutable, capture_intermediates) -> (output, updated collections), an application of the module.
        layer: the path that is looked for; None for the first `nn.Dense` (or `nn.DenseGeneral`, `nn.Einsum`) that runs.
        name: of the module, for messages.
        batch: B, examples in an application.

    Raises:
        UserError: there is none, or its output is not one array [B, ...].
    """
    ran: dict[str, bool] = {}  # path: whether it is fully connected, in the order of their first calls

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
    return wanted[0] if wanted else refuse(layer, name, readable, "flax.linen.Dense")


def refuse(layer: str | None, name: str, readable: Sequence[str], dense: str) -> NoReturn:
    """Say that there is no such layer.

    Args:
        layer: the path that was looked for; None for the first fully-connected one.
        name: of the module.
        readable: paths of the layers that could be named.
        dense: what a fully-connected layer is called.

    Raises:
        UserError: always.
    """
    wrong = f"{name} has no fully-connected layer ({dense})" if layer is None else f"{name} has no layer {layer!r}"
    there_are = f"one of its layers, {', '.join(readable)}" if readable else "another model, for it has no layers"
    raise UserError(f"profile_layer: {wrong} whose output could be the profile; name {there_are}")


def is_at(path: str) -> Callable[[nn.Module, str], bool]:
    """Return what `capture_intermediates` takes to capture the layer at a path."""
    return lambda module, method: method == METHOD and "/".join(module.path) == path


def first_output(captured: Any, path: str) -> Any:
    """Return what the layer at a path returned at its first call, of the collections that `apply` updated, or None."""
    node = captured.get(COLLECTION, {})
    for part in path.split("/"):
        node = node.get(part, {}) if hasattr(node, "get") else {}
    outputs = node.get(METHOD) if hasattr(node, "get") else None
    return outputs[0] if outputs else None


def _is_of_examples(output: Any, batch: int) -> bool:
    return hasattr(output, "dtype") and output.shape[:1] == (batch,)
