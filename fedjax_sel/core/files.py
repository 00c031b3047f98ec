"""Files: reading, atomic writing, folder locks, pandas tables, and standard streams."""

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from fedjax_sel.core import plugins
from fedjax_sel.core.parsing import reason
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    import filelock
    import numpy as np
    import pandas as pd  # pyright: ignore[reportMissingImports]


# Atomic writes rename a temporary file. A rename would replace a device, a pipe or a symbolic link by a file. Devices
# and pipes are therefore rejected, and for a link its target is written.
def temporary(path: Path, own: str = "") -> Path:
    """Return the temporary name of a path that is being written; the suffix `own` separates concurrent writers."""
    return path.with_name(f".{path.name}{own and f'.{own}'}.tmp")


def write(path: Path, content: bytes, sync: bool = False) -> None:
    """Write a file atomically, as `writing` does."""
    with writing(path, sync) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: Path, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a file, or the target of a symbolic link, that replaces an earlier one at the end of the block.

    Of several concurrent writers, the last one wins. With `sync`, wait until the content is on disk (fsync). Raise
    OSError on failure.
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a pipe or a device", str(path))
    written = temporary(path, secrets.token_hex(4))
    try:
        with written.open("wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path) -> str:
    """Read a UTF-8 text file; ValueError for other encodings."""
    try:
        return path.read_text(encoding="utf-8-sig")  # spreadsheet programs write a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError("it is not a text in UTF-8") from error


def read_json(path: Path) -> Any:
    """Read a JSON file; ValueError for other content."""
    return json.loads(read_text(path))


def read_array(path: Path) -> "np.ndarray":
    """Read an array from a .npy file; ValueError for other and damaged files."""
    import numpy as np  # imported here, because --help must stay fast

    try:
        array = np.load(path, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # a damaged header makes the parser raise many types of errors
        raise ValueError("it is not an intact .npy file of numbers") from error
    if not isinstance(array, np.ndarray):
        raise ValueError("it is a .npz archive and not a .npy file")
    return array


def read_arrays(path: Path) -> "dict[str, np.ndarray]":
    """Read the arrays of a .npz file by name; ValueError for other and damaged files."""
    import numpy as np  # imported here, because --help must stay fast

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except OSError:
        raise
    except Exception as error:  # a damaged archive raises many types of errors
        raise ValueError(f"it is not an intact .npz archive of numbers ({reason(error)})") from error


def write_arrays(path: Path, arrays: "Mapping[str, np.ndarray]") -> None:
    """Write arrays by name to a .npz file atomically, and wait until they are on disk."""
    import numpy as np  # imported here, because --help must stay fast

    with writing(path, sync=True) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def pandas() -> Any:
    """Import pandas, or raise UserError if it is not installed."""
    return plugins.optional("pandas", "to_pandas", "pip install pandas")


def as_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def parse_csv(text: str) -> "pd.DataFrame":
    """Parse CSV with a header into a DataFrame; "N/A" and empty cells are missing values."""
    return pandas().read_csv(io.StringIO(text))


LOCK = ".lock"  # name of the lock file in a locked folder


class FolderLock(contextlib.AbstractContextManager):
    """Exclusive locks of this process on folders; the system releases them when the process ends, even by a kill.

    Messages name a folder by the flag or argument `given_as`.
    """

    def __init__(self, given_as: str = "--out") -> None:
        self._given_as = given_as
        self._locks: dict[Path, tuple[filelock.BaseFileLock, os.stat_result]] = {}

    def take(self, folder: Path, wait: bool = False) -> None:
        """Lock an existing folder, or raise UserError; `wait` waits while another process holds the lock."""
        import filelock  # imported here, because --help must stay fast

        lock = filelock.FileLock(folder / LOCK, thread_local=False)
        try:
            folder.stat()  # filelock would create a missing folder
            lock.acquire(timeout=-1 if wait else 0)
            self._locks[folder] = lock, (folder / LOCK).stat()
        except filelock.Timeout as error:
            raise UserError(
                f"{self._given_as}: another process is writing to {folder}; wait for it, or give another folder"
            ) from error
        except OSError as error:
            raise UserError(f"{self._given_as}: cannot use {folder} ({error.strerror}); give another folder") from error

    def check(self, folder: Path) -> None:
        """Raise UserError if the path of a locked folder now names another folder, or none."""
        if folder in self._locks and not self._is_same(folder):
            raise UserError(
                f"{self._given_as}: {folder} was removed, moved or replaced by another process, so this run stops "
                "writing; start it again, or give another folder"
            )

    def release(self, folder: Path) -> None:
        """Release the lock of a folder, and remove its file first, so that no other process locks a removed file."""
        if self._is_same(folder):
            with contextlib.suppress(OSError):
                (folder / LOCK).unlink()
        self._locks.pop(folder)[0].release()

    def _is_same(self, folder: Path) -> bool:
        try:  # the lock keeps its file open, so that no other file gets its inode number
            return os.path.samestat(self._locks[folder][1], (folder / LOCK).stat())
        except OSError:
            return False

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for folder in [*self._locks]:
            self.release(folder)


class Unbroken:
    """A text stream that drops all text once its reader is gone: `head`, `tee` after Ctrl-C, or a closed terminal.

    Errors with the numbers `dropped` count as such.
    """

    def __init__(self, stream: Any, *dropped: int):
        # A process that was started without this stream has None.
        self._stream = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115
        self._gone = (errno.EPIPE, *dropped, *([errno.EIO] if getattr(self._stream, "isatty", bool)() else []))

    def write(self, text: str) -> int:
        """Write text, or drop it if the reader is gone."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, or drop it if the reader is gone."""
        with self._dropping():
            self._stream.flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in self._gone:
                raise
            # Redirect the descriptor, so that the interpreter's final flush and other libraries' writes do not fail.
            with contextlib.suppress(OSError, io.UnsupportedOperation):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
