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
    names = []
    for dataset in (train, test):
        # `Subset`s and concatenations have the classes of the data sets inside.
        while not hasattr(dataset, "classes") and (hasattr(dataset, "dataset") or hasattr(dataset, "datasets")):
            dataset = dataset.dataset if hasattr(dataset, "dataset") else dataset.datasets[0]
        names.append(getattr(dataset, "classes", None))
    _check_alike("the classes", names, "number the classes of both alike")
    return {part: _read_torch(part, split, channels_first) for part, split in (("train", train), ("test", test))}


def _read_torch(part: str, dataset: Any, channels_first: bool) -> tuple[Tree, Tree]:
    """Read all inputs and targets of a map-style data set or a `TensorDataset`, not yet validated."""
    tensors = getattr(dataset, "tensors", None)
    getter = getattr(type(dataset), "__getitem__", None)
    # A subclass may override `__getitem__`, so its tensors are not its examples.
    if isinstance(tensors, tuple) and getattr(getter, "__qualname__", "") == "TensorDataset.__getitem__":
        if len(tensors) != 2:
            raise UserError(f"{part}: {len(tensors)} tensors are not a pair; give a TensorDataset(inputs, targets)")
        inputs, targets = (as_array(part, tensor, False) for tensor in tensors)
        return (_channels_last(inputs, 4) if channels_first else inputs), targets
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
            raise UserError(f"{part}: example {position} cannot be read ({reason(problem)}); fix the data") from problem
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UserError(f"{part}: example {position} is a {type(item).__name__}, not a pair; give (input, target)")
        name = f"{part}: example {position}"
        items.append((_arrays(name, item[0], True, channels_first), _arrays(name, item[1], False)))
    if not items:
        raise UserError(f"{part}: the data set is empty; give at least one example")
    return _stacked(part, items)


def check_columns(train: tuple[Any, Any], test: tuple[Any, Any]) -> None:
    """Check that pandas' tables in (inputs, targets) of both parts have their columns in one order."""
    for what, pair in zip(("inputs", "targets"), zip(train, test)):
        one, other = ({path: list(x.columns) for path, x in leaves(tree) if hasattr(x, "columns")} for tree in pair)
        for path in one.keys() & other.keys():
            _check_alike(f"the columns of {what}{path}", [one[path], other[path]], "pass both in one order")


def _check_alike(what: str, names: list[Any], advice: str) -> None:
    train, test = names
    if isinstance(train, list | tuple) and isinstance(test, list | tuple) and list(train) != list(test):
        one, other = (shown(", ".join(map(str, own))) for own in names)
        raise UserError(f"test: {what} are {other}, but in train {one}; {advice}")


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


def _stacked(part: str, items: list[Any]) -> Any:
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
    train, test = _splits(data)
    inputs, targets = (columns if isinstance(columns, str) else tuple(columns) for columns in (inputs, targets))
    wanted = list(dict.fromkeys([*_names(inputs), *_names(targets)]))
    is_transformed = train.format["type"] == "custom"
    for column in train.features if is_transformed else wanted:  # a transform may rename columns
        _check_classes(column, train.features.get(column), test.features.get(column))
    clients = [client_column] if client_column is not None and client_column not in wanted else []
    parts = [
        _read(part, split, columns, _names(inputs), channels_first)
        for part, split, columns in (("train", train, [*wanted, *clients]), ("test", test, wanted))
    ]
    of_train, of_test = ((_chosen(part, inputs), _chosen(part, targets)) for part in parts)
    client_ids = None if client_column is None else parts[0][client_column]
    states_classes = isinstance(targets, str) and not is_transformed
    num_classes = getattr(train.features[targets], "num_classes", None) if states_classes else None
    return of_train, of_test, num_classes, client_ids


def _read(part: str, split: Any, columns: list[str], inputs: list[str], channels_first: bool) -> Mapping[str, Any]:
    transformed = split.format["type"] == "custom"
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


def _check_classes(column: str, train: Any, test: Any) -> None:
    """Check that both splits number the classes alike; features are `ClassLabel`s, or sequences of them."""
    while hasattr(train, "feature") and hasattr(test, "feature"):
        train, test = train.feature, test.feature
    names = [getattr(feature, "names", None) for feature in (train, test)]
    _check_alike(f"the classes of column {column}", names, "number them alike with align_labels_with_mapping")


def _splits(data: Any) -> tuple[Any, Any]:
    if isinstance(data, Mapping):
        test = "test" if "test" in data else "validation"
        if "train" not in data or test not in data:
            raise UserError(
                f"data: splits {', '.join(map(str, data)) or 'none'}, but 'train' and 'test' (or 'validation') are "
                "required; give a pair of data sets (train, test)"
            )
        pair = (data["train"], data[test])
    else:
        pair = data
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise UserError(
            f"data: a {type(data).__name__} is neither a DatasetDict nor a pair of data sets; split it, for instance "
            "with train_test_split, and give both parts"
        )
    for split in pair:
        if not (hasattr(split, "select_columns") and hasattr(split, "__len__")):
            kind = type(split).__name__
            raise UserError(f"data: a {kind} is not a Dataset of the package `datasets`, loaded without streaming")
    return pair[0], pair[1]


def _names(columns: str | Iterable[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _chosen(split: Mapping[str, Any], columns: str | Iterable[str]) -> Tree:
    return split[columns] if isinstance(columns, str) else {column: split[column] for column in columns}
