"""Anybody's arrays as examples to compute with: what they may be, and what they become."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.core import texts
from fedjax_sel.core.names import shown
from fedjax_sel.data import trees
from fedjax_sel.data.trees import Tree
from fedjax_sel.errors import UserError

_INT32 = np.iinfo(np.int32)
_PICTURE_MODES = ("L", "LA", "RGB", "RGBA")


def is_images(array: Any) -> bool:
    """Return whether inputs are images, uint8 [n, H, W, channels], which are normalised on the device."""
    return array.dtype == np.uint8 and array.ndim == 4


def pixels(name: str, picture: Any, mode: str | None = None) -> np.ndarray:
    """Return a Pillow picture as it is shown.

    Args:
        name: which picture, for messages.
        picture: anything with Pillow's interface.
        mode: Pillow's name of the channels to convert to; by default ``L``, ``LA``, ``RGB`` and ``RGBA`` stay, 1-bit
            pictures become ``L``, and palettes and other colors (CMYK, YCbCr, LAB, HSV) become ``RGB``.

    Returns:
        uint8 ``[H, W, channels]``.

    Raises:
        UserError: more than 8 bits a channel, which Pillow's conversions clip.
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


def inputs(part: str, tree: Tree) -> Tree:
    """Convert inputs: uint8 ``[n, H, W]`` or ``[n, H, W, channels]`` to images, others to float32 and int32.

    Args:
        part: what they are, for messages.
        tree: a tree of anything that NumPy can make an array of.

    Returns:
        A tree of uint8 ``[n, H, W, channels]``, float32 and int32 arrays.

    Raises:
        UserError: something in it cannot be computed with.
    """

    def convert(name: str, array: np.ndarray) -> np.ndarray:
        if array.dtype == np.uint8 and array.ndim in (3, 4):
            return array[..., None] if array.ndim == 3 else array
        return _number(name, array)

    return _convert(part, trees.transform(lambda value: _pictures(part, value), tree), convert)


def targets(part: str, tree: Tree) -> Tree:
    """Convert targets to float32 and int32; arguments and what is raised as for `inputs`."""
    return _convert(part, tree, _number)


def check(dataset_part: str, inputs: Tree, targets: Tree) -> None:
    """Refuse a part of a data set that has no examples, or not one target for each input.

    Args:
        dataset_part: ``train``, ``test``, or what the server holds.
        inputs: a tree of arrays, converted.
        targets: a tree of arrays, converted.

    Raises:
        UserError: it is so.
    """
    named = [*trees.leaves(inputs, f"{dataset_part} inputs"), *trees.leaves(targets, f"{dataset_part} targets")]
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
                f"{name}: {len(array)} examples, but {first} has {len(reference)}; give each example one entry "
                "in every array"
            )


def check_alike(train: Tree, test: Tree, what: str) -> None:
    """Refuse parts whose examples differ in structure, shape or dtype.

    Args:
        train: a tree of arrays, converted.
        test: the same of the other part.
        what: ``inputs`` or ``targets``.

    Raises:
        UserError: they do.
    """
    one, other = (dict(trees.leaves(tree, what)) for tree in (train, test))
    if list(one) != list(other):
        raise UserError(
            f"test {what}: they hold {_listed(other)}, and the train {what} {_listed(one)}; give both "
            "parts one structure"
        )
    for name, array in one.items():
        if (array.dtype, array.shape[1:]) != (other[name].dtype, other[name].shape[1:]):
            raise UserError(
                f"test {name}: examples of {other[name].dtype} {list(other[name].shape[1:])}, but in train of "
                f"{array.dtype} {list(array.shape[1:])}; give both parts examples of one shape and kind"
            )


def count_classes(train: Tree, test: Tree, count: int | None) -> int:
    """Count the classes of targets.

    Args:
        train: targets, converted.
        test: the same of the other part.
        count: the number that the user gives; 0 says that the targets are no classes, None asks to look.

    Returns:
        The number of classes where targets are one class an example (int32 ``[n]``), else 0.

    Raises:
        UserError: targets that are no classes, or out of range.
    """
    parts = {"train": train, "test": test}
    are_labels = all(
        trees.is_array(labels) and labels.ndim == 1 and labels.dtype == np.int32 for labels in parts.values()
    )
    if (count == 0 and not isinstance(count, bool)) or (count is None and not are_labels):
        return 0
    if not are_labels:
        raise UserError(
            f"num_classes: {shown(count)} was given, but the targets are {_described(train)} and not one whole number "
            "an example; leave it out, or give one class an example"
        )
    largest = max(int(labels.max()) for labels in parts.values())
    if count is None:
        count = largest + 1
        if count > max(1000, sum(map(len, parts.values()))):
            raise UserError(
                f"targets: a label of {largest} in {sum(map(len, parts.values()))} examples is hardly a class; give "
                "num_classes if it is one, or num_classes=0 if these numbers are no classes"
            )
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise UserError(f"num_classes: {shown(count)} is no number of classes; give a whole number of at least 1, or 0")
    for part, labels in parts.items():
        check_range(f"{part} targets", labels, int(count))
    return int(count)


def check_range(name: str, labels: np.ndarray, num_classes: int) -> None:
    """Refuse labels outside ``0 .. num_classes - 1``.

    Args:
        name: whose they are.
        labels: int ``[n]``.
        num_classes: C.

    Raises:
        UserError: one is.
    """
    outside = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(outside):
        raise UserError(
            f"{name}: label {labels[outside[0]]} of example {outside[0]} is not in 0 to {num_classes - 1}; number the "
            "classes from 0, or give num_classes (0 where targets are no classes)"
        )


def client_numbers(client_ids: Any, num_examples: int) -> np.ndarray:
    """Convert names or numbers of natural clients to integers.

    Args:
        client_ids: one a training example: whole numbers, which stay, or texts, which are numbered in sorted order.
        num_examples: n.

    Returns:
        int64 ``[n]``.

    Raises:
        UserError: of another length, or neither numbers nor texts.
    """
    _refuse_masked("client_ids", client_ids)
    try:
        array = np.asarray(client_ids)
    except Exception as problem:  # whatever a foreign array raises
        raise UserError(f"client_ids: no array ({reason(problem)}); give one number or name an example") from problem
    if array.shape != (num_examples,):
        raise UserError(
            f"client_ids: shape {array.shape} for {num_examples} training examples; give one number or name an example"
        )
    if array.dtype.kind == "O" and all(isinstance(name, str) for name in array):
        array = array.astype(str)
    if array.dtype.kind in "US":
        array = np.unique(array, return_inverse=True)[1]
    if array.dtype.kind not in "iu":
        raise UserError(
            f"client_ids: {array.dtype} is neither whole numbers nor texts; give one number or name an example"
        )
    return array.astype(np.int64)


def reason(problem: Exception) -> str:
    """Return the first sentence of a foreign exception, to stand within one of ours."""
    return texts.first_line(problem).partition(". ")[0].rstrip(".") or type(problem).__name__


def _pictures(part: str, value: Any) -> Any:
    """Return a list of pictures as arrays of pixels, and anything else as it is."""
    if not (isinstance(value, list) and any(map(is_picture, value))):
        return value
    return [as_array(f"{part}: example {position}", row, True) for position, row in enumerate(value)]


def as_array(name: str, value: Any, is_input: bool) -> np.ndarray:
    """Convert a tensor, a picture or a number of one example.

    Args:
        name: which example, for messages.
        value: the value.
        is_input: whether a picture stands for what it shows; in targets, such as masks of segments, its stored numbers
            are the classes.

    Returns:
        The array.

    Raises:
        UserError: it cannot be converted.
    """
    try:
        for method in ("detach", "cpu"):  # a tensor that needs gradients, or lies on a device, does not convert itself
            if hasattr(value, method):
                value = getattr(value, method)()
        return pixels(name, value) if is_input and is_picture(value) else np.asarray(value)
    except UserError:
        raise
    except Exception as problem:  # a picture's file is read only now
        raise UserError(f"{name} cannot be read ({reason(problem)}); mend the data set") from problem


def _convert(part: str, tree: Tree, convert: Any) -> Tree:
    _check_keys(part, tree)
    named = [(name, _array(name, value)) for name, value in trees.leaves(tree, part)]
    if not named:
        raise UserError(f"{part}: {shown(tree)} holds no array; give at least one")
    arrays = iter([convert(name, array) for name, array in named])
    return trees.transform(lambda _: next(arrays), tree)


def _check_keys(part: str, tree: Tree) -> None:
    if isinstance(tree, dict):
        for key, child in tree.items():
            if not isinstance(key, str):
                raise UserError(f"{part}: the key {shown(key)} of a dict is no text; name arrays by texts")
            _check_keys(f"{part}[{key!r}]", child)
    elif isinstance(tree, tuple):
        for position, child in enumerate(tree):
            _check_keys(f"{part}[{position}]", child)


def _array(name: str, value: Any) -> np.ndarray:
    _refuse_masked(name, value)
    try:
        array = np.asarray(value)
    except Exception as problem:  # ragged lists, tensors on another device, whatever a foreign array raises
        raise UserError(f"{name}: no array ({reason(problem)}); give rows of one length as a NumPy array") from problem
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise UserError(
            f"{name}: {array.dtype} cannot be computed with; "
            + (
                "number the texts alike in all parts, as np.searchsorted(np.unique(train_labels), labels) does"
                if array.dtype.kind in "US" or (array.dtype == object and {*map(type, array.flat)} <= {str, np.str_})
                else "give uint8 images, floats, or whole numbers, and rows of one length"
            )
        )
    if array.ndim < 1 or not array.size:
        raise UserError(
            f"{name}: an array of shape {array.shape} holds no examples; give at least one, along the first axis"
        )
    return array


def _refuse_masked(name: str, value: Any) -> None:
    """Refuse what NumPy says is missing: an array without its mask would show what is behind it."""
    for rows in value if isinstance(value, list | tuple) else [value]:
        if np.ma.is_masked(rows):
            raise UserError(
                f"{name}: {np.ma.count_masked(rows):,} of its numbers are masked; replace or leave out what is missing"
            )


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
        raise UserError(
            f"{name}: {array[place]} of example {place[0]} is no finite float32; replace or leave out what is missing"
        )
    return converted


def _described(tree: Tree) -> str:
    return f"{tree.dtype} of shape {tree.shape}" if trees.is_array(tree) else "several arrays"


def _listed(named: dict[str, Any]) -> str:
    return shown(", ".join(named))
