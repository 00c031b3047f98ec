"""Pandas tables, parsed from the CSV text that is also written to files, so that both are equal."""

import io
from typing import TYPE_CHECKING, Any

from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingImports]


def pandas() -> Any:
    """Import pandas.

    Raises:
        UserError: If pandas is not installed.
    """
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("to_pandas: the package pandas is missing; pip install pandas") from error
    return pandas


def of_csv(text: str) -> "pd.DataFrame":
    """Parse CSV with a header into a DataFrame; "N/A" and empty cells are missing values.

    Raises:
        UserError: If pandas is not installed.
    """
    return pandas().read_csv(io.StringIO(text))
