"""One process at a time writes to a run folder."""

import contextlib
import os
from pathlib import Path
from types import TracebackType

from fedjax_sel.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has no such lock
    fcntl = None


class FolderLock(contextlib.AbstractContextManager):
    """Holds folders for this process. The system lets go of them when the process ends, however it ends."""

    def __init__(self) -> None:
        self._handles: list[int] = []

    def take(self, folder: Path) -> None:
        """Takes a folder that exists.

        Raises:
            UserError: another process holds it.
        """
        if fcntl is None:
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise UserError(
                f"--out: another process is writing to {folder}; wait for it, or give another folder"
            ) from error
        except OSError:  # a file system without locks
            os.close(handle)
            return
        self._handles.append(handle)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
