"""Standard streams whose failure does not stop a command: a closed pipe, a closed terminal, a full disk.

The command's work matters more than its output. Text that cannot be written is dropped, the work continues, and the
exit code reports the result.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class Unbroken:
    """A text stream whose writes never fail.

    Attributes:
        error: the underlying stream's first error; None while all writes succeed.
    """

    def __init__(self, stream: Any):
        self._stream = _nowhere() if stream is None else stream  # None: started without this stream
        self._terminal = getattr(self._stream, "isatty", bool)()
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write text, or drop it if the stream fails."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        """Flush the buffer, or drop it if the stream fails."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.error = self.error or error
        if self.left:  # otherwise the interpreter's final flush of the buffer would fail, too
            self.discard()

    @property
    def left(self) -> bool:
        """Whether the reader closed the stream: `head` when done, `tee` after Ctrl-C, a closed terminal."""
        gone = (errno.EPIPE, errno.EIO) if self._terminal else (errno.EPIPE,)
        return self.error is not None and self.error.errno in gone

    def discard(self) -> None:
        """Redirect the file descriptor to the null device, so that other libraries' writes are dropped, too."""
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def unbroken() -> Iterator[Unbroken]:
    """Replace standard output and error by streams whose writes never fail, within the context.

    Yields:
        The new standard output; its `error` is None if all writes succeeded.
    """
    _occupy_closed()
    original = sys.stdout, sys.stderr
    out, err = map(Unbroken, original)
    sys.stdout, sys.stderr = out, err  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield out
    finally:
        for stream in (out, err):
            stream.flush()
            if stream.error is not None:
                stream.discard()
        sys.stdout, sys.stderr = original


def _nowhere() -> TextIO:
    return open(os.devnull, "w")


def _occupy_closed() -> None:
    """Open standard streams that were closed at start (`2>&-`); otherwise the next opened file would replace them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor
