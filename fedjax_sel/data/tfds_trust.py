"""Security checks of a prepared folder, before TFDS opens it.

TFDS imports the module of each class that features.json and dataset_info.json name, and reads records from the path
template in the latter. A malicious folder could thereby run code or read other folders.
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
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")  # both spellings of protobuf, and the legacy format
_JSON_KEYS = ("json", "content")  # strings that TFDS decodes as JSON
_FILE_KEYS = ("names_file",)  # file of label names in the legacy format

_TEMPLATES = ("filepathTemplate", "filepath_template")
_DEFAULT_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
# Only TFDS's own fields without format specifications: {SPLIT:/>9} could produce any path.
_TEMPLATE = re.compile(r"([^{}]|\{(DATASET|SPLIT|FILEFORMAT|SHARD_INDEX|NUM_SHARDS|SHARD_X_OF_Y)\})*")


def check(folder: Path) -> None:
    """Reject a folder whose description names classes other than TFDS's own features, or paths outside the folder.

    Args:
        folder: folder of a version.

    Raises:
        UserError: the folder is not safe to open, or its description cannot be read.
    """
    info = _read(folder / INFO)
    if isinstance(info, dict):  # TFDS reports other types as errors
        _check_classes(folder / INFO, info.get("features"))
        for path in _records(folder / INFO, info):
            if "://" in path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                raise UserError(
                    f"{folder / INFO} places records in {path[:200]!r}, outside of the folder: prepare the data set "
                    "again, and do not use a folder that you do not trust"
                )
    _check_classes(folder / FEATURES, _read(folder / FEATURES))


def _read(path: Path) -> Any:
    """Return the decoded file, or None for a missing file, which TFDS reports itself."""
    try:
        return files.read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise _damaged(path, problem) from problem


def _check_classes(path: Path, table: Any) -> None:
    for key, value in _texts(path, table):
        if key in _CLASS_KEYS and not _OWN_FEATURE.fullmatch(value):
            raise UserError(
                f"{path} names the class {value[:80]!r}, whose code would run: only features of "
                "tensorflow_datasets.core.features can be read; do not use a folder that you do not trust"
            )
        if key in _FILE_KEYS:
            raise UserError(
                f"{path} names the file {value[:80]!r} for its labels, but only files of the folder are read: "
                "prepare the data set again"
            )


def _texts(path: Path, value: Any) -> Iterator[tuple[str, str]]:
    """Yield all keys with string values, at any depth and also inside strings of JSON."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            for key, inner in item.items():
                if isinstance(inner, str):
                    yield key, inner
                    if key in _JSON_KEYS:
                        waiting.append(_decoded(path, inner))
                else:
                    waiting.append(inner)


def _records(path: Path, info: dict[str, Any]) -> Iterator[str]:
    """Yield the record paths of each split, formatted as TFDS does."""
    splits = info.get("splits")
    for split in splits if isinstance(splits, list) else []:
        if isinstance(split, dict):
            templates = [split[key] for key in _TEMPLATES if isinstance(split.get(key), str)]
            for template in filter(None, [*templates, _DEFAULT_TEMPLATE]):
                if not _TEMPLATE.fullmatch(template):
                    raise UserError(
                        f"{path} has the record template {template[:200]!r}, which is not one of TFDS's: prepare the "
                        "data set again"
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
