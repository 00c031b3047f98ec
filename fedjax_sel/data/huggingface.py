"""Hugging Face's `datasets` by their interface, without importing them: splits, columns, `with_format("numpy")`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedjax_sel.core.names import did_you_mean, shown
from fedjax_sel.data.examples import reason
from fedjax_sel.data.trees import Tree
from fedjax_sel.errors import UserError

_TEST_SPLITS = ("test", "validation")


class Found(NamedTuple):
    """What was read of a data set."""

    train: tuple[Tree, Tree]  # inputs, targets
    test: tuple[Tree, Tree]
    client_ids: Any  # one a training example, or None
    num_classes: int | None  # of a ClassLabel column


def read(data: Any, inputs: str | Iterable[str], targets: str | Iterable[str], client_column: str | None) -> Found:
    """Read columns of two splits as arrays.

    Args:
        data: a mapping from splits to data sets, or a pair of data sets.
        inputs: column, or columns, which then are a dict.
        targets: column, or columns.
        client_column: whose each training example is, or None.

    Returns:
        Arrays as the package gives them, not yet checked.

    Raises:
        UserError: no such split or column, or something else than such data sets.
    """
    train, test = _splits(data)
    inputs, targets = (columns if isinstance(columns, str) else tuple(columns) for columns in (inputs, targets))
    parts = []
    for part, split in (("train", train), ("test", test)):
        wanted = [*_names(inputs), *_names(targets)]
        wanted += [client_column] if client_column is not None and part == "train" else []
        for column in wanted:
            if column not in split.column_names:
                raise UserError(
                    f"{part}: no column {shown(column)}; {did_you_mean(str(column), map(str, split.column_names))}"
                )
        parts.append(_read(part, split, list(dict.fromkeys(wanted))))
    of_train, of_test = parts
    return Found(
        (_chosen(of_train, inputs), _chosen(of_train, targets)),
        (_chosen(of_test, inputs), _chosen(of_test, targets)),
        None if client_column is None else of_train[client_column],
        getattr(train.features[targets], "num_classes", None) if isinstance(targets, str) else None,
    )


def _read(part: str, split: Any, columns: list[str]) -> Mapping[str, Any]:
    try:
        return split.select_columns(columns).with_format("numpy")[:]
    except Exception as problem:  # a picture that cannot be decoded, whatever the package raises
        raise UserError(
            f"{part}: columns {', '.join(columns)} cannot be read ({reason(problem)}); mend the data set"
        ) from problem


def _splits(data: Any) -> tuple[Any, Any]:
    if isinstance(data, Mapping):
        test = next((split for split in _TEST_SPLITS if split in data), None)
        if "train" not in data or test is None:
            raise UserError(
                f"data: splits {', '.join(map(str, data)) or 'none'}, but 'train' and 'test' (or 'validation') are "
                "needed; give a pair of data sets (train, test)"
            )
        pair = (data["train"], data[test])
    elif isinstance(data, tuple | list) and len(data) == 2:
        pair = tuple(data)
    else:
        raise UserError(
            f"data: a {type(data).__name__} is neither a DatasetDict nor a pair of data sets; split it, for instance "
            "by train_test_split, and give both"
        )
    for split in pair:
        if not all(hasattr(split, method) for method in ("column_names", "features", "select_columns", "with_format")):
            raise UserError(
                f"data: a {type(split).__name__} is no Dataset of the package `datasets`; give two of those"
            )
        if not hasattr(split, "__len__"):
            raise UserError(f"data: a {type(split).__name__} is read as a stream; load it without streaming")
    return pair


def _names(columns: str | Iterable[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _chosen(split: Mapping[str, Any], columns: str | Iterable[str]) -> Tree:
    return split[columns] if isinstance(columns, str) else {column: split[column] for column in columns}
