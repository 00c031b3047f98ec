"""PyTorch's map-style data sets by their interface: a length, and a pair at each position; nothing is imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.core.names import shown
from fedjax_sel.data import trees
from fedjax_sel.data.examples import as_array, is_picture, reason
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
    getter = getattr(type(dataset), "__getitem__", None)
    # A subclass may give other examples than its tensors hold.
    if isinstance(tensors, tuple) and getattr(getter, "__qualname__", "") == "TensorDataset.__getitem__":
        if len(tensors) != 2:
            raise UserError(f"{part}: {len(tensors)} tensors are no pair; give a TensorDataset(inputs, targets)")
        inputs, targets = (as_array(part, tensor, False) for tensor in tensors)
        return (channels_last(inputs, 4) if channels_first else inputs), targets
    return stacked(part, _items(part, dataset, channels_first))


def check_classes(train: Any, test: Any) -> None:
    """Refuse data sets whose labels stand for other classes, as those of two image folders may.

    Args:
        train: a data set, or a `Subset` of one.
        test: the same.

    Raises:
        UserError: both name their `classes`, and differently.
    """
    one, other = (_classes(dataset) for dataset in (train, test))
    if one is not None and other is not None and one != other:
        raise UserError(
            f"test: its classes are {shown(', '.join(other))}, and those of train {shown(', '.join(one))}; number the "
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
        name = f"{part}: example {position}"
        items.append((arrays(name, item[0], True, channels_first), arrays(name, item[1], False)))
    if not items:
        raise UserError(f"{part}: the data set is empty; give at least one example")
    return items


def arrays(name: str, tree: Tree, is_input: bool, channels_first: bool = False) -> Tree:
    """Convert one example.

    Args:
        name: which example, for messages.
        tree: its tensors, pictures and numbers in containers; lists that hold tensors or pictures are tuples.
        is_input: whether pictures stand for what they show, see `as_array`.
        channels_first: whether inputs [channels, H, W] become [H, W, channels]; pictures are so already.

    Returns:
        A tree of arrays.

    Raises:
        UserError: something in it cannot be converted.
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
    """Stack examples of one structure and shape.

    Args:
        part: what they are, for messages.
        items: at least one tree of arrays.

    Returns:
        The tree of stacked arrays.

    Raises:
        UserError: they differ.
    """
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


def channels_last(array: np.ndarray, num_axes: int) -> np.ndarray:
    """Return [..., channels, H, W] as [..., H, W, channels], and an array with another number of axes as it is."""
    return np.ascontiguousarray(np.moveaxis(array, -3, -1)) if array.ndim == num_axes else array
