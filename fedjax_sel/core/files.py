"""Read files that others may have made: regular ones alone, of a bearable size, and nothing in them is executed.

What cannot be read raises OSError or ValueError with half a sentence; who asked knows the flag and the way out.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.core import whole_files

MOST_BYTES = 2**30
_NPY = b"\x93NUMPY"


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a file whole.

    Args:
        path: the file; links are followed.
        most_bytes: that it may have.

    Returns:
        Its content.

    Raises:
        OSError: it is not there, or the system does not give it.
        ValueError: it is a folder, a pipe or a device, or too large.
    """
    check(path, most_bytes)
    return path.read_bytes()


def check(path: Path, most_bytes: int = MOST_BYTES) -> None:
    """Refuse what is no file, or is too large, without opening it: to open a pipe may take for ever.

    Args:
        path: the file; links are followed.
        most_bytes: that it may have.

    Raises:
        OSError: it is not there, or the system does not say.
        ValueError: it is a folder, a pipe or a device, or too large.
    """
    try:
        status = path.stat()
    except ValueError as error:  # a NUL in the name
        raise ValueError("its name cannot be that of a file") from error
    if (wrong := whole_files.not_a_file(status.st_mode)) is not None:
        raise ValueError(wrong)
    if status.st_size > most_bytes:
        raise ValueError(f"it is larger than {most_bytes / 2**20:.4g} MB")


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Read a text; arguments and what is raised as for `read_bytes`, and ValueError where it is not UTF-8."""
    content = read_bytes(path, most_bytes)
    try:
        if b"\0" in content:
            raise ValueError("it is not a text")
        return content.decode("utf-8-sig")  # spreadsheets begin with a mark
    except UnicodeDecodeError as error:
        raise ValueError("it is not a text in UTF-8") from error


def read_json(path: Path, most_bytes: int = 2**26) -> Any:
    """Read JSON; arguments and what is raised as for `read_bytes`, and ValueError where it is none."""
    return parse_json(read_text(path, most_bytes))


def parse_json(text: str) -> Any:
    """Decode JSON.

    Raises:
        ValueError: it is none, or too deeply nested to be anybody's.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_array(path: Path, most_bytes: int = MOST_BYTES, mapped: bool = False) -> np.ndarray:
    """Read an array as NumPy stores it in a .npy file; never Python objects, never an archive of arrays.

    Args:
        path: the file; links are followed.
        most_bytes: that it may have.
        mapped: whether it stays on the disk and is mapped, read-only.

    Returns:
        The array.

    Raises:
        OSError: it is not there, or the system does not give it.
        ValueError: it is something else, or damaged.
    """
    check(path, most_bytes)
    with path.open("rb") as file:
        if file.read(len(_NPY)) != _NPY:
            raise ValueError("it does not hold an array in NumPy's .npy form")
    try:
        # Mapped before it is read: a header that promises more than the file has would ask for memory first.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array if mapped else np.array(array)
    except OSError:
        raise
    except Exception as error:  # whatever a header that somebody has written makes a parser raise
        raise ValueError("its header is damaged, or it holds something else than numbers") from error
