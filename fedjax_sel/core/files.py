"""Files: reading with a size limit, atomic writing, folder locks, pandas tables, and standard streams."""

import contextlib
import errno
import glob
import hashlib
import io
import json
import os
import secrets
import stat
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

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


def unfinished(folder: Path) -> Iterator[Path]:
    """Yield the temporary files in a folder, left by a killed process or still being written."""
    yield from (path for path in folder.glob(".*.tmp") if path.is_file())


def not_a_file(mode: int) -> str | None:
    """Return a message fragment if `mode`, a path's `st_mode`, is not that of a regular file; None otherwise."""
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"it is {kinds.get(stat.S_IFMT(mode), 'something else')} and not a file"


def write(path: Path, content: bytes, sync: bool = False) -> None:
    """Write a file atomically, the target of a symbolic link; of several concurrent writers, the last one wins.

    With `sync`, wait until the content is on disk (fsync). Raise OSError on failure.
    """
    path = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if (wrong := not_a_file(path.stat().st_mode)) is not None:
            raise OSError(errno.EINVAL, wrong, str(path))
    _remove_abandoned(path)
    written = temporary(path, secrets.token_hex(4))
    try:
        with written.open("wb") as file:
            _lock(file)
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of `path` whose writers were killed, so that they hold no lock any more."""
    for other in path.parent.glob(f".{glob.escape(path.name)}.{8 * '[0-9a-f]'}.tmp"):
        with contextlib.suppress(OSError), other.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime > SECONDS_TO_LOCK and _lock(file):
                other.unlink()


SECONDS_TO_LOCK = 2.0  # a younger file's writer may not have locked it yet


def _lock(file: BinaryIO) -> bool:
    """Lock an open file until it is closed; return False if it is locked, or the system cannot lock it."""
    try:
        import fcntl  # not on Windows

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


MOST_BYTES = 2**30


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a whole file; see `check`."""
    check(path, most_bytes)
    return path.read_bytes()


def check(path: Path, most_bytes: int = MOST_BYTES) -> None:
    """Reject anything but a regular file of limited size, without opening it: opening a pipe can block forever.

    Raise OSError if its status cannot be read, ValueError if it is no regular file, or too large.
    """
    status = path.stat()
    if (wrong := not_a_file(status.st_mode)) is not None:
        raise ValueError(wrong)
    if status.st_size > most_bytes:
        raise ValueError(f"it is larger than {most_bytes / 2**20:.4g} MB")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    """Decode JSON; raise ValueError if the text is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_array(path: Path, most_bytes: int = MOST_BYTES, mapped: bool = False) -> "np.ndarray":
    """Read an array from a .npy file, or memory-map it read-only; reject Python objects and .npz archives."""
    check(path, most_bytes)
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
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


def read_arrays(path: Path, most_bytes: int = MOST_BYTES) -> "dict[str, np.ndarray]":
    """Read the arrays of a .npz file by name; reject other and damaged files, and more than `most_bytes` unpacked."""
    content = read_bytes(path, most_bytes)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked <= most_bytes:
            import numpy as np  # imported here, because --help must stay fast

            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
    except Exception as error:  # a damaged archive raises many types of errors
        raise ValueError(f"it is not an intact .npz archive of numbers ({reason(error)})") from error
    raise ValueError(f"its arrays have more than {most_bytes / 2**20:.4g} MB")


def pandas() -> Any:
    """Import pandas, or raise UserError if it is not installed."""
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("to_pandas: the package pandas is missing; pip install pandas") from error
    return pandas


def of_csv(text: str) -> "pd.DataFrame":
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
            with contextlib.suppress(OSError):  # Windows removes it afterwards
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
