"""PyTorch's map-style data sets by their interface: a length, and a pair at each position; nothing is imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.data import trees
from fedjax_sel.data.examples import reason
from fedjax_sel.data.trees import Tree
from fedjax_sel.errors import UserError


def read(part: str, dataset: Any, channels_first: bool) -> tuple[Tree, Tree]:
    """Read a data set whole.

    Args:
        part: what it is, for messages.
        dataset: what has `__len__` and `__getitem__`, or `tensors`.
        channels_first: whether inputs [n, channels, H, W] become [n, H, W, channels].

    Returns:
        Inputs and targets, not yet checked.

    Raises:
        UserError: it is no such data set, or cannot be read.
    """
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple):
        if len(tensors) != 2:
            raise UserError(f"{part}: {len(tensors)} tensors are no pair; give a TensorDataset(inputs, targets)")
        inputs, targets = (_array(tensor) for tensor in tensors)
    else:
        inputs, targets = _stacked(part, _items(part, dataset))
    if channels_first:
        inputs = trees.transform(_channels_last, inputs)
    return inputs, targets


def _items(part: str, dataset: Any) -> list[tuple[Tree, Tree]]:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UserError(
            f"{part}: a {type(dataset).__name__} has no length and positions; give a map-style data set (of a loader "
            "its `dataset`), or arrays to Dataset.from_arrays"
        )
    items = []
    for position in range(len(dataset)):
        try:
            item = dataset[position]
        except Exception as problem:  # a transform is anybody's code
            raise UserError(
                f"{part}: example {position} cannot be read ({reason(problem)}); mend the data set"
            ) from problem
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UserError(f"{part}: example {position} is a {type(item).__name__} and no pair; give (input, target)")
        items.append(tuple(trees.transform(_array, _of_tuples(half)) for half in item))
    if not items:
        raise UserError(f"{part}: the data set is empty; give at least one example")
    return items


def _of_tuples(tree: Tree) -> Tree:
    """Return a tree whose lists that hold tensors are tuples; in PyTorch they are containers."""
    if isinstance(tree, dict):
        return {key: _of_tuples(child) for key, child in tree.items()}
    if isinstance(tree, tuple) or (isinstance(tree, list) and any(hasattr(child, "shape") for child in tree)):
        return tuple(_of_tuples(child) for child in tree)
    return tree


def _stacked(part: str, items: list[tuple[Tree, Tree]]) -> tuple[Tree, Tree]:
    first = items[0]
    shapes = [array.shape for _, array in trees.leaves(first)]
    for position, item in enumerate(items):
        if [array.shape for _, array in trees.leaves(item)] != shapes:
            found = [array.shape for _, array in trees.leaves(item)]
            raise UserError(
                f"{part}: example {position} has arrays of shape {_listed(found)}, and the first one of "
                f"{_listed(shapes)}; bring all to one size by a transform"
            )
    try:
        return trees.transform(lambda *arrays: np.stack(arrays), first, *items[1:])
    except (KeyError, TypeError, IndexError, ValueError) as problem:
        raise UserError(f"{part}: examples differ in structure ({problem}); give all the same one") from problem


def _listed(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))


def _channels_last(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim == 4 else array


def _array(value: Any) -> np.ndarray:
    """Return a tensor, a picture or a number as an array."""
    for method in ("detach", "cpu"):  # a tensor that needs gradients, or lies on a device, does not convert itself
        if hasattr(value, method):
            value = getattr(value, method)()
    return np.asarray(value)
