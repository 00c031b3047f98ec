"""Examples of other packages: PyTorch's and Hugging Face's data sets, which are read without importing the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.core.parsing import did_you_mean, shown
from fedjax_sel.data.examples import Tree, as_array, holds_pictures, is_picture, leaves, reason, transform
from fedjax_sel.errors import UserError


def read_torch(train: Any, test: Any, channels_first: bool) -> dict[str, tuple[Tree, Tree]]:
    """Read PyTorch's map-style data sets; return their inputs and targets by part, not yet validated."""
    _check_classes(*(getattr(dataset, "classes", None) for dataset in (train, test)))  # torchvision's have it
    return {part: _read_torch(part, split, channels_first) for part, split in (("train", train), ("test", test))}


def _check_classes(train: Iterable[Any] | None, test: Iterable[Any] | None) -> None:
    """Reject parts whose class names differ, which number the classes differently."""
    if train is not None and test is not None and list(train) != list(test):
        here, there = (shown(", ".join(map(str, names))) for names in (train, test))
        raise UserError(f"test: the classes are {there}, but in train {here}; number the classes of both alike")


def _read_torch(part: str, dataset: Any, channels_first: bool) -> tuple[Tree, Tree]:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")) or not len(dataset):
        raise UserError(
            f"{part}: {shown(dataset)} is not a map-style data set with examples; give one (such as a loader's "
            "`dataset`), or pass arrays to Dataset.from_arrays"
        )
    items = []
    for position in range(len(dataset)):
        name = f"{part}: example {position}"
        try:
            example, target = dataset[position]
        except Exception as problem:  # the user's transform may raise anything
            raise UserError(f"{name} is not a readable pair (input, target) ({reason(problem)}); fix it") from problem
        items.append((_arrays(name, example, True, channels_first), _arrays(name, target, False)))
    return _stacked(part, items)


def _arrays(name: str, tree: Tree, is_input: bool, channels_first: bool = False) -> Tree:
    """Convert one example to a tree of arrays; lists of tensors or pictures become tuples."""
    if isinstance(tree, dict):
        return {key: _arrays(name, child, is_input, channels_first) for key, child in tree.items()}
    if isinstance(tree, tuple) or (
        isinstance(tree, list) and any(hasattr(child, "shape") or is_picture(child) for child in tree)
    ):
        return tuple(_arrays(name, child, is_input, channels_first) for child in tree)
    array = as_array(name, tree, is_input)
    return _channels_last(array, 3) if is_input and channels_first and not is_picture(tree) else array


def _stacked(part: str, items: list[Tree]) -> Tree:
    """Stack at least one example, trees of equal structure and shapes."""
    shapes = [{path: array.shape for path, array in leaves(item)} for item in items]
    for position, found in enumerate(shapes):
        if found != shapes[0]:
            raise UserError(
                f"{part}: example {position} has arrays of shape {found}, but example 0 has {shapes[0]}; use a "
                "transform to bring all to one size and structure"
            )
    return transform(lambda *arrays: np.stack(arrays), *items)


def _channels_last(array: np.ndarray, num_axes: int) -> np.ndarray:
    """Transpose [..., channels, H, W] to [..., H, W, channels]; return arrays with other numbers of axes unchanged."""
    return np.ascontiguousarray(np.moveaxis(array, -3, -1)) if array.ndim == num_axes else array


def read_huggingface(
    data: Any,
    inputs: str | Iterable[str],
    targets: str | Iterable[str],
    client_column: str | None,
    channels_first: bool,
) -> tuple[tuple[Tree, Tree], tuple[Tree, Tree], int | None, Any]:
    """Read data sets of the package `datasets`; arguments as in `Dataset.from_huggingface`.

    Returns:
        (inputs, targets) of both splits, not yet validated; the number of classes if the targets' column states it; and
        the client of each training example, or None.
    """
    if isinstance(data, Mapping):
        data = data.get("train"), data.get("test", data.get("validation"))
    pair = data if isinstance(data, tuple | list) and len(data) == 2 else ()
    if not pair or not all(hasattr(split, "select_columns") and hasattr(split, "__len__") for split in pair):
        raise UserError(
            "data: give a DatasetDict with the splits train and test (or validation), or a pair (train, test) of data "
            "sets of the package `datasets`, loaded without streaming"
        )
    train, test = pair
    inputs, targets = (columns if isinstance(columns, str) else tuple(columns) for columns in (inputs, targets))
    wanted = list(dict.fromkeys([*_names(inputs), *_names(targets)]))
    clients = [client_column] if client_column is not None and client_column not in wanted else []
    parts = [
        _read(part, split, columns, _names(inputs), channels_first)
        for part, split, columns in (("train", train, [*wanted, *clients]), ("test", test, wanted))
    ]
    of_train, of_test = ((_chosen(part, inputs), _chosen(part, targets)) for part in parts)
    client_ids = None if client_column is None else parts[0][client_column]
    states_classes = isinstance(targets, str) and train.format["type"] != "custom"
    num_classes = getattr(train.features[targets], "num_classes", None) if states_classes else None
    if num_classes is not None:
        _check_classes(*(getattr(split.features[targets], "names", None) for split in pair))
    return of_train, of_test, num_classes, client_ids


def _read(part: str, split: Any, columns: list[str], inputs: list[str], channels_first: bool) -> Mapping[str, Any]:
    transformed = split.format["type"] == "custom"  # a transform may rename columns
    try:
        names = list(split[0]) if transformed else split.column_names
        for column in columns:
            if column not in names:
                raise UserError(f"{part}: no column {shown(column)}; {did_you_mean(str(column), map(str, names))}")
        stored = split if transformed else split.select_columns(columns).with_format(None)
        # Pictures are read row by row: NumPy's format returns their stored numbers, such as palette indices.
        by_rows = columns if transformed else [c for c in columns if c in inputs and holds_pictures(stored[0][c])]
        arrays = {}
        if whole := [column for column in columns if column not in by_rows]:
            arrays = dict(stored.select_columns(whole).with_format("numpy")[:])
        if channels_first:
            arrays |= {column: _channels_last(arrays[column], 4) for column in arrays if column in inputs}
        if by_rows:
            items = []
            for position, row in enumerate(stored if transformed else stored.select_columns(by_rows)):
                name = f"{part}: example {position}"
                items.append({c: _arrays(name, row[c], c in inputs, channels_first) for c in by_rows})
            arrays |= _stacked(part, items)
    except UserError:
        raise
    except Exception as problem:  # the package, Pillow and the user's transform may raise anything
        raise UserError(
            f"{part}: columns {', '.join(columns)} cannot be read ({reason(problem)}); fix the data set"
        ) from problem
    return arrays


def _names(columns: str | Iterable[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _chosen(split: Mapping[str, Any], columns: str | Iterable[str]) -> Tree:
    return split[columns] if isinstance(columns, str) else {column: split[column] for column in columns}
