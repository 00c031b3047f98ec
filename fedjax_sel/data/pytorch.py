"""Conversion of PyTorch's map-style data sets to arrays through their interface, without importing PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.core.parsing import shown
from fedjax_sel.data import examples
from fedjax_sel.data.examples import Tree, as_array, is_picture, reason
from fedjax_sel.errors import UserError


def read(part: str, dataset: Any, channels_first: bool) -> tuple[Tree, Tree]:
    """Read all examples of a data set.

    Args:
        part: name of the split in messages.
        dataset: object with `__len__` and `__getitem__`, or a `TensorDataset`.
        channels_first: True to transpose [n, channels, H, W] inputs to [n, H, W, channels].

    Returns:
        Inputs and targets, not yet validated.

    Raises:
        UserError: the object is no such data set, or cannot be read.
    """
    tensors = getattr(dataset, "tensors", None)
    getter = getattr(type(dataset), "__getitem__", None)
    # A subclass may override `__getitem__`, so its tensors are not its examples.
    if isinstance(tensors, tuple) and getattr(getter, "__qualname__", "") == "TensorDataset.__getitem__":
        if len(tensors) != 2:
            raise UserError(f"{part}: {len(tensors)} tensors are not a pair; give a TensorDataset(inputs, targets)")
        inputs, targets = (as_array(part, tensor, False) for tensor in tensors)
        return (channels_last(inputs, 4) if channels_first else inputs), targets
    return stacked(part, _items(part, dataset, channels_first))


def check_classes(train: Any, test: Any) -> None:
    """Check that two data sets number their classes alike; two image folders may not.

    Args:
        train: a data set, or a `Subset` of one.
        test: a data set, or a `Subset` of one.

    Raises:
        UserError: both data sets have `classes`, and these differ.
    """
    one, other = (_classes(dataset) for dataset in (train, test))
    if one is not None and other is not None and one != other:
        raise UserError(
            f"test: the classes are {shown(', '.join(other))}, but in train {shown(', '.join(one))}; number the "
            "classes of both alike"
        )


def _classes(dataset: Any) -> list[str] | None:
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return [str(name) for name in names] if isinstance(names, list | tuple) else None


def _items(part: str, dataset: Any, channels_first: bool) -> list[tuple[Tree, Tree]]:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UserError(
            f"{part}: a {type(dataset).__name__} has no __len__ and __getitem__; give a map-style data set (such as a "
            "loader's `dataset`), or pass arrays to Dataset.from_arrays"
        )
    items = []
    for position in range(len(dataset)):
        try:
            item = dataset[position]
        except Exception as problem:  # the user's transform may raise anything
            raise UserError(
                f"{part}: example {position} cannot be read ({reason(problem)}); fix the data set"
            ) from problem
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UserError(f"{part}: example {position} is a {type(item).__name__}, not a pair; give (input, target)")
        name = f"{part}: example {position}"
        items.append((arrays(name, item[0], True, channels_first), arrays(name, item[1], False)))
    if not items:
        raise UserError(f"{part}: the data set is empty; give at least one example")
    return items


def arrays(name: str, tree: Tree, is_input: bool, channels_first: bool = False) -> Tree:
    """Convert one example to a tree of arrays.

    Args:
        name: name of the example in messages.
        tree: tensors, pictures and numbers in containers; lists of tensors or pictures become tuples.
        is_input: True for inputs, whose pictures become displayed pixels; see `as_array`.
        channels_first: True to transpose [channels, H, W] inputs to [H, W, channels], except pictures.

    Returns:
        A tree of arrays.

    Raises:
        UserError: a value cannot be converted.
    """
    if isinstance(tree, dict):
        return {key: arrays(name, child, is_input, channels_first) for key, child in tree.items()}
    if isinstance(tree, tuple) or (
        isinstance(tree, list) and any(hasattr(child, "shape") or is_picture(child) for child in tree)
    ):
        return tuple(arrays(name, child, is_input, channels_first) for child in tree)
    array = as_array(name, tree, is_input)
    return channels_last(array, 3) if is_input and channels_first and not is_picture(tree) else array


def stacked(part: str, items: list[Any]) -> Any:
    """Stack examples of equal structure and shape.

    Args:
        part: name of the split in messages.
        items: at least one tree of arrays.

    Returns:
        The tree of stacked arrays.

    Raises:
        UserError: the examples differ in structure or shape.
    """
    first = items[0]
    shapes = [array.shape for _, array in examples.leaves(first)]
    for position, item in enumerate(items):
        if [array.shape for _, array in examples.leaves(item)] != shapes:
            found = [array.shape for _, array in examples.leaves(item)]
            raise UserError(
                f"{part}: example {position} has arrays of shape {_listed(found)}, but example 0 has "
                f"{_listed(shapes)}; use a transform to bring all to one size"
            )
    try:
        return examples.transform(lambda *arrays: np.stack(arrays), first, *items[1:])
    except (KeyError, TypeError, IndexError, ValueError) as problem:
        raise UserError(f"{part}: examples differ in structure ({problem}); give all the same structure") from problem


def _listed(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))


def channels_last(array: np.ndarray, num_axes: int) -> np.ndarray:
    """Transpose [..., channels, H, W] to [..., H, W, channels]; return arrays with other numbers of axes unchanged."""
    return np.ascontiguousarray(np.moveaxis(array, -3, -1)) if array.ndim == num_axes else array
