"""flax.linen modules as pure functions."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import flax.linen as nn
import jax
from flax import errors
from flax.traverse_util import flatten_dict

from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.models import core
from fedjax_sel.models.core import Apply, Flags, PureModule, left_alone, shapes_of, stream_key, zeros_of
from fedjax_sel.models.layers import faster_convolutions

# The output of one layer inside an unmodified `flax.linen` module, by a path such as `Dense_0` or `block_1/Conv_2`.
#
# Flax's `capture_intermediates` returns the output, so layers inside `nn.remat` and `nn.jit` are supported. A layer
# inside `nn.scan` runs many times and is not.

COLLECTION = "intermediates"  # Flax's name of the captured collection
METHOD = "__call__"


def find(run: Callable[[Callable[[nn.Module, str], bool]], Any], layer: str | None, name: str, batch: int) -> str:
    """Return the path of a layer, or of the first fully-connected one that runs, by abstract evaluation.

    `run` applies the module with a filter `capture_intermediates`, and returns the captured collections. The layer's
    output is one array [B, ...].
    """
    ran: dict[str, bool] = {}  # path -> True if fully connected, in the order of first calls

    def note(next_function: Callable, args: tuple, kwargs: dict, context: nn.module.InterceptorContext) -> Any:
        if context.method_name == METHOD and context.module.path:
            path = "/".join(context.module.path)
            ran.setdefault(path, isinstance(context.module, nn.Dense | nn.DenseGeneral | nn.Einsum))
        return next_function(*args, **kwargs)

    def capture() -> Any:
        with nn.intercept_methods(note):
            return run(lambda module, method: method == METHOD)

    captured = jax.eval_shape(capture)
    outputs = {path: first_output(captured, path) for path in ran}
    readable = [path for path, output in outputs.items() if hasattr(output, "dtype") and output.shape[:1] == (batch,)]
    wanted = [path for path in readable if (ran[path] if layer is None else path == layer)]
    return wanted[0] if wanted else raise_missing_layer(layer, name, readable, "flax.linen.Dense")


def raise_missing_layer(layer: str | None, name: str, readable: Sequence[str], dense: str) -> NoReturn:
    """Raise the error for a missing profile layer; `readable` are the possible paths, `dense` names Flax's class."""
    problem = f"{name} has no fully-connected layer ({dense})" if layer is None else f"{name} has no layer {layer!r}"
    choices = f"one of its layers, {', '.join(readable)}" if readable else "another model, since it has no layers"
    raise UserError(f"profile_layer: {problem} whose output could be the profile; name {choices}")


def first_output(captured: Any, path: str) -> Any:
    """Return the output of a layer's first call from the collections that `apply` updated, or None."""
    outputs: Any = flatten_dict(captured.get(COLLECTION, {})).get((*path.split("/"), METHOD))
    return outputs[0] if outputs else None


def from_linen(module: nn.Module, inputs: Any, training_flags: Flags | None = None) -> PureModule:
    """Return a module's pure functions; arguments as in `models.from_flax`.

    Initial weights come from `module.init(key, inputs)` in evaluation mode. In training, each random stream of the
    module receives its own key, derived from its name. Collections other than `params` are carried. The batch size of
    `inputs`, arrays or their shapes, does not matter.

    Raises:
        UserError: the module needs an argument or, in evaluation, a random stream that is not available; its training
            pass leaves batch statistics or dropout unused; or its evaluation uses the batch's own statistics.
    """
    name, example = type(module).__name__, shapes_of(inputs)
    fields = {field.name: getattr(module, field.name, None) for field in dataclasses.fields(module)}
    call_flags, own_flags = core.find_training_flags(module.__call__, fields, name, training_flags)
    if call_flags and training_flags is None:
        own_flags = {}  # Flax's layers have both, and reject a flag that is set twice

    def mode(train: bool) -> tuple[nn.Module, dict[str, Any]]:
        return module.clone(**core.flag_values(own_flags, train)), core.flag_values(call_flags, train)

    def init(key: jax.Array) -> tuple[Any, Any]:
        clone, flags = mode(train=False)
        # Flax looks up the sharding annotations of the module's arrays in the surrounding mesh, but ours has other
        # axes (devices share clients).
        no_mesh = jax.sharding.AbstractMesh((), ())
        with faster_convolutions(), jax.sharding.use_abstract_mesh(no_mesh):
            variables = dict(nn.meta.unbox(clone.init(key, zeros_of(example), **flags)))
        trained = variables.pop("params", {})
        return trained, {key: value for key, value in variables.items() if key != COLLECTION}

    def run(trained: Any, carried: Any, inputs: Any, rngs: dict[str, jax.Array], train: bool, layer: Any = None) -> Any:
        clone, flags = mode(train)
        captured = {} if layer is None else {"capture_intermediates": layer}
        # Flax rejects an evaluation that changes the statistics: it would use the batch's own.
        fixed = () if train or training_flags is not None else ("batch_stats",)
        mutable = [*(key for key in carried if key not in fixed), *([] if layer is None else [COLLECTION])]
        with faster_convolutions():
            return clone.apply({"params": trained, **carried}, inputs, rngs=rngs, mutable=mutable, **captured, **flags)

    shapes = jax.eval_shape(init, jax_settings.key(0))

    def streams_of(train: bool) -> tuple[list[str], Any]:
        """Return the random streams of a pass, found one by one from Flax's errors, and the shapes of the new state."""

        def one_pass(trained: Any, carried: Any, inputs: Any, key: jax.Array) -> Any:
            return run(trained, carried, inputs, _keys(key, streams), train)[1]

        streams: list[str] = []
        while True:
            try:
                return streams, jax.eval_shape(one_pass, *shapes, example, jax_settings.key(0))
            except errors.ModifyScopeVariableError as error:
                raise UserError(
                    f"model: {name} uses each batch's own statistics in evaluation; give its __call__ a flag "
                    "train=False and BatchNorm use_running_average=not train; if this is intended, pass "
                    "training_flags={} to models.from_flax(...)"
                ) from error
            except errors.InvalidRngError as error:
                match = re.search(r'needs PRNG for "([^"]+)"', str(error))  # Flax states the stream only there
                if match is None or match[1] in streams:
                    message = " ".join(str(error).split(" (http")[0].split())
                    raise UserError(f"model: {name} needs a random stream that is not available ({message})") from error
                streams.append(match[1])

    streams, updated = streams_of(train=True)
    for collection, state in shapes[1].items():
        if shapes_of(updated.get(collection, state)) != shapes_of(state):
            raise UserError(
                f"model: a training pass of {name} changes the shape of its collection {collection!r}, but steps must "
                "preserve shapes; sow to 'intermediates', whose values are discarded"
            )
    if training_flags is None:
        _check_that_it_trains(run, shapes, example, streams, name, {**call_flags, **own_flags})
    if in_evaluation := streams_of(train=False)[0]:
        raise UserError(
            f"model: {name} draws from the stream {in_evaluation[0]!r} in evaluation, which must not be random; give "
            "its __call__ a flag train=False and draw only if the flag is true"
        )

    def applying(layer: str | None) -> Apply:
        def capture(module: nn.Module, method: str) -> bool:
            return method == METHOD and "/".join(module.path) == layer

        def apply(trained: Any, carried: Any, inputs: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
            rngs = {} if key is None or not train else _keys(key, streams)
            output, updated = run(trained, carried, inputs, rngs, train, None if layer is None else capture)
            if layer is not None:
                output = output, first_output(updated, layer)
            kept = {collection: updated.get(collection, value) for collection, value in carried.items()}
            return output, kept if train else carried

        return apply

    def apply_with_layer(layer: str | None) -> Apply:
        def one_pass(capture: Callable[[nn.Module, str], bool]) -> Any:
            trained, carried, inputs = zeros_of((*shapes, example))
            return run(trained, carried, inputs, {}, False, capture)[1]

        return applying(find(one_pass, layer, name, jax.tree.leaves(example)[0].shape[0]))

    return PureModule(init, applying(None), apply_with_layer)


def _check_that_it_trains(
    run: Callable[..., Any], shapes: tuple[Any, Any], example: Any, streams: list[str], name: str, flags: Flags
) -> None:
    """Reject a module whose training pass leaves batch statistics or dropout unused, due to an unknown flag."""
    without_draws = []

    def note(next_function: Callable, args: tuple, kwargs: dict, context: nn.module.InterceptorContext) -> Any:
        layer = context.module
        if isinstance(layer, nn.Dropout) and isinstance(layer.rate, float) and 0 < layer.rate < 1:
            without_draws.append(layer.rng_collection not in streams)
        return next_function(*args, **kwargs)

    def one_pass(carried: Any) -> Any:
        trained, inputs = zeros_of((shapes[0], example))
        with nn.intercept_methods(note):
            updated = run(trained, carried, inputs, _keys(jax_settings.key(0), streams), True)[1]
        return {collection: updated.get(collection, value) for collection, value in carried.items()}

    frozen = jax.tree.leaves(left_alone(one_pass, shapes[1]).get("batch_stats", {}))
    core.check_that_it_trains(name, flags, frozen, without_draws)


def _keys(key: jax.Array, streams: Iterable[str]) -> dict[str, jax.Array]:
    return {name: stream_key(key, name) for name in streams}
