"""One process at a time writes to a folder, and only as long as the folder is the one that it began in."""

import contextlib
import os
from pathlib import Path
from types import TracebackType

from fedjax_sel.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has no such lock, and opens no folders
    fcntl = None


class FolderLock(contextlib.AbstractContextManager):
    """Holds folders for this process. The system lets go of them when the process ends, however it ends.

    Args:
        given_as: what the user names the folder by, for messages.
    """

    def __init__(self, given_as: str = "--out") -> None:
        self._given_as = given_as
        self._handles: list[int] = []
        self._newest: dict[Path, int] = {}  # by the path under which a folder was taken last

    def take(self, folder: Path, wait: bool = False) -> None:
        """Take a folder that exists.

        Args:
            folder: its path.
            wait: for another process that holds it for a moment.

        Raises:
            UserError: another process holds it, or it cannot be opened.
        """
        if fcntl is None:
            return
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise UserError(f"{self._given_as}: cannot use {folder} ({error.strerror}); give another folder") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            os.close(handle)
            raise UserError(
                f"{self._given_as}: another process is writing to {folder}; wait for it, or give another folder"
            ) from error
        except OSError:  # a file system without locks; which folder it is can be told all the same
            pass
        self._handles.append(handle)
        self._newest[folder] = handle
        self.check(folder)

    def check(self, folder: Path) -> None:
        """Refuse to write to a folder that is not the one that was taken: the lock is on that one.

        Args:
            folder: the path under which it was taken.

        Raises:
            UserError: it was removed, moved, or made again.
        """
        if folder not in self._newest:
            return
        held = os.fstat(self._newest[folder])  # held open, so that no other folder can get its number
        try:
            same = os.path.samestat(held, folder.stat())
        except OSError:
            same = False
        if not same:
            raise UserError(
                f"{self._given_as}: {folder} was removed, moved or replaced by another process, and this run writes "
                "nothing more; start it again, or give another folder"
            )

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
        self._newest.clear()
