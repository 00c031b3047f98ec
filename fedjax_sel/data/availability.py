"""A trace of who can be reached: a file of 0 and 1, a row a client and a column a round."""

from pathlib import Path

import numpy as np

from fedjax_sel.errors import UserError

MOST_BYTES = 2**30


def load(path: Path, num_clients: int, num_rounds: int) -> np.ndarray:
    """Reads a trace.

    Args:
        path: a .npy file of Booleans or of 0 and 1, or a text file with commas or blanks between them.
        num_clients: N.
        num_rounds: T.

    Returns:
        bool [columns, N]: all that the file has, at least T.

    Raises:
        UserError: it cannot be read, holds something else, or is too small.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"--available: {path} is larger than {MOST_BYTES // 2**20} MB")
        if path.suffix == ".npy":
            table = np.load(path, allow_pickle=False)
        else:
            text = path.read_text().replace(",", " ")
            table = np.array([line.split() for line in text.splitlines() if line.strip()], dtype=np.float64)
    except OSError as error:
        raise UserError(
            f"--available: cannot read {path} ({error.strerror or error}); give a share or a file"
        ) from error
    except ValueError as error:
        raise UserError(
            f"--available: {path} is not a table of 0 and 1 with equally long rows, one a client ({error})"
        ) from error
    if table.ndim != 2 or not np.isin(table, (0, 1)).all():
        raise UserError(f"--available: {path} holds something else than rows of 0 and 1, one a client")
    if table.shape[0] != num_clients or table.shape[1] < num_rounds:
        raise UserError(
            f"--available: {path} tells of {table.shape[0]} clients and {table.shape[1]} rounds, and the run has "
            f"{num_clients} clients and {num_rounds} rounds; change --num-clients, --rounds, or the file"
        )
    return np.ascontiguousarray(table.T.astype(bool))
