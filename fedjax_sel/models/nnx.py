"""Flax NNX modules as pure functions."""

import inspect
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict

from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.models import core, linen
from fedjax_sel.models.core import Apply, Flags, PureModule, left_alone, shapes_of, stream_key, zeros_of
from fedjax_sel.models.layers import make_faster

# The output of one layer inside an unmodified NNX module, by a path such as `fc1` or `blocks/0/conv`.
#
# NNX has no hook for calls. The layer therefore becomes an instance of a subclass whose `__call__` also stores its
# output as an `nnx.Intermediate`. NNX returns these from its transforms, so layers inside `nnx.remat` and `nnx.jit` are
# supported. A stack of layers inside `nnx.scan` or `nnx.vmap` has one output per layer and is not supported.

KEPT = "kept_for_profiles"
FULLY_CONNECTED = (nnx.Linear, nnx.LinearGeneral, nnx.Einsum)

Watch = Callable[[nnx.Module], Any]
"""Prepares a merged module for one call."""


def find(run: Callable[[Watch], Any], layer: str | None, name: str, batch: int) -> str:
    """Return the path of a layer, or of the first fully-connected one that runs, by abstract evaluation.

    `run` prepares the module by a `Watch`, applies it, and returns the result of the preparation. The layer's output
    is one array [B, ...].
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
    linen.raise_missing_layer(layer, name, [path for path in ran if readable(path)], "nnx.Linear")


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


PARTS = (nnx.Param, nnx.RngKey, nnx.RngState, nnx.Not(nnx.Intermediate), ...)
"""Filters of `nnx.split`: trained, keys of random streams, their counters, carried, discarded intermediates."""


class Layout(NamedTuple):
    """The mapping between one part of a module, an `nnx.State`, and a nested dict with plain names."""

    paths: list[tuple[str, ...]]  # path of each leaf
    structure: Any  # pytree structure of the State

    def named(self, state: Any) -> dict[str, Any]:
        """Return the arrays of a State as a nested dict."""
        return unflatten_dict(dict(zip(self.paths, jax.tree.leaves(state))))

    def state(self, tree: dict[str, Any]) -> Any:
        """Return the State of a nested dict."""
        leaves = flatten_dict(tree)
        return jax.tree.unflatten(self.structure, [leaves[path] for path in self.paths])


def from_nnx(
    module: nnx.Module | Callable[..., nnx.Module], inputs: Any, training_flags: Flags | None = None
) -> PureModule:
    """Return a module's pure functions; arguments as in `models.from_nnx`.

    `nnx.Param` variables are trained. All others are carried, except random streams: each receives its own key in each
    training pass, derived from its path. The batch size of `inputs`, arrays or their shapes, does not matter.

    Raises:
        UserError: the module needs an argument or, in evaluation, random numbers that are not available; or its
            training pass leaves batch statistics or dropout unused.
    """
    make = _factory(module)
    abstract = nnx.eval_shape(lambda: make(jax_settings.key(0)))
    name, example = type(abstract).__name__, shapes_of(inputs)
    held = {key: value for node in _modules(abstract) for key, value in vars(node).items()}
    flags, attributes = core.find_training_flags(abstract.__call__, held, name, training_flags)
    statistics = _layout(nnx.split(abstract, nnx.BatchStat, ...)[1]).paths
    has_dropout = any(isinstance(node, nnx.Dropout) and 0 < node.rate < 1 for node in _modules(abstract))
    make_faster(abstract)
    graph, *parts = nnx.split(abstract, *PARTS)
    trained_layout, _, _, carried_layout, _ = map(_layout, parts)
    _, keys, counts, _, forgotten = parts
    key_paths = _layout(keys).paths

    def init(key: jax.Array) -> tuple[Any, Any]:
        _, trained, _, _, carried, _ = nnx.split(make(key), *PARTS)
        return trained_layout.named(trained), carried_layout.named(carried)

    def run(
        trained: Any, carried: Any, inputs: Any, key: jax.Array, train: bool, watch: Watch = lambda module: None
    ) -> tuple[Any, Any, Any]:
        """Return the output, the carried state, and the result of `watch`."""
        streams = [stream_key(key, "/".join(path)) for path in key_paths]
        like = jax.tree.leaves(keys)  # stacked layers have one key per layer
        streams = [jax.random.split(own, leaf.shape) if leaf.shape else own for own, leaf in zip(streams, like)]
        merged = nnx.merge(
            graph, trained_layout.state(trained), jax.tree.unflatten(jax.tree.structure(keys), streams),
            zeros_of(counts), carried_layout.state(carried), zeros_of(forgotten),
        )  # fmt: skip
        kind = type(merged)  # an attribute `train` or `eval` may shadow the method
        kind.train(merged) if train else kind.eval(merged)
        for node in _modules(merged):
            for attribute, value in core.flag_values(attributes, train).items():
                if attribute in vars(node):
                    setattr(node, attribute, value)
        watched = watch(merged)
        output = merged(inputs, **core.flag_values(flags, train))
        _, _, _, _, updated, _ = nnx.split(merged, *PARTS)
        if jax.tree.structure(updated) != carried_layout.structure:
            _reject_new_state(name)
        return output, carried_layout.named(updated), watched

    def one_pass(train: bool, carried: Any, key: jax.Array) -> tuple[Any, Any]:
        weights, inputs = zeros_of((trained, example))
        return run(weights, carried, inputs, key, train)[:2]

    trained, carried = jax.eval_shape(init, jax_settings.key(0))
    drawn = {}  # train -> whether the pass depends on random numbers
    for train in (False, True):
        drawn[train], (_, updated) = core.reads_key(partial(one_pass, train, zeros_of(carried)))
        if shapes_of(updated) != shapes_of(carried):
            _reject_new_state(name)
    if training_flags is None:
        alone: Any = flatten_dict(left_alone(lambda carried: one_pass(True, carried, jax_settings.key(0))[1], carried))
        frozen = [alone[path] for path in statistics]
        own_flags = {**flags, **{key: value for key, value in attributes.items() if key in vars(abstract)}}
        core.check_that_it_trains(name, own_flags, frozen, [has_dropout and not drawn[True]])
    if drawn[False]:
        raise UserError(
            f"model: {name} draws random numbers in evaluation, which must not be random; give its __call__ a flag "
            "train=False, or draw in layers that .eval() disables, such as nnx.Dropout"
        )

    def applying(layer: str | None) -> Apply:
        def watch(merged: nnx.Module) -> Any:
            return None if layer is None else keep(merged, layer)

        def apply(trained: Any, carried: Any, inputs: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
            key = jax_settings.key(0) if key is None else key  # evaluation does not use it
            output, updated, watched = run(trained, carried, inputs, key, train, watch)
            if layer is not None:
                output = output, first_output(watched)
            return output, updated if train else carried

        return apply

    def apply_with_layer(layer: str | None) -> Apply:
        def one_pass(watch: Watch) -> Any:
            weights, state, inputs = zeros_of((trained, carried, example))
            return run(weights, state, inputs, jax_settings.key(0), False, watch)[2]

        batch = jax.tree.leaves(example)[0].shape[0]
        return applying(find(one_pass, layer, name, batch))

    return PureModule(init, applying(None), apply_with_layer)


def _factory(module: nnx.Module | Callable[..., nnx.Module]) -> Callable[[jax.Array], nnx.Module]:
    """Return a function that makes the module from a key."""
    if isinstance(module, nnx.Module):
        return lambda key: module
    author = module.func if isinstance(module, partial) else module
    # An NNX class itself hides the parameters of its `__init__`.
    author = author.__init__ if isinstance(author, type) else author
    by_name = "rngs" in inspect.signature(author).parameters
    return lambda key: module(rngs=nnx.Rngs(key)) if by_name else module(nnx.Rngs(key))


def _modules(module: nnx.Module) -> list[nnx.Module]:
    return [node for _, node in nnx.iter_graph(module) if isinstance(node, nnx.Module)]


def _layout(state: Any) -> Layout:
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    return Layout([_path(path) for path, _ in leaves], structure)


def _path(keys: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names on a leaf's path, without the Variable's attribute that holds the array."""
    names = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in keys]
    return tuple(names[:-1] if isinstance(keys[-1], jax.tree_util.GetAttrKey) else names)


def _reject_new_state(name: str) -> NoReturn:
    raise UserError(
        f"model: a pass of {name} changes the shape of the state, but steps must preserve shapes; create the whole "
        "state in __init__"
    )
