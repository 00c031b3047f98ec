"""Creation of result folders, with a one-line error if they are not writable."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fedjax_sel.errors import UserError


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Create a folder if it is missing, and turn write errors inside the block into a UserError.

    Raises:
        UserError: the folder cannot be created, or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"--out: cannot write to {folder} ({reason}); free disk space or give another folder"
        ) from error


def make(folder: Path) -> None:
    """Create a folder if it is missing.

    Raises:
        UserError: the folder cannot be created.
    """
    with writing(folder):
        pass
