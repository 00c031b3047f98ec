"""Search for data sets that tensorflow-datasets (TFDS) has prepared, without importing TFDS."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from fedjax_sel.core import files
from fedjax_sel.errors import UserError

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_INFO = "dataset_info.json"
_RECORD_FILE = re.compile(r"\.(array_record|tfrecord|riegeli|parquet)\b")
_SAMPLE_BYTES = 64 * 1024
_NUM_SAMPLES = 16


def find(data_dir: Path, name: str) -> Path | None:
    """Return the newest prepared version of a data set.

    Args:
        data_dir: folder in TFDS layout, ``<data_dir>/<name>[/<config>]/<version>/dataset_info.json``.
        name: ``name`` or ``name/config``.

    Returns:
        The version's folder, or None if the data set is missing.

    Raises:
        UserError: the data set was not fully prepared, or has several configurations.
    """
    base = data_dir / name
    if not os.path.isdir(base):  # False also if a parent folder is not accessible
        return None
    versions = _versions(base)
    if not versions and "/" not in name:
        configs = sorted(entry.name for entry in base.iterdir() if entry.is_dir() and _versions(entry))
        if len(configs) > 1:
            choices = ", ".join(f"{name}/{config}" for config in configs)
            raise UserError(f"data set {name!r} in {data_dir} has several configurations: name one of {choices}")
        if configs:
            versions = _versions(base / configs[0])
    if not versions:
        if any("incomplete" in entry.name for entry in base.rglob("*")):
            raise UserError(f"{base} was not fully prepared: delete it and prepare {name!r} again")
        return None
    complete = [version for version in versions if (version / _INFO).is_file()]
    if not complete:
        raise UserError(
            f"{versions[-1]} has no {_INFO}, so {name!r} was not fully prepared: delete it and prepare again"
        )
    return complete[-1]


def info(folder: Path) -> dict[str, Any]:
    """Return the contents of dataset_info.json.

    Args:
        folder: folder of a version.

    Returns:
        The decoded JSON.

    Raises:
        UserError: the file is damaged.
    """
    try:
        content = files.read_json(folder / _INFO)
    except (OSError, ValueError) as problem:
        raise UserError(f"{folder / _INFO} is damaged ({problem}): prepare the data set again") from problem
    if not isinstance(content, dict):
        raise UserError(f"{folder / _INFO} is damaged (not a JSON object): prepare the data set again")
    return content


def check_readable(folder: Path) -> None:
    """Reject record formats that require TensorFlow.

    Args:
        folder: folder of a version.

    Raises:
        UserError: the record files are not array_record.
    """
    file_format = info(folder).get("fileFormat", "tfrecord")
    if file_format != "array_record":
        raise UserError(
            f"{folder} holds {file_format} files, which need TensorFlow to read: prepare the data set again with "
            "tfds.builder(..., file_format='array_record') or --file_format=array_record"
        )


def fingerprint(folder: Path) -> str:
    """Return a fingerprint of a prepared folder without reading the record files in full.

    Record files may be large and lie on a slow network drive, so only their names, sizes and evenly spaced samples are
    hashed. Sizes alone would not suffice, because they are multiples of 64 KiB.

    Args:
        folder: folder of a version.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    for path in files:
        with path.open("rb") as file:
            if path.suffix == ".json":
                digest.update(f"{path.name}\n".encode() + hashlib.sha256(file.read()).digest())
            elif _RECORD_FILE.search(path.name):
                size = path.stat().st_size
                digest.update(f"{path.name}\n{size}\n".encode())
                spare = max(0, size - _NUM_SAMPLES * _SAMPLE_BYTES)
                for sample in range(_NUM_SAMPLES):
                    file.seek(sample * _SAMPLE_BYTES + spare * sample // (_NUM_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def listing(data_dir: Path) -> list[str]:
    """Return the sorted names (``name`` or ``name/config``) of the prepared data sets in a folder.

    Args:
        data_dir: folder in TFDS layout.
    """
    try:
        found = {path.parent.parent.relative_to(data_dir).as_posix() for path in data_dir.glob(f"*/*/{_INFO}")}
        found |= {path.parent.parent.relative_to(data_dir).as_posix() for path in data_dir.glob(f"*/*/*/{_INFO}")}
    except OSError:
        return []
    return sorted(found)


def _versions(base: Path) -> list[Path]:
    found = [entry for entry in base.iterdir() if entry.is_dir() and _VERSION.fullmatch(entry.name)]
    return sorted(found, key=lambda entry: tuple(int(part) for part in entry.name.split(".")))
