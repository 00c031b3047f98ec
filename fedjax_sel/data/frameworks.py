"""Data sets of PyTorch and Hugging Face."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core.parsing import did_you_mean, shown
from fedjax_sel.data import examples
from fedjax_sel.data.examples import Tree, as_array, holds_pictures, is_picture, reason
from fedjax_sel.errors import UserError


def read_pytorch(part: str, dataset: Any, channels_first: bool) -> tuple[Tree, Tree]:
    """Read all inputs and targets of a map-style data set or a `TensorDataset`, not yet validated."""
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
    """Check that two data sets, or `Subset`s of them, number their classes alike; two image folders may not."""
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
        items.append((torch_arrays(name, item[0], True, channels_first), torch_arrays(name, item[1], False)))
    if not items:
        raise UserError(f"{part}: the data set is empty; give at least one example")
    return items


def torch_arrays(name: str, tree: Tree, is_input: bool, channels_first: bool = False) -> Tree:
    """Convert one example to a tree of arrays; lists of tensors or pictures become tuples.

    `channels_first` transposes [channels, H, W] inputs to [H, W, channels], except pictures.
    """
    if isinstance(tree, dict):
        return {key: torch_arrays(name, child, is_input, channels_first) for key, child in tree.items()}
    if isinstance(tree, tuple) or (
        isinstance(tree, list) and any(hasattr(child, "shape") or is_picture(child) for child in tree)
    ):
        return tuple(torch_arrays(name, child, is_input, channels_first) for child in tree)
    array = as_array(name, tree, is_input)
    return channels_last(array, 3) if is_input and channels_first and not is_picture(tree) else array


def stacked(part: str, items: list[Any]) -> Any:
    """Stack at least one example, trees of equal structure and shapes."""
    first = items[0]
    shapes = [array.shape for _, array in examples.leaves(first)]
    for position, item in enumerate(items):
        if (found := [array.shape for _, array in examples.leaves(item)]) != shapes:
            raise UserError(
                f"{part}: example {position} has arrays of shape {', '.join(map(str, found))}, but example 0 has "
                f"{', '.join(map(str, shapes))}; use a transform to bring all to one size"
            )
    try:
        return examples.transform(lambda *arrays: np.stack(arrays), first, *items[1:])
    except (KeyError, TypeError, IndexError, ValueError) as problem:
        raise UserError(f"{part}: examples differ in structure ({problem}); give all the same structure") from problem


def channels_last(array: np.ndarray, num_axes: int) -> np.ndarray:
    """Transpose [..., channels, H, W] to [..., H, W, channels]; return arrays with other numbers of axes unchanged."""
    return np.ascontiguousarray(np.moveaxis(array, -3, -1)) if array.ndim == num_axes else array


_TEST_SPLITS = ("test", "validation")


class Columns(NamedTuple):
    """Inputs, targets and client IDs of a data set, not yet validated."""

    train: tuple[Tree, Tree]  # inputs, targets
    test: tuple[Tree, Tree]
    client_ids: Any  # one per training example, or None
    num_classes: int | None  # classes of a ClassLabel column


def read_huggingface(
    data: Any,
    inputs: str | Iterable[str],
    targets: str | Iterable[str],
    client_column: str | None,
    channels_first: bool = False,
) -> Columns:
    """Read columns of two splits as arrays, through the user's transform if there is one.

    Args:
        data: a mapping from splits to data sets, or a pair of data sets.
        inputs: name of a column, or names of several, which form a dict.
        targets: name of a column, or names of several.
        client_column: name of the column with the client of each training example, or None.
        channels_first: True to transpose [channels, H, W] inputs other than pictures to [H, W, channels].
    """
    train, test = _splits(data)
    inputs, targets = (columns if isinstance(columns, str) else tuple(columns) for columns in (inputs, targets))
    wanted = list(dict.fromkeys([*_names(inputs), *_names(targets)]))
    for column in wanted:
        _check_classes(column, train.features.get(column), test.features.get(column))
    clients = [client_column] if client_column is not None and client_column not in wanted else []
    parts = [
        _read(part, split, columns, _names(inputs), channels_first)
        for part, split, columns in (("train", train, [*wanted, *clients]), ("test", test, wanted))
    ]
    of_train, of_test = ((_chosen(part, inputs), _chosen(part, targets)) for part in parts)
    client_ids = None if client_column is None else parts[0][client_column]
    has_feature = isinstance(targets, str) and not _is_transformed(train)
    return Columns(
        of_train, of_test, client_ids, getattr(train.features[targets], "num_classes", None) if has_feature else None
    )


def _read(part: str, split: Any, columns: list[str], inputs: list[str], channels_first: bool) -> Mapping[str, Any]:
    transformed = _is_transformed(split)
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
            arrays |= {column: channels_last(arrays[column], 4) for column in arrays if column in inputs}
        if by_rows:
            items = []
            for position, row in enumerate(stored if transformed else stored.select_columns(by_rows)):
                name = f"{part}: example {position}"
                items.append({c: torch_arrays(name, row[c], c in inputs, channels_first) for c in by_rows})
            arrays |= stacked(part, items)
    except UserError:
        raise
    except Exception as problem:  # the package, Pillow and the user's transform may raise anything
        raise UserError(
            f"{part}: columns {', '.join(columns)} cannot be read ({reason(problem)}); fix the data set"
        ) from problem
    return arrays


def _is_transformed(split: Any) -> bool:
    return split.format["type"] == "custom"


def _check_classes(column: str, train: Any, test: Any) -> None:
    """Check that both splits number the classes alike; features are `ClassLabel`s, or sequences of them."""
    while hasattr(train, "feature") and hasattr(test, "feature"):
        train, test = train.feature, test.feature
    one, other = (getattr(feature, "names", None) for feature in (train, test))
    if one is not None and other is not None and list(one) != list(other):
        raise UserError(
            f"test: the classes of column {column} are {shown(', '.join(map(str, other)))}, but in train "
            f"{shown(', '.join(map(str, one)))}; number them alike with align_labels_with_mapping"
        )


def _splits(data: Any) -> tuple[Any, Any]:
    if isinstance(data, Mapping):
        test = next((split for split in _TEST_SPLITS if split in data), None)
        if "train" not in data or test is None:
            raise UserError(
                f"data: splits {', '.join(map(str, data)) or 'none'}, but 'train' and 'test' (or 'validation') are "
                "required; give a pair of data sets (train, test)"
            )
        pair = (data["train"], data[test])
    elif isinstance(data, tuple | list) and len(data) == 2:
        pair = tuple(data)
    else:
        raise UserError(
            f"data: a {type(data).__name__} is neither a DatasetDict nor a pair of data sets; split it, for instance "
            "with train_test_split, and give both parts"
        )
    for part, split in zip(("train", "test"), pair):
        if not all(hasattr(split, method) for method in ("column_names", "features", "select_columns", "with_format")):
            raise UserError(
                f"data: a {type(split).__name__} is not a Dataset of the package `datasets`; give two such data sets"
            )
        if not hasattr(split, "__len__"):
            raise UserError(f"data: a {type(split).__name__} is a stream; load it without streaming")
        if not len(split):
            raise UserError(f"{part}: the data set is empty; give at least one example")
    return pair


def _names(columns: str | Iterable[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _chosen(split: Mapping[str, Any], columns: str | Iterable[str]) -> Tree:
    return split[columns] if isinstance(columns, str) else {column: split[column] for column in columns}
