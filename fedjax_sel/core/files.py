"""Safe reading of untrusted files: regular files only, limited in size, without executing their content.

Unreadable files raise OSError or ValueError with a message fragment. The caller adds the flag and the remedy.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.core import whole_files

MOST_BYTES = 2**30
_NPY = b"\x93NUMPY"


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a whole file.

    Args:
        path: the file; links are followed.
        most_bytes: the maximum size, bytes.

    Returns:
        The file's content.

    Raises:
        OSError: If the file does not exist or cannot be read.
        ValueError: If it is a folder, a pipe or a device, or too large.
    """
    check(path, most_bytes)
    return path.read_bytes()


def check(path: Path, most_bytes: int = MOST_BYTES) -> None:
    """Reject anything but a regular file of limited size, without opening it: opening a pipe can block forever.

    Args:
        path: the file; links are followed.
        most_bytes: the maximum size, bytes.

    Raises:
        OSError: If the file does not exist or its status cannot be read.
        ValueError: If it is a folder, a pipe or a device, or too large.
    """
    try:
        status = path.stat()
    except ValueError as error:  # a NUL in the name
        raise ValueError("it has an invalid file name") from error
    if (wrong := whole_files.not_a_file(status.st_mode)) is not None:
        raise ValueError(wrong)
    if status.st_size > most_bytes:
        raise ValueError(f"it is larger than {most_bytes / 2**20:.4g} MB")


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Read a UTF-8 text file; see `read_bytes`. Other encodings raise ValueError."""
    content = read_bytes(path, most_bytes)
    try:
        if b"\0" in content:
            raise ValueError("it is not a text")
        return content.decode("utf-8-sig")  # spreadsheet programs write a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError("it is not a text in UTF-8") from error


def read_json(path: Path, most_bytes: int = 2**26) -> Any:
    """Read a JSON file; see `read_bytes`. Invalid JSON raises ValueError."""
    return parse_json(read_text(path, most_bytes))


def parse_json(text: str) -> Any:
    """Decode JSON.

    Raises:
        ValueError: If the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_array(path: Path, most_bytes: int = MOST_BYTES, mapped: bool = False) -> np.ndarray:
    """Read an array from a .npy file; reject Python objects and .npz archives.

    Args:
        path: the file; links are followed.
        most_bytes: the maximum size, bytes.
        mapped: whether to memory-map the file, read-only, instead of reading it.

    Returns:
        The array.

    Raises:
        OSError: If the file does not exist or cannot be read.
        ValueError: If it is not a .npy file, or is damaged.
    """
    check(path, most_bytes)
    with path.open("rb") as file:
        if file.read(len(_NPY)) != _NPY:
            raise ValueError("it does not hold an array in NumPy's .npy format")
    try:
        # Map before reading: otherwise NumPy allocates the size that the header claims, even if the file is shorter.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array if mapped else np.array(array)
    except OSError:
        raise
    except Exception as error:  # a malformed header can make the parser raise anything
        raise ValueError("its header is damaged, or it does not hold numbers") from error
