"""What a run says of its files: plain values in JSON, with a digest of their own, so that a change to them is found."""

import hashlib
import json
from pathlib import Path
from typing import Any

from fedjax_sel.core import files, whole_files

FORMAT = 1
_KINDS = {"rounds": int, "metrics": dict, "cohorts": str, "config": dict, "data": dict, "source": str}

Manifest = dict[str, Any]


class DamagedError(Exception):
    """A manifest, or what it tells of, that cannot be used, and why."""


def write(path: Path, about: Manifest) -> None:
    """Write a manifest, whole or not at all.

    Args:
        path: the file.
        about: plain values.

    Raises:
        OSError: it cannot be written.
    """
    content = {**about, "format": FORMAT}
    text = json.dumps({**content, "digest": _digest(content)}, indent=1) + "\n"
    whole_files.write(path, text.encode(), sync=True)


def read(path: Path) -> Manifest:
    """Read a manifest.

    Args:
        path: the file.

    Returns:
        What it says.

    Raises:
        DamagedError: it is missing, was changed, cannot be read, holds values of other types, or is of another format.
    """
    try:
        content = files.read_json(path)
        if content.pop("digest") != _digest(content):
            raise DamagedError(f"{path.name} was changed")
        if content["format"] != FORMAT:
            raise DamagedError(f"it is of format {content['format']}, and this version reads {FORMAT}")
        for name, kind in _KINDS.items():
            if not isinstance(content.get(name, kind()), kind):
                raise DamagedError(f"its {name} is a {type(content[name]).__name__} and no {kind.__name__}")
        if not isinstance(content.get("metrics", {"bytes": 0})["bytes"], int):
            raise DamagedError("its number of bytes is none")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise DamagedError(f"{path.name} cannot be read ({message})") from error
    return content


def _digest(content: Manifest) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
