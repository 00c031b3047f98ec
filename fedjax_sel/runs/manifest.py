"""Manifests: JSON descriptions of a run's files, with a digest of their own that reveals changes."""

import hashlib
import json
from pathlib import Path
from typing import Any

from fedjax_sel.core import files, whole_files

FORMAT = 1
_KINDS = {"rounds": int, "metrics": dict, "cohorts": str, "config": dict, "data": dict, "source": str}

Manifest = dict[str, Any]


class DamagedError(Exception):
    """An error in a manifest or in the files that it describes."""


def write(path: Path, about: Manifest) -> None:
    """Write a manifest atomically.

    Args:
        path: the file.
        about: the entries, plain values.

    Raises:
        OSError: the file cannot be written.
    """
    content = {**about, "format": FORMAT}
    text = json.dumps({**content, "digest": _digest(content)}, indent=1) + "\n"
    whole_files.write(path, text.encode(), sync=True)


def read(path: Path) -> Manifest:
    """Read a manifest.

    Args:
        path: the file.

    Returns:
        The entries.

    Raises:
        DamagedError: the file is missing, changed or unreadable, or has another format or values of wrong types.
    """
    try:
        content = files.read_json(path)
        if content.pop("digest") != _digest(content):
            raise DamagedError(f"{path.name} was changed")
        if content["format"] != FORMAT:
            raise DamagedError(f"its format is {content['format']}, but this version reads format {FORMAT}")
        for name, kind in _KINDS.items():
            if not isinstance(content.get(name, kind()), kind):
                raise DamagedError(f"its {name} is of type {type(content[name]).__name__}, not {kind.__name__}")
        if not isinstance(content.get("metrics", {"bytes": 0})["bytes"], int):
            raise DamagedError("its number of bytes is not an integer")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise DamagedError(f"{path.name} cannot be read ({message})") from error
    return content


def _digest(content: Manifest) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
