"""The command `python -m fedjax_sel.data`, which shows a partition before training. See `cli/data.py`."""

import sys

from fedjax_sel.cli.data import entry_point, main

__all__ = ["entry_point", "main"]

if __name__ == "__main__":
    sys.exit(entry_point())
