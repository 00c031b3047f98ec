"""Availability traces: files of 0 and 1 with one row per client and one column per round."""

from pathlib import Path

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.errors import UserError

MOST_BYTES = 2**28  # largest .npy file; text files are limited to a quarter of it


def load(path: Path, num_clients: int, num_rounds: int) -> np.ndarray:
    """Read an availability trace.

    Args:
        path: a .npy file of Booleans or of 0 and 1, or a text file with values separated by commas or blanks.
        num_clients: N.
        num_rounds: T.

    Returns:
        Availability, bool [columns, N], True where the client is available. All columns of the file, at least T.

    Raises:
        UserError: the file cannot be read, holds other values, or is too small.
    """
    try:
        table = _of_array(path) if path.suffix == ".npy" else _of_text(files.read_text(path, MOST_BYTES // 4))
    except (OSError, ValueError) as error:
        raise UserError(
            f"--available: cannot read {path} ({getattr(error, 'strerror', None) or error}); give a share such as 0.5, "
            "or a file of 0 and 1 with one row per client"
        ) from error
    if table.shape[0] != num_clients or table.shape[1] < num_rounds:
        raise UserError(
            f"--available: {path} covers {table.shape[0]} clients and {table.shape[1]} rounds, but the run has "
            f"{num_clients} clients and {num_rounds} rounds; change --num-clients, --rounds, or the file"
        )
    return np.ascontiguousarray(table.T)


def _of_array(path: Path) -> np.ndarray:
    """Read a trace, bool [clients, columns], from a .npy file."""
    table = files.read_array(path, MOST_BYTES)
    if table.ndim != 2 or table.dtype.kind not in "biuf" or not ((table == 0) | (table == 1)).all():
        raise ValueError("its values are not rows of 0 and 1")
    return table.astype(bool)


def _of_text(text: str) -> np.ndarray:
    """Read a trace, bool [clients, columns], from lines of numbers."""
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if cells := line.replace(",", " ").split():
            rows.append(_row(number, cells))
            if len(rows[-1]) != len(rows[0]):
                raise ValueError(f"line {number} has {len(rows[-1])} numbers, but the first line has {len(rows[0])}")
    if not rows:
        raise ValueError("it is empty")
    return np.stack(rows)


def _row(number: int, cells: list[str]) -> np.ndarray:
    values = {cell: _value(number, cell) for cell in set(cells)}
    return np.fromiter(map(values.__getitem__, cells), bool, len(cells))


def _value(number: int, cell: str) -> bool:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if value not in (0.0, 1.0):
        raise ValueError(f"{cell[:20]!r} in line {number} is neither 0 nor 1")
    return bool(value)
