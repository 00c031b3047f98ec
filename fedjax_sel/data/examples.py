"""Examples as arrays or pytrees of arrays with one axis of examples, and their checks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError

Tree = Any
"""An array, or a dict (with string keys) or tuple of trees. Lists are not containers but array data."""


def is_array(tree: Tree) -> bool:
    """Return whether the tree is a single array."""
    return not isinstance(tree, dict | tuple)


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each array with its path, such as ``name['a'][0]``."""
    import jax  # deferred, because importing this package must stay fast

    for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_array):
        yield name + jax.tree_util.keystr(path), leaf


def transform(function: Callable[..., Any], tree: Tree, *others: Any) -> Tree:
    """Apply a function to each array and to the values at its path in other trees."""
    import jax  # deferred, because importing this package must stay fast

    return jax.tree.map(function, tree, *others, is_leaf=is_array)


def num_examples(tree: Tree) -> int:
    """Return the length of the first array's leading axis."""
    return len(next(leaves(tree))[1])


def take(tree: Tree, rows: Any) -> Tree:
    """Index the leading axis of each array by a slice, a mask or positions."""
    return transform(lambda array: array[rows], tree)


_INT32 = np.iinfo(np.int32)
_PICTURE_MODES = ("L", "LA", "RGB", "RGBA")


def is_images(array: Any) -> bool:
    """Return whether inputs are images, uint8 [n, H, W, channels], which are normalized on the device."""
    return array.dtype == np.uint8 and array.ndim == 4


def pixels(name: str, picture: Any, mode: str | None = None) -> np.ndarray:
    """Return the displayed pixels of a Pillow picture, uint8 ``[H, W, channels]``.

    By default ``L``, ``LA``, ``RGB`` and ``RGBA`` keep their mode, 1-bit pictures become ``L``, and palettes and other
    color spaces (CMYK, YCbCr, LAB, HSV) ``RGB``. More than 8 bits per channel are rejected, since Pillow clips them.
    """
    if picture.mode in ("I", "F") or picture.mode.startswith("I;"):
        raise UserError(
            f"{name}: a picture of mode {picture.mode} has more than 8 bits a channel; scale the pictures to 8 bits, "
            "or give them as arrays of floats"
        )
    if mode is None:
        mode = picture.mode if picture.mode in _PICTURE_MODES else "L" if picture.mode == "1" else "RGB"
    array = np.asarray(picture if picture.mode == mode else picture.convert(mode))
    return array[..., None] if array.ndim == 2 else array


def is_picture(value: Any) -> bool:
    """Return whether a value has the interface of Pillow's pictures."""
    return hasattr(value, "getbands")


def holds_pictures(value: Any) -> bool:
    """Return whether a value is a picture or a list with pictures."""
    return is_picture(value) or (isinstance(value, list) and any(map(is_picture, value)))


def inputs(part: str, tree: Tree) -> Tree:
    """Convert uint8 ``[n, H, W]`` or ``[n, H, W, channels]`` inputs to images, all others to float32 or int32."""

    def convert(name: str, array: np.ndarray) -> np.ndarray:
        if array.dtype == np.uint8 and array.ndim in (3, 4):
            return array[..., None] if array.ndim == 3 else array
        return _number(name, array)

    def pixels_of(value: Any) -> Any:
        if not (isinstance(value, list) and holds_pictures(value)):
            return value
        return [as_array(f"{part}: example {position}", row, True) for position, row in enumerate(value)]

    return _convert(part, transform(pixels_of, tree), convert)


def targets(part: str, tree: Tree) -> Tree:
    """Convert targets to float32 and int32."""
    return _convert(part, tree, _number)


def check(dataset_part: str, inputs: Tree, targets: Tree) -> None:
    """Check the dtypes of inputs and targets, and that all arrays have the same number of examples."""
    named = [*leaves(inputs, f"{dataset_part} inputs"), *leaves(targets, f"{dataset_part} targets")]
    for name, array in named:
        images = is_images(array) and " inputs" in name
        if not (images or array.dtype in (np.float32, np.int32)) or array.ndim < 1:
            raise UserError(
                f"{name}: {array.dtype} of shape {array.shape} is neither uint8 images [n, H, W, channels] nor float32 "
                "or int32 with an axis of examples; let Dataset.from_arrays convert it"
            )
    (first, reference), *others = named
    for name, array in others:
        if len(array) != len(reference):
            raise UserError(
                f"{name}: {len(array)} examples, but {first} has {len(reference)}; give one entry per example in each"
            )


def check_alike(train: Tree, test: Tree, what: str) -> None:
    """Check that training and test examples have the same structure, shapes and dtypes."""
    one, other = (dict(leaves(tree, what)) for tree in (train, test))
    if list(one) != list(other):
        raise UserError(
            f"test {what}: their arrays are {shown(', '.join(other))}, but those in train are "
            f"{shown(', '.join(one))}; give both parts one structure"
        )
    for name, array in one.items():
        if (array.dtype, array.shape[1:]) != (other[name].dtype, other[name].shape[1:]):
            raise UserError(
                f"test {name}: examples of {other[name].dtype} {list(other[name].shape[1:])}, but in train of "
                f"{array.dtype} {list(array.shape[1:])}; give both parts examples of one shape and kind"
            )


def count_classes(train: Tree, test: Tree, count: int | None) -> int:
    """Return the number of classes, or 0 unless targets are one class per example (int32 ``[n]``).

    `count` is the user's number: 0 if targets are not classes, None to infer it from the labels.
    """
    parts = {"train": train, "test": test}
    are_labels = all(is_array(labels) and labels.ndim == 1 and labels.dtype == np.int32 for labels in parts.values())
    if count == 0 or (count is None and not are_labels):
        return 0
    if not are_labels:
        found = f"{train.dtype} of shape {train.shape}" if is_array(train) else "several arrays"
        raise UserError(
            f"num_classes: {shown(count)} was given, but the targets are {found}, not one whole number per "
            "example; leave it out, or give one class per example"
        )
    largest = max(int(labels.max()) for labels in parts.values())
    if count is None:
        count = max(largest, 0) + 1
        if count > max(1000, sum(map(len, parts.values()))):
            raise UserError(
                f"targets: label {largest} in only {sum(map(len, parts.values()))} examples does not look like a "
                "class; give num_classes if it is one, or num_classes=0 if these numbers are not classes"
            )
        if len(absent := np.setdiff1d(np.arange(count), train)):
            warnings.warn(
                f"targets: {len(absent)} of {count} classes have no training example, such as {absent[0]}; number the "
                "classes from 0 without gaps, or give num_classes if this is intended",
                stacklevel=3,
            )
    if not isinstance(count, int | np.integer) or count < 1:
        raise UserError(f"num_classes: {shown(count)} is not a number of classes; give a whole number of at least 0")
    return int(count)


def check_range(name: str, labels: np.ndarray, num_classes: int) -> None:
    """Check that labels, int ``[n]``, are in ``0 .. num_classes - 1``."""
    outside = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(outside):
        raise UserError(
            f"{name}: label {labels[outside[0]]} of example {outside[0]} is not in 0 to {num_classes - 1}; number the "
            "classes from 0, or give num_classes (0 if targets are not classes)"
        )


def client_numbers(client_ids: Any, num_examples: int, what: str = "client_ids") -> np.ndarray:
    """Convert the IDs of natural clients to int64 ``[n]``; strings are numbered in sorted order."""
    array = np.asarray(client_ids)
    if array.shape != (num_examples,):
        raise UserError(f"{what}: shape {array.shape} for {num_examples} examples; give one number or name per example")
    if array.dtype.kind in "US" or (array.dtype.kind == "O" and {*map(type, array)} <= {str}):
        array = np.unique(array, return_inverse=True)[1]
    if array.dtype.kind not in "iu":
        raise UserError(f"{what}: {array.dtype} is neither whole numbers nor texts; give one of them per example")
    return array.astype(np.int64)


def reason(problem: Exception) -> str:
    """Return the first sentence of a third-party exception, to quote in a message."""
    return parsing.first_line(problem).partition(". ")[0].rstrip(".") or type(problem).__name__


def as_array(name: str, value: Any, is_input: bool) -> np.ndarray:
    """Convert one example's tensor, picture or number to an array.

    Pictures in targets, such as segmentation masks, keep their stored numbers, which are the classes.
    """
    try:
        return pixels(name, value) if is_input and is_picture(value) else np.asarray(value)
    except UserError:
        raise
    except Exception as problem:  # Pillow reads a picture's file only here
        raise UserError(f"{name} cannot be read ({reason(problem)}); fix the data set") from problem


def _convert(part: str, tree: Tree, convert: Any) -> Tree:
    named = [(name, _array(name, value)) for name, value in leaves(tree, part)]
    if not named:
        raise UserError(f"{part}: {shown(tree)} holds no array; give at least one")
    arrays = iter([convert(name, array) for name, array in named])
    return transform(lambda _: next(arrays), tree)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as problem:  # ragged lists, tensors on a device; third-party arrays may raise anything
        raise UserError(
            f"{name}: not an array ({reason(problem)}); give rows of one length as a NumPy array"
        ) from problem
    if array.dtype.kind not in "biuf":
        advice = "give uint8 images, floats, or whole numbers, and rows of one length"
        if array.dtype.kind in "US" or (array.dtype == object and {*map(type, array.flat)} <= {str, np.str_}):
            advice = "number the texts alike in all parts, as np.searchsorted(np.unique(train_labels), labels) does"
        raise UserError(f"{name}: dtype {array.dtype} is not supported; {advice}")
    if array.ndim < 1 or not array.size:
        raise UserError(f"{name}: an array of shape {array.shape} holds no examples; give at least one")
    return array


def _number(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        if array.dtype.itemsize >= 4 and (array.min() < _INT32.min or array.max() > _INT32.max):
            raise UserError(f"{name}: whole numbers beyond int32; give smaller ones, or floats")
        return array.astype(np.int32, copy=False)
    with np.errstate(over="ignore"):
        converted = array.astype(np.float32, copy=False)
    finite = np.isfinite(converted)
    if not finite.all():
        place = tuple(int(axis) for axis in np.argwhere(~finite)[0])
        raise UserError(f"{name}: {array[place]} of example {place[0]} is not a finite float32; replace or remove it")
    return converted
