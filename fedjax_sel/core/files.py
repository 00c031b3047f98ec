"""Reading with a size limit, atomic writing, and pandas tables."""

import contextlib
import errno
import io
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd  # pyright: ignore[reportMissingImports]


# Atomic file writes: a temporary file is written, then renamed.
#
# A rename would replace a device, a pipe or a symbolic link by a file. Devices and pipes are therefore rejected, and
# for a link its target is written.


def temporary(path: Path, own: str = "") -> Path:
    """Return the temporary name of a file or folder that is being written.

    Args:
        path: the final path.
        own: a suffix that separates concurrent writers.
    """
    return path.with_name(f".{path.name}{own and f'.{own}'}.tmp")


def unfinished(folder: Path) -> Iterator[Path]:
    """Yield the temporary files in a folder, left by a killed process or still being written."""
    yield from (path for path in folder.glob(".*.tmp") if path.is_file())


def not_a_file(mode: int) -> str | None:
    """Return a message fragment if a mode is not that of a regular file; None otherwise.

    Args:
        mode: the path's `st_mode`.
    """
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"it is {kinds.get(stat.S_IFMT(mode), 'something else')} and not a file"


def write(path: Path, content: bytes, sync: bool = False) -> None:
    """Write a file atomically; of several concurrent writers, the last one wins.

    Args:
        path: the file; a symbolic link is followed and kept.
        content: the file's content.
        sync: whether to wait until the content is on disk (fsync).

    Raises:
        OSError: If the file cannot be written, or is a folder, a pipe or a device.
    """
    path = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if (wrong := not_a_file(path.stat().st_mode)) is not None:
            raise OSError(errno.EINVAL, wrong, str(path))
    written = temporary(path, secrets.token_hex(4))
    try:
        with written.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


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
    if (wrong := not_a_file(status.st_mode)) is not None:
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


def read_array(path: Path, most_bytes: int = MOST_BYTES, mapped: bool = False) -> "np.ndarray":
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
        import numpy as np  # imported here, because --help must stay fast

        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array if mapped else np.array(array)
    except OSError:
        raise
    except Exception as error:  # a malformed header can make the parser raise anything
        raise ValueError("its header is damaged, or it does not hold numbers") from error


def pandas() -> Any:
    """Import pandas.

    Raises:
        UserError: If pandas is not installed.
    """
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("to_pandas: the package pandas is missing; pip install pandas") from error
    return pandas


def of_csv(text: str) -> "pd.DataFrame":
    """Parse CSV with a header into a DataFrame; "N/A" and empty cells are missing values.

    Raises:
        UserError: If pandas is not installed.
    """
    return pandas().read_csv(io.StringIO(text))
