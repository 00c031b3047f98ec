"""What a folder of prepared data may not ask of TFDS: to import a module that it names, or to read other folders.

TFDS imports the module of every class that features.json and dataset_info.json name, and a template in the latter says
where the records lie. Both files are looked through before TFDS sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from fedjax_sel.core import files
from fedjax_sel.errors import UserError

INFO, FEATURES = "dataset_info.json", "features.json"

_OWN_FEATURE = re.compile(r"tensorflow_datasets\.core\.features(\.[A-Za-z]\w*)+", re.ASCII)
_NAMES_A_CLASS = ("pythonClassName", "python_class_name", "type")  # as protobuf spells it, as its source does, of old
_HOLDS_JSON = ("json", "content")  # a text that TFDS decodes in turn
_NAMES_A_FILE = ("names_file",)  # of labels, in the old form

_TEMPLATES = ("filepathTemplate", "filepath_template")
_DEFAULT_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
# Nothing but what TFDS fills in: a format such as {SPLIT:/>9} could write whatever it likes.
_TEMPLATE = re.compile(r"([^{}]|\{(DATASET|SPLIT|FILEFORMAT|SHARD_INDEX|NUM_SHARDS|SHARD_X_OF_Y)\})*")


def check(folder: Path) -> None:
    """Refuse a folder whose description names a class that is not one of TFDS's own features, or a place outside.

    Args:
        folder: a version's folder.

    Raises:
        UserError: it does, or its description cannot be read.
    """
    info = _read(folder / INFO)
    if isinstance(info, dict):  # else TFDS says what is wrong
        _check_classes(folder / INFO, info.get("features"))
        for path in _records(folder / INFO, info):
            if "://" in path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                raise UserError(
                    f"{folder / INFO} says that records are in {path[:200]!r}, which is outside of the folder: prepare "
                    "the data set again, and do not use a folder that you do not trust"
                )
    _check_classes(folder / FEATURES, _read(folder / FEATURES))


def _read(path: Path) -> Any:
    """Return the decoded file; None where there is none, which TFDS tells."""
    try:
        return files.read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise _damaged(path, problem) from problem


def _check_classes(path: Path, table: Any) -> None:
    for key, value in _texts(path, table):
        if key in _NAMES_A_CLASS and not _OWN_FEATURE.fullmatch(value):
            raise UserError(
                f"{path} names the class {value[:80]!r}, and to read it would run its code: only features of "
                "tensorflow_datasets.core.features can be read; do not use a folder that you do not trust"
            )
        if key in _NAMES_A_FILE:
            raise UserError(
                f"{path} names the file {value[:80]!r} for its labels, and only files of the folder are read: "
                "prepare the data set again"
            )


def _texts(path: Path, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every key whose value is a text, however deep, also inside of texts that hold JSON."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            for key, inner in item.items():
                if isinstance(inner, str):
                    yield key, inner
                    if key in _HOLDS_JSON:
                        waiting.append(_decoded(path, inner))
                else:
                    waiting.append(inner)


def _records(path: Path, info: dict[str, Any]) -> Iterator[str]:
    """Yield where each split's records are said to be, as TFDS writes it."""
    splits = info.get("splits")
    for split in splits if isinstance(splits, list) else []:
        if isinstance(split, dict):
            templates = [split[key] for key in _TEMPLATES if isinstance(split.get(key), str)]
            for template in filter(None, [*templates, _DEFAULT_TEMPLATE]):
                if not _TEMPLATE.fullmatch(template):
                    raise UserError(
                        f"{path} says where records are by the template {template[:200]!r}, which is none of TFDS's: "
                        "prepare the data set again"
                    )
                yield template.format(
                    DATASET=info.get("name"), SPLIT=split.get("name"), FILEFORMAT="array_record",
                    SHARD_INDEX="0", NUM_SHARDS="1", SHARD_X_OF_Y="0-of-1",
                )  # fmt: skip


def _decoded(path: Path, text: str) -> Any:
    try:
        return files.parse_json(text)
    except ValueError as problem:
        raise _damaged(path, problem) from problem


def _damaged(path: Path, problem: Exception) -> UserError:
    reason = getattr(problem, "strerror", None) or problem
    return UserError(f"{path} is damaged ({reason}): prepare the data set again")
