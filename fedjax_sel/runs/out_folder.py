"""A folder of results: made where it is missing, and one sentence where it cannot be written."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fedjax_sel.errors import UserError


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make a folder where it is missing, for what is written to it inside.

    Raises:
        UserError: it cannot be made, or something cannot be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"--out: cannot write to {folder} ({error.strerror or error}); make room or move it") from error


def make(folder: Path) -> None:
    """Make a folder, where it is missing.

    Raises:
        UserError: it cannot be made.
    """
    with writing(folder):
        pass
