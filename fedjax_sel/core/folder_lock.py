"""Exclusive locks on output folders, with detection of a folder that was replaced."""

import contextlib
import os
from pathlib import Path
from types import TracebackType

from fedjax_sel.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has no flock and cannot open folders
    fcntl = None


class FolderLock(contextlib.AbstractContextManager):
    """Exclusive locks of this process on folders; the system releases them when the process ends, even by a kill.

    Args:
        given_as: the flag or argument that names the folder, for messages.
    """

    def __init__(self, given_as: str = "--out") -> None:
        self._given_as = given_as
        self._handles: list[int] = []
        self._newest: dict[Path, int] = {}  # path -> handle of the latest lock

    def take(self, folder: Path, wait: bool = False) -> None:
        """Lock an existing folder.

        Args:
            folder: the folder's path.
            wait: whether to wait while another process holds the lock.

        Raises:
            UserError: If another process holds the lock, or the folder cannot be opened.
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
        except OSError:  # the file system has no locks; `check` still detects a replaced folder
            pass
        self._handles.append(handle)
        self._newest[folder] = handle
        self.check(folder)

    def check(self, folder: Path) -> None:
        """Check that a path still names the locked folder.

        Args:
            folder: the path that was locked.

        Raises:
            UserError: If the folder was removed, moved or replaced.
        """
        if folder not in self._newest:
            return
        held = os.fstat(self._newest[folder])  # the open handle keeps the inode number from being reused
        try:
            same = os.path.samestat(held, folder.stat())
        except OSError:
            same = False
        if not same:
            raise UserError(
                f"{self._given_as}: {folder} was removed, moved or replaced by another process, so this run stops "
                "writing; start it again, or give another folder"
            )

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
        self._newest.clear()
