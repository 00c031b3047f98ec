"""Tables for pandas, of the same text that is written as CSV: what is read back from a file is equal to them."""

import io
from typing import TYPE_CHECKING, Any

from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingImports]


def pandas() -> Any:
    """Return the package pandas.

    Raises:
        UserError: it is not installed.
    """
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("to_pandas: the package pandas is missing; pip install pandas") from error
    return pandas


def of_csv(text: str) -> "pd.DataFrame":
    """Return a DataFrame of CSV with a header; "N/A" and empty cells are missing values.

    Raises:
        UserError: pandas is not installed.
    """
    return pandas().read_csv(io.StringIO(text))
