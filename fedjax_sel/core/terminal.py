"""Standard output and error that may go away while a command works: a reader leaves, a terminal closes, a disk is full.

What a command says is worth less than what it does. A text that nobody can take any more is dropped, the work goes on,
and the exit code says what became of it.
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
        error: the first error of the stream beneath; None while all that was written arrived.
    """

    def __init__(self, stream: Any):
        self._stream = _nowhere() if stream is None else stream  # None: the process was started without
        self._terminal = getattr(self._stream, "isatty", bool)()
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what waits."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.error = self.error or error
        if self.left:  # for good: what the buffer holds would fail again when the interpreter flushes it
            self.discard()

    @property
    def left(self) -> bool:
        """Return whether the reader went away: `head` that has seen enough, `tee` after Ctrl-C, a closed terminal."""
        gone = (errno.EPIPE, errno.EIO) if self._terminal else (errno.EPIPE,)
        return self.error is not None and self.error.errno in gone

    def discard(self) -> None:
        """Send what waits and what comes to nowhere, in other libraries' writes to the same file as well."""
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def unbroken() -> Iterator[Unbroken]:
    """Replace standard output and error by streams whose writes never fail, as long as the context lasts.

    Yields:
        Standard output, whose `error` says whether all of it arrived.
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
    """Open what was started closed (`2>&-`): the first file to be opened would else be standard error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
