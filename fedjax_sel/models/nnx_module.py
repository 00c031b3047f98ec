"""An unmodified Flax NNX module, or what makes one, as pure functions by `nnx.split` and `nnx.merge`."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
from flax import nnx

from fedjax_sel.errors import UserError
from fedjax_sel.models import nnx_layer_outputs, training_flag
from fedjax_sel.models.flax_convolutions import make_faster
from fedjax_sel.models.nnx_layer_outputs import Watch
from fedjax_sel.models.pure_module import Apply, PureModule, shapes_of, stream_key, zeros_of

PARTS = (nnx.Param, nnx.RngKey, nnx.RngState, nnx.Not(nnx.Intermediate), ...)
"""What a module is split into: trained, keys of random streams, how often each was used, carried, forgotten."""


class Layout(NamedTuple):
    """How the arrays of one part of a module, an `nnx.State`, are called in a nested dict of plain names."""

    paths: list[tuple[str, ...]]  # of each leaf
    structure: Any  # the State's pytree structure

    def named(self, state: Any) -> dict[str, Any]:
        """Return the arrays of a State as a nested dict."""
        tree: dict[str, Any] = {}
        for path, leaf in zip(self.paths, jax.tree.leaves(state)):
            node = tree
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = leaf
        return tree

    def state(self, tree: dict[str, Any]) -> Any:
        """Return the State of a nested dict."""
        return jax.tree.unflatten(self.structure, [_at(tree, path) for path in self.paths])


def from_nnx(module: nnx.Module | Callable[..., nnx.Module], inputs: Any, fast_convolutions: bool = True) -> PureModule:
    """Return a module's pure functions.

    Trained is what `nnx.Param` holds; carried is all the rest but random streams, of which every one has a key of its
    own in each training pass, by its path.

    Args:
        module: makes a module of `nnx.Rngs`, as `functools.partial(Net, 10)` does, for every seed its own; or an
            instance, whose weights every seed starts from.
        inputs: arrays or their shapes; the size of the batch does not matter.
        fast_convolutions: whether `flax_convolutions.convolve` stands in for XLA's convolution.

    Raises:
        UserError: nobody can give the module what it needs: an argument, random numbers in evaluation.
    """
    make = _factory(module)
    abstract = nnx.eval_shape(lambda: make(jax.random.key(0)))
    name, example = type(abstract).__name__, shapes_of(inputs)
    flags = training_flag.of_call(abstract.__call__, name)
    if fast_convolutions:
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
    ) -> tuple[Any, Any, bool, Any]:
        """Return the output, what is carried on, whether random numbers were drawn, and what `watch` gave."""
        streams = [_streams(key, path, leaf) for path, leaf in zip(key_paths, jax.tree.leaves(keys))]
        unused = zeros_of(counts)
        before = jax.tree.leaves(unused)  # listed now: the module may change the Variables themselves
        merged = nnx.merge(
            graph, trained_layout.state(trained), jax.tree.unflatten(jax.tree.structure(keys), streams), unused,
            carried_layout.state(carried), zeros_of(forgotten),
        )  # fmt: skip
        merged.train() if train else merged.eval()
        watched = watch(merged)
        output = merged(inputs, **training_flag.values(flags, train))
        _, _, _, used, left, _ = nnx.split(merged, *PARTS)
        drawn = any(now is not then for now, then in zip(jax.tree.leaves(used), before))
        if jax.tree.structure(left) != carried_layout.structure:
            _refuse_new_state(name)
        return output, carried_layout.named(left), drawn, watched

    drawn_in_evaluation = []

    def check(trained: Any, carried: Any, inputs: Any) -> Any:
        drawn_in_evaluation.append(run(trained, carried, inputs, jax.random.key(0), False)[2])
        return run(trained, carried, inputs, jax.random.key(0), True)[1]

    trained, carried = jax.eval_shape(init, jax.random.key(0))
    if shapes_of(jax.eval_shape(check, trained, carried, example)) != shapes_of(carried):
        _refuse_new_state(name)
    if any(drawn_in_evaluation):
        raise UserError(
            f"model: {name} draws random numbers in evaluation, where nothing is random; let its __call__ take a flag "
            "train=False, or draw in layers that .eval() turns off, as it does nnx.Dropout"
        )

    def applying(layer: str | None) -> Apply:
        def watch(merged: nnx.Module) -> Any:
            return None if layer is None else nnx_layer_outputs.keep(merged, layer)

        def apply(trained: Any, carried: Any, inputs: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
            key = jax.random.key(0) if key is None else key  # which nothing in evaluation reads
            output, left, _, watched = run(trained, carried, inputs, key, train, watch)
            if layer is not None:
                output = output, nnx_layer_outputs.first_output(watched)
            return output, left if train else carried

        return apply

    def apply_with_layer(layer: str | None) -> Apply:
        def one_pass(watch: Watch) -> Any:
            weights, state, inputs = zeros_of((trained, carried, example))
            return run(weights, state, inputs, jax.random.key(0), False, watch)[3]

        batch = jax.tree.leaves(example)[0].shape[0]
        return applying(nnx_layer_outputs.find(one_pass, layer, name, batch))

    return PureModule(init, applying(None), apply_with_layer)


def _factory(module: nnx.Module | Callable[..., nnx.Module]) -> Callable[[jax.Array], nnx.Module]:
    """Return a function of a key that makes the module."""
    if isinstance(module, nnx.Module):
        return lambda key: module
    by_name = "rngs" in inspect.signature(_written(module)).parameters

    def make(key: jax.Array) -> nnx.Module:
        made = module(rngs=nnx.Rngs(key)) if by_name else module(nnx.Rngs(key))
        if not isinstance(made, nnx.Module):
            raise UserError(
                f"model: {getattr(module, '__name__', module)!r} made a {type(made).__name__} of nnx.Rngs, not an "
                "nnx.Module; give an instance or a function that returns one"
            )
        return made

    return make


def _written(factory: Callable) -> Callable:
    """Return the function whose parameters its author wrote: a class of NNX does not show those of its `__init__`."""
    while isinstance(factory, partial):
        factory = factory.func
    return factory.__init__ if isinstance(factory, type) else factory


def _layout(state: Any) -> Layout:
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    return Layout([_path(path) for path, _ in leaves], structure)


def _path(keys: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names on a leaf's path; the attribute of a Variable that holds its array is none of them."""
    names = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in keys]
    return tuple(names[:-1] if isinstance(keys[-1], jax.tree_util.GetAttrKey) else names)


def _at(tree: dict[str, Any], path: tuple[str, ...]) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def _streams(key: jax.Array, path: tuple[str, ...], like: Any) -> jax.Array:
    """Return the key of one stream, or several if layers are stacked."""
    own = stream_key(key, "/".join(path))
    return jax.random.split(own, like.shape) if like.shape else own


def _refuse_new_state(name: str) -> NoReturn:
    raise UserError(
        f"model: a pass of {name} changes the shape of the state that it keeps, and every step has to leave it as it "
        "found it; make all of it when the module is made"
    )
