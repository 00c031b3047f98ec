"""Pytrees of arrays without JAX: an array, or a dict or tuple of such, all with one leading axis of examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Tree = Any
"""An array, or a dict (keys are strings) or a tuple of trees; lists are no containers but arrays to be."""


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every array with its path, dicts by sorted key as in JAX.

    Args:
        tree: the tree.
        name: stands before each path.

    Yields:
        Path such as ``name['a'][0]``, and array.
    """
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from leaves(tree[key], f"{name}[{key!r}]")
    elif isinstance(tree, tuple):
        for position, child in enumerate(tree):
            yield from leaves(child, f"{name}[{position}]")
    else:
        yield name, tree


def transform(function: Callable[..., Any], tree: Tree, *others: Any) -> Tree:
    """Apply a function to every array.

    Args:
        function: of an array, and of what stands in its place in each of the others.
        tree: decides the structure.
        *others: trees of the same structure, whatever stands in the places of arrays.

    Returns:
        The tree of what the function returns.
    """
    if isinstance(tree, dict):
        return {key: transform(function, tree[key], *(other[key] for other in others)) for key in sorted(tree)}
    if isinstance(tree, tuple):
        children = [transform(function, *parts) for parts in zip(tree, *others, strict=True)]
        return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
    return function(tree, *others)


def num_examples(tree: Tree) -> int:
    """Return the length of the leading axis, that of the first array."""
    return len(next(leaves(tree))[1])


def take(tree: Tree, rows: Any) -> Tree:
    """Index the leading axis of every array: by a slice, a mask or positions."""
    return transform(lambda array: array[rows], tree)


def is_array(tree: Tree) -> bool:
    """Return whether the tree is one array and no container."""
    return not isinstance(tree, dict | tuple)
