"""Pytrees of NumPy arrays, without JAX. All arrays of a tree share the leading axis of examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Tree = Any
"""An array, or a dict (with string keys) or tuple of trees. Lists are not containers but array data."""


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each array with its path; dicts in sorted key order, as in JAX.

    Args:
        tree: the tree.
        name: prefix of each path.

    Yields:
        Pairs of a path, such as ``name['a'][0]``, and an array.
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
    """Apply a function to each array, like `jax.tree.map`.

    Args:
        function: function of an array of `tree` and the values at its path in `others`.
        tree: tree that defines the structure.
        *others: trees of the same structure, with any values as leaves.

    Returns:
        The tree of results.
    """
    if isinstance(tree, dict):
        return {key: transform(function, tree[key], *(other[key] for other in others)) for key in sorted(tree)}
    if isinstance(tree, tuple):
        children = [transform(function, *parts) for parts in zip(tree, *others, strict=True)]
        return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
    return function(tree, *others)


def num_examples(tree: Tree) -> int:
    """Return the length of the first array's leading axis."""
    return len(next(leaves(tree))[1])


def take(tree: Tree, rows: Any) -> Tree:
    """Index the leading axis of each array by a slice, a mask or positions."""
    return transform(lambda array: array[rows], tree)


def is_array(tree: Tree) -> bool:
    """Return whether the tree is a single array."""
    return not isinstance(tree, dict | tuple)
